package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"

	"github.com/spf13/cobra"

	"github.com/holdfast-storage/holdfast/bench"
	"github.com/holdfast-storage/holdfast/cmd/holdfast/terminal"
)

func newBenchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure how fast a storage class of any driver gives volumes to pods",
		Long: `Claims and pods are made in a namespace of its own, one at a time and many at once, and removed again. Measured is the
time from claim to Bound, from pod to Running, with a claim and without one, and from a deleted claim to the end of its
volume. The cluster's own speed is in all of them: what can be compared between machines is the ratio to a pod without a
claim, and two classes that are measured in the same cluster.`,
		Example: `  holdfast bench --storage-class holdfast
  holdfast bench --storage-class csi-hostpath-sc --at-once 1,100 --repeat 100 --output json`,
	}
	flags := cmd.Flags()
	b := &benchmark{logging: logFlags(flags), installation: clusterFlags(flags), output: outputFlag(cmd, tableFormats...), size: resource.QuantityValue{Quantity: resource.MustParse("64Mi")}}
	flags.StringVar(&b.config.StorageClass, "storage-class", "", "`name` of the class to measure")
	b.config.AtOnce = []int{1, 20, 100}
	flags.Func("at-once", "a round for each of these `numbers` of volumes at once", func(s string) (err error) {
		b.config.AtOnce, err = numbers(s)
		return err
	})
	flags.Lookup("at-once").DefValue = "1,20,100"
	flags.IntVar(&b.config.Repeat, "repeat", 10, "how often the round of one volume runs, a `number`; with 100 there is a p99")
	flags.Var(&b.size, "size", "`size` of the claims")
	flags.StringVar(&b.config.Image, "image", "busybox:1", "`image` of the pods; it must have sh and sleep, and is pulled where it is not present")
	flags.StringVar(&b.config.Node, "node", "", "`name` of the node that all pods run on; the scheduler decides if empty")
	flags.DurationVar(&b.config.Timeout, "timeout", 5*time.Minute, "how long each step of a round may take, a `duration`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return b.run(cmd.Context(), cmd.OutOrStdout()) }
	return cmd
}

// numbers reads numbers with commas between.
func numbers(s string) (all []int, err error) {
	for word := range strings.SplitSeq(s, ",") {
		number, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil {
			return nil, fmt.Errorf("%q is no whole number; give numbers with commas between, such as 1,20,100", word)
		}
		all = append(all, number)
	}
	return all, nil
}

type benchmark struct {
	*logging
	*installation
	config bench.Config
	size   resource.QuantityValue
	output *output
}

func (b *benchmark) run(ctx context.Context, out io.Writer) error {
	var err error
	if b.config.Log, err = b.logger(); err != nil {
		return err
	}
	progress := terminal.NewProgress(os.Stderr)
	defer progress.Done()
	if terminal.Of(os.Stderr) != nil && b.format == "text" {
		b.config.Log = progressLog(progress)
	}
	b.config.Size, b.config.Version = b.size.Quantity, version
	// The flags are checked before the cluster is contacted.
	run, err := bench.New(b.config)
	if err != nil {
		return fmt.Errorf("bench: %w: %w", err, errUsage)
	}
	if run.Client, err = b.client(); err != nil {
		return err
	}
	result, err := run.Run(ctx)
	if result != nil {
		progress.Done()
		err = errors.Join(err, b.output.print(out, result, func(bool) error { return result.Table(out) }))
	}
	// A second signal ends the removal too.
	removing, stop := signal.NotifyContext(context.WithoutCancel(ctx), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return errors.Join(err, run.Close(removing))
}

// progressLog shows the last line of a log, without its time and level.
func progressLog(p *terminal.Progress) *slog.Logger {
	return slog.New(slog.NewTextHandler(stateWriter{p}, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
			return slog.Attr{}
		}
		return a
	}}))
}

// stateWriter takes each write as a state.
type stateWriter struct{ *terminal.Progress }

func (w stateWriter) Write(line []byte) (int, error) {
	return len(line), w.Set(strings.TrimPrefix(strings.TrimSpace(string(line)), slog.MessageKey+"="))
}

// client limits no requests, for the limit would be what is measured.
func (b *benchmark) client() (kubernetes.Interface, error) {
	config, err := b.connection()
	if err != nil {
		return nil, err
	}
	config.UserAgent = "holdfast-bench/" + version
	return kubernetes.NewForConfig(inProtobuf(config))
}
