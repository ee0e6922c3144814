//go:build linux && !client

package main

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-storage/holdfast/backend/local"
)

func newStandaloneCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "standalone",
		Short: "Serve the pools of this host over CSI, without Kubernetes",
		Long: `One process, one unix socket: the identity, controller, group controller and node services. It must run as root, where
the volumes are used. All state is in the pools; it may be stopped or killed at any time and started again.

Inline ephemeral volumes are refused unless --ephemeral-pools and --ephemeral-max-size allow them.`,
		Example: `  holdfast standalone --endpoint unix:///run/holdfast/csi.sock --node-id node1 \
      --pool name=fast,path=/srv/fast --metrics-address 127.0.0.1:9090`,
	}
	h := standaloneFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return h.alone(cmd.Context()) }
	return cmd
}

func standaloneFlags(flags *pflag.FlagSet) *host {
	h := hostFlags(flags, "unix:///run/holdfast/csi.sock", "")
	flags.StringVar(&h.driver.NodeID, "node-id", "", "`name` of this host, 1 to 63 of letters, digits, -, _ and .; volumes say by it where they are")
	flags.Int64Var(&h.driver.MaxVolumes, "max-volumes", 0, "how many volumes may be used here at once, a `number`; 0: the caller decides")
	return h
}

func (h *host) alone(ctx context.Context) error {
	return h.run(ctx, h.open, func(*local.Backend, *slog.Logger) ([]part, error) { return nil, nil })
}
