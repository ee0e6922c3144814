package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/cmd/holdfast/terminal"
	"github.com/holdfast-storage/holdfast/printable"
	"github.com/holdfast-storage/holdfast/report/doctor"
	"github.com/holdfast-storage/holdfast/report/facts"
	"github.com/holdfast-storage/holdfast/report/status"
)

func newStatusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of a cluster's storage",
		Long: `The StorageCluster, its nodes and pools, unhealthy volumes, and the last warnings, on one screen: what needs attention
comes first, and what is well is summed up where it does not fit. With -o wide nothing is left out. The exit code is 0 if everything
is healthy, 1 if not, and 3 if the cluster could not be asked. As a file named kubectl-holdfast in the PATH, this program is also kubectl holdfast.`,
		Example: `  holdfast status --context production
  holdfast status --watch
  kubectl holdfast status -o json`,
	}
	v := viewFlags(cmd)
	cmd.Flags().BoolVarP(&v.watch, "watch", "w", false, "show it again when it has changed, until it is interrupted; looked at every --interval")
	cmd.Flags().DurationVar(&v.interval, "interval", 5*time.Second, "how often --watch looks, a `duration`; a cluster that takes long to answer is asked less often")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !v.watch {
			if err := refuseGiven(cmd.Flags(), "has no effect without --watch", "interval"); err != nil {
				return err
			}
		}
		return v.status(cmd.Context(), cmd.OutOrStdout())
	}
	return cmd
}

func newDoctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for common problems of a cluster's storage, and say what to do",
		Long: `It only reads. The exit code is 0 if there is no problem, 1 if there is one, and 3 if the cluster, or the objects of
Holdfast in it, could not be read. Warnings and notes do not count.`,
		Example: `  holdfast doctor
  holdfast doctor --claim shop/orders
  kubectl holdfast doctor -o json`,
	}
	v := viewFlags(cmd)
	cmd.Flags().StringVar(&v.driver, "driver-name", v1beta1.DriverName, "`name` of the driver, as StorageClasses have it")
	cmd.Flags().StringVar(&v.claim, "claim", "", "only what is found about that claim, `NAMESPACE/NAME`, and its volume")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return v.doctor(cmd.Context(), cmd.OutOrStdout()) }
	return cmd
}

type view struct {
	*installation
	*output
	driver   string
	claim    string
	watch    bool
	interval time.Duration
}

func viewFlags(cmd *cobra.Command) *view {
	return &view{installation: installationFlags(cmd.Flags()), output: outputFlag(cmd, tableFormats...)}
}

var (
	errNotWell = errors.New("not all is well")
	errIll     = errors.New("there are problems")
)

func (i *installation) clients() (facts.Clients, error) {
	config, err := i.connection()
	if err != nil {
		return facts.Clients{}, err
	}
	return clientsFor(config)
}

func (v *view) status(ctx context.Context, out io.Writer) error {
	c, err := v.clients()
	if err != nil {
		return err
	}
	if v.watch {
		return v.watchStatus(ctx, out, c)
	}
	report, err := v.look(ctx, c)
	if err != nil {
		return err
	}
	if err := v.write(out, report, time.Now(), terminal.Of(out)); err != nil {
		return err
	}
	return judged(report)
}

func (v *view) look(ctx context.Context, c facts.Clients) (*status.Report, error) {
	found, err := facts.OfHoldfast(ctx, c, v.namespace)
	if err := cmp.Or(err, ctx.Err()); err != nil { // an interrupted look may have found only a part
		return nil, notAsked(err)
	}
	report, err := status.Look(found)
	return report, notAsked(err)
}

func judged(report *status.Report) error {
	if !report.Well {
		return errNotWell
	}
	return nil
}

func (v *view) write(out io.Writer, report *status.Report, now time.Time, t *terminal.Terminal) error {
	return v.print(out, report, func(wide bool) error { return report.Text(out, now, styleFor(t, wide)) })
}

// styleFor is how a report is drawn on a terminal, or for something else if it is nil.
func styleFor(t *terminal.Terminal, wide bool) status.Style {
	s := status.Style{Unicode: terminal.Unicode(), All: wide, Colour: t.Colour()}
	if t != nil {
		s.Width, s.Height = t.Size()
	}
	return s
}

// restful is how many times as long as a look took the pause after it is at least: the objects of a large cluster cost
// its API server something.
const restful = 10

// watchStatus ends when it is interrupted, with the code of what was seen last. While the API server does not answer
// it says so, and asks again.
func (v *view) watchStatus(ctx context.Context, out io.Writer, c facts.Clients) error {
	if v.interval < shortest {
		return fmt.Errorf("--interval %s: it must be %s or longer: %w", v.interval, shortest, errUsage)
	}
	var last *status.Report
	var unasked error
	began := time.Now()
	err := terminal.Watch(ctx, out, func(ctx context.Context) (*terminal.Frame, error) {
		looked := time.Now()
		report, away := v.look(ctx, c)
		if ctx.Err() != nil {
			return nil, ctx.Err() // what was seen before is the last state
		}
		if away != nil && last == nil {
			return nil, away // nothing was ever seen: it may be another cluster
		}
		if report != nil {
			last = report
		}
		unasked = away
		frame := &terminal.Frame{Between: v.between(), Pause: max(v.interval, restful*time.Since(looked)), Draw: func(out io.Writer, t *terminal.Terminal) error {
			if away != nil {
				return v.writeUnasked(out, away, looked)
			}
			return v.write(out, report, time.Now(), t)
		}}
		var err error
		frame.Same, err = v.compared(report, away, began)
		return frame, err
	})
	if err = cmp.Or(err, unasked); err != nil {
		return err
	}
	if last == nil {
		return notAsked(errors.New("it was interrupted before the cluster had answered"))
	}
	return judged(last)
}

// compared is what differs where a report has changed. That a warning is older is no change.
func (v *view) compared(report *status.Report, err error, began time.Time) (string, error) {
	if err != nil {
		return err.Error(), nil //nolint:nilerr // it is shown in place of the report
	}
	var b strings.Builder
	err = v.write(&b, report, began, nil)
	return b.String(), err
}

// writeUnasked is for people: programs read the exit code.
func (v *view) writeUnasked(out io.Writer, err error, at time.Time) error {
	if v.value == "json" || v.value == "yaml" {
		return nil
	}
	_, err = fmt.Fprintf(out, "%s: the cluster could not be asked, and is asked again: %s\n", at.UTC().Format(time.RFC3339), printable.Line(err.Error()))
	return err
}

func (v *view) doctor(ctx context.Context, out io.Writer) error {
	c, err := v.clients()
	if err != nil {
		return err
	}
	found, err := facts.All(ctx, c, v.namespace, v.driver)
	if err != nil {
		return notAsked(err)
	}
	findings := doctor.Examine(found)
	if v.claim != "" {
		findings = doctor.OfClaim(found, v.claim)
	}
	err = v.print(out, findings, func(bool) error { return doctor.Text(out, findings) })
	if err == nil && doctor.Ill(findings) && !found.NotInstalled() { // without Holdfast, all that is found is that it is missing
		return errIll
	}
	return cmp.Or(err, notAsked(found.Unread()))
}
