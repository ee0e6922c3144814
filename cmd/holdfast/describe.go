package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-storage/holdfast/report/facts"
	"github.com/holdfast-storage/holdfast/report/status"
)

// newGetCommand has the lists under the names by which kubectl has its own.
func newGetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "get", Short: "List volumes, snapshots or the trash, as the commands of these names do",
		Example: "  holdfast get volumes -n shop\n  holdfast get snapshots -o wide",
	}
	volumes, snapshots, trash := newListVolumesCommand(), newListSnapshotsCommand(), newTrashCommand()
	volumes.Use, snapshots.Use = "volumes", "snapshots"
	volumes.Aliases, snapshots.Aliases = []string{"volume", "vol"}, []string{"snapshot", "snap"}
	cmd.AddCommand(volumes, snapshots, trash)
	everywhere(cmd.PersistentFlags())
	return orElsewhere(cmd)
}

func newDescribeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "describe", Short: "Show all that is known of a volume",
		Example: "  holdfast describe volume shop/orders",
	}
	volume := newDescribeVolumeCommand("volume")
	volume.Aliases = []string{"volumes", "vol", "pvc", "pvcs", "claim", "claims"}
	cmd.AddCommand(volume)
	return orElsewhere(cmd)
}

// shownBy has what users of kubectl look for here, by the command that shows it.
var shownBy = map[string][]string{
	"holdfast status, or kubectl VERB storagenodes.holdfast.dev":    {"node", "no", "storagenode", "pool"},
	"holdfast status, or kubectl VERB storageclusters.holdfast.dev": {"cluster", "storagecluster"},
	"holdfast status, or kubectl VERB nfsservers.holdfast.dev -A":   {"server", "nfsserver"},
	"holdfast get volumes, or kubectl get pvc -A":                   {"claim", "pvc"},
	"kubectl VERB snapshots.holdfast.dev":                           {"snapshot", "snap"},
	"kubectl VERB storageupgrades":                                  {"upgrade", "storageupgrade"},
	"kubectl VERB nodejobs":                                         {"job", "nodejob"},
}

// orElsewhere names the command that shows what this one does not. Flags of kubectl, such as -o wide, are not looked at.
func orElsewhere(cmd *cobra.Command) *cobra.Command {
	cmd.FParseErrWhitelist.UnknownFlags = true
	cmd.RunE = needsWhat
	cmd.Args = func(c *cobra.Command, args []string) error {
		for by, words := range shownBy {
			if len(args) > 0 && slices.Contains(words, strings.TrimSuffix(strings.ToLower(args[0]), "s")) {
				return fmt.Errorf("%s%q is shown by %s: %w", prefix(c), args[0], strings.Replace(by, "VERB", c.Name(), 1), errUsage)
			}
		}
		return checkArgs(c, args)
	}
	return cmd
}

// needsWhat is run without what a command is about: without it cobra shows the help for a mistyped one, too.
func needsWhat(c *cobra.Command, _ []string) error {
	return fmt.Errorf("%sof what? It can be %s: %w", prefix(c), verbsOf(c), errUsage)
}

func newDescribeVolumeCommand(name string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   name + " VOLUME",
		Short: "Show all that is known of a volume",
		Long: `Where it is, what it takes, the pods with its claim, its conditions, its snapshots and the warnings about it. A volume is named by
itself or by its claim, NAMESPACE/NAME.`,
		Example: "  holdfast volumes describe shop/orders\n  holdfast describe volume pvc-0c4e",
	}
	v := &view{installation: homeFlags(cmd.Flags())}
	namespace := cmd.Flags().StringP("namespace", "n", "", "`namespace` of the claim, where its name has none")
	cmd.ValidArgsFunction = completeName(volumeNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name := args[0]
		if *namespace != "" && !strings.Contains(name, "/") {
			name = *namespace + "/" + name
		}
		return v.describe(cmd.Context(), cmd.OutOrStdout(), name)
	}
	return cmd
}

func (v *view) describe(ctx context.Context, out io.Writer, name string) error {
	c, err := v.clients()
	if err != nil {
		return err
	}
	found, err := facts.OfHoldfast(ctx, c, v.namespace)
	if err == nil {
		err = found.Unread()
	}
	if err != nil {
		return notAsked(err)
	}
	return status.Describe(ctx, out, c, found, name)
}
