//go:build linux && !client

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local/disk"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/printable"
)

func newDisksCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "disks",
		Short: "Show which disks of this host a pool of devices would take, and why not the others",
		Long: `Lists the whole disks of this host as a new pool with these devices would see them: which it would format, which belong to a
pool, and which it would not touch, and why. Nothing is changed. The flags are the fields of spec.pools[].devices of a StorageCluster;
without any, all disks of the machine are tried. For a node of a cluster run it in its pod.`,
		Example: `  kubectl -n holdfast-system exec ds/holdfast-node -- holdfast disks
  holdfast disks --min-size 500Gi --rotational=false --count 4`,
	}
	flags := cmd.Flags()
	which := nodeops.DeviceSelector{}
	var size resource.QuantityValue
	flags.StringSliceVar(&which.Paths, "paths", nil, "`patterns` such as /dev/disk/by-id/nvme-*, with commas between them")
	flags.Var(&size, "min-size", "`size` that a disk has at least, such as 100Gi")
	flags.StringVar(&which.Model, "model", "", "`pattern` for the model that the disk reports")
	rotational := flags.Bool("rotational", false, "false for solid state; without this flag both are meant")
	count := flags.Int("count", 1, "how many disks the pool takes at most, a `number`")
	state := flags.String("state-dir", "/var/lib/holdfast", "`directory` of Holdfast on this host, which records the pools that are disks")
	output := outputFlag(cmd, tableFormats...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if which.MinSize = size.Value(); which.MinSize == 0 && !which.Names() {
			which.MinSize = 1 // all
		}
		if flags.Changed("rotational") {
			which.Rotational = rotational
		}
		if *count < 1 {
			return fmt.Errorf("disks: --count %d: it must be at least 1: %w", *count, errUsage)
		}
		host := &disk.Host{Dir: *state, Node: os.Getenv("NODE_NAME"), Attached: attachedHere(), Proc: hostProcHere(), Log: slog.New(slog.DiscardHandler)}
		sights, err := host.Look(cmd.Context(), which, *count)
		if err != nil {
			return err
		}
		return output.print(cmd.OutOrStdout(), sights, func(wide bool) error { return writeDisks(cmd.OutOrStdout(), sights, wide) })
	}
	return cmd
}

// hostProcHere is the directory in proc of a process of the host, in the pod of a node.
func hostProcHere() string {
	const dir = "/host/proc/1"
	if _, err := os.Stat(dir); err != nil {
		return ""
	}
	return dir
}

// attachedHere is nil outside of the pod of a node.
func attachedHere() func(context.Context) ([]disk.Attached, error) {
	config, err := rest.InClusterConfig()
	node := os.Getenv("NODE_NAME")
	if err != nil || node == "" {
		return nil
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil
	}
	return attachedByOthers(client, node, v1beta1.DriverName)
}

func writeDisks(out io.Writer, sights []disk.Sight, wide bool) error {
	says := map[disk.State]string{
		disk.OfPool: "is that of pool ", disk.WouldTake: "would be formatted", disk.Free: "free, others come first",
		disk.Refused: "is not touched: ", disk.Unmatched: "is not touched: ",
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	header, row := "DISK\tSIZE\tMODEL\tSTATE\n", "%s\t%s\t%s\t%s\n"
	if wide {
		header, row = "DISK\tSIZE\tMODEL\tSTATE\tID\n", "%s\t%s\t%s\t%s\t%s\n"
	}
	fmt.Fprint(w, header)
	for _, s := range sights {
		cells := []any{s.Path, backend.Readable(s.Size), printable.Line(s.Model), says[s.State] + printable.Line(s.Why), printable.Line(s.ID)}
		if !wide {
			cells = cells[:4]
		}
		fmt.Fprintf(w, row, cells...)
	}
	return w.Flush()
}
