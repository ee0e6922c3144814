package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-storage/holdfast/cmd/holdfast/terminal"
	"github.com/holdfast-storage/holdfast/report/top"
)

func newTopCommand() *cobra.Command {
	cmd := topCommand(&cobra.Command{
		Use:   "top",
		Short: "Show who reads and writes how much",
		Long: `Without a command it shows volumes. It compares what the kernel has counted of the loop device of each volume at two times.
What the page cache answers is not counted, and of volumes of the engine Directory nothing is: they have no device.
In a cluster the counters come from the pods of the nodes and NFS servers, through the API server: that needs the right
with the verb get on pods/proxy. With --pool it reads the kernel of this host.`,
		Example: `  holdfast top
  holdfast top pools --watch
  holdfast top --pool name=fast,path=/srv/fast`,
	}, top.ByVolume)
	cmd.AddCommand(topCommand(&cobra.Command{
		Use:     "volumes",
		Short:   "Show the volumes that read and write the most, with their claims and pods",
		Example: "  holdfast top volumes -n shop --interval 10s\n  holdfast top volumes --node node1 -o json",
	}, top.ByVolume), topCommand(&cobra.Command{
		Use:     "pools",
		Short:   "Show how much the volumes of each pool read and write",
		Example: "  holdfast top pools --watch",
	}, top.ByPool), topCommand(&cobra.Command{
		Use:     "nodes",
		Short:   "Show how much the volumes of each node and NFS server read and write",
		Example: "  holdfast top nodes --watch",
	}, top.ByNode))
	return cmd
}

type topper struct {
	*installation
	*hostPools
	*output
	selection
	by       top.By
	interval time.Duration
	watch    bool
}

func topCommand(cmd *cobra.Command, by top.By) *cobra.Command {
	flags := cmd.Flags()
	t := &topper{
		by: by, installation: homeFlags(flags), hostPools: hostPoolFlags(flags),
		output: outputFlag(cmd, tableFormats...),
	}
	flags.DurationVar(&t.interval, "interval", 2*time.Second, "how long it is counted for, a `duration`")
	flags.BoolVarP(&t.watch, "watch", "w", false, "show it again after each interval, until it is interrupted")
	flags.Func("pool", listPoolUsage, t.addPool(t.addLocal))
	_ = cmd.RegisterFlagCompletionFunc("pool", completeNames(poolNames)) // it has none yet
	t.choose(cmd, filterable{claim: true})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return t.run(cmd.Context(), cmd.OutOrStdout()) }
	return cmd
}

// shortest is the interval below which the time that the questions take would matter.
const shortest = 100 * time.Millisecond

func (t *topper) run(ctx context.Context, out io.Writer) error {
	if t.interval < shortest {
		return fmt.Errorf("--interval %s: it must be %s or longer: %w", t.interval, shortest, errUsage)
	}
	if t.given() {
		if err := t.checkHost("holdfast-namespace"); err != nil {
			return err
		}
		return t.showHost(ctx, out)
	}
	c, err := t.cluster(ctx)
	if err != nil {
		return t.explain(err)
	}
	return t.show(ctx, out, c)
}

func (t *topper) cluster(ctx context.Context) (*top.Cluster, error) {
	c, err := t.clients()
	if err != nil {
		return nil, err
	}
	return &top.Cluster{Holdfast: c.Holdfast, Kubernetes: c.Kubernetes, Namespace: t.namespace, Chosen: t.Place}, t.checkCluster(ctx, c.Holdfast)
}

// show compares two samples, or each with the one before.
func (t *topper) show(ctx context.Context, out io.Writer, source top.Source) error {
	m := &measurement{topper: t, source: source}
	if t.watch {
		return notAsked(terminal.Watch(ctx, out, func(ctx context.Context) (*terminal.Frame, error) {
			r, err := m.next(ctx)
			if err != nil {
				return nil, err
			}
			same, err := json.Marshal(r)
			return &terminal.Frame{Between: t.between(), Draw: func(out io.Writer, screen *terminal.Terminal) error { return t.write(out, r, screen) }, Same: string(same)}, err
		}))
	}
	r, err := m.next(ctx)
	if err != nil {
		return notAsked(err)
	}
	if err := t.write(out, r, nil); err != nil {
		return err
	}
	if len(r.Silent) > 0 && r.Seconds == 0 {
		return notAsked(errors.New("no node answered both times"))
	}
	return nil
}

// write cuts what does not fit on a screen that is redrawn.
func (t *topper) write(out io.Writer, r *top.Report, screen *terminal.Terminal) error {
	return t.print(out, r, func(wide bool) error {
		if screen == nil {
			return r.Text(out, 0, wide)
		}
		var text bytes.Buffer
		width, height := screen.Size()
		const besides = 5 // the header, and notes
		if err := r.Text(&text, max(height-besides, 1), wide); err != nil {
			return err
		}
		for line := range bytes.Lines(text.Bytes()) {
			if _, err := fmt.Fprintln(out, terminal.Cut(string(bytes.TrimSuffix(line, []byte("\n"))), width)); err != nil {
				return err
			}
		}
		return nil
	})
}

// listEvery is how often a watch asks which volumes and pods there are: that costs more than their counters.
const listEvery = 30 * time.Second

type measurement struct {
	*topper
	source  top.Source
	last    *top.Sample
	volumes []top.Volume
	listed  time.Time
}

func (m *measurement) next(ctx context.Context) (*top.Report, error) {
	var err error
	if m.volumes == nil || time.Since(m.listed) > listEvery {
		if m.volumes, err = m.source.Volumes(ctx); err != nil {
			return nil, err
		}
		m.listed = time.Now()
	}
	if m.last == nil {
		if m.last, err = m.source.Sample(ctx); err != nil {
			return nil, err
		}
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(m.interval):
	}
	now, err := m.source.Sample(ctx)
	if err != nil {
		return nil, err
	}
	report := top.Compare(m.last, now, m.volumes, m.by)
	m.last = now
	return report, nil
}
