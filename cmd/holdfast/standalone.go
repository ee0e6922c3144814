package main

import (
	"context"
	"flag"
	"io"
	"log/slog"

	"github.com/holdfast-storage/holdfast/backend/local"
)

var standaloneCommand = command{
	name:    "standalone",
	summary: "Serve the pools of this host over CSI, without Kubernetes",
	text: `
One process, one unix socket: the identity, controller, group controller and node services. It must run as root, where
the volumes are used. All state is in the pools; it may be stopped or killed at any time and started again.

  holdfast standalone --endpoint unix:///run/holdfast/csi.sock --node-id node1 \
      --pool name=fast,path=/srv/fast --metrics-address 127.0.0.1:9090

Inline ephemeral volumes are refused unless --ephemeral-pools and --ephemeral-max-size allow them.
`,
	prepare: func(flags *flag.FlagSet) func(context.Context, io.Writer) error {
		h := hostFlags(flags, "unix:///run/holdfast/csi.sock", "")
		flags.StringVar(&h.driver.NodeID, "node-id", "", "`name` of this host, 1 to 63 of letters, digits, -, _ and .; volumes say by it where they are")
		flags.Int64Var(&h.driver.MaxVolumes, "max-volumes", 0, "how many volumes may be used here at once, a `number`; 0: the caller decides")
		return func(ctx context.Context, _ io.Writer) error {
			return h.run(ctx, h.open, func(*local.Backend, *slog.Logger) ([]part, error) { return nil, nil })
		}
	},
}
