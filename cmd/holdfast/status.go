package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/spf13/cobra"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/driver"
	"github.com/holdfast-storage/holdfast/report/doctor"
	"github.com/holdfast-storage/holdfast/report/facts"
	"github.com/holdfast-storage/holdfast/report/status"
)

func newStatusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of a cluster's storage",
		Long: `The StorageCluster, its nodes and pools, unhealthy volumes, and the last warnings. The exit code is 0 if everything
is healthy, 1 if not, and 3 if the cluster could not be asked. As a file named kubectl-holdfast in the PATH, this program is also kubectl holdfast.`,
		Example: `  holdfast status --context production
  kubectl holdfast status -o json`,
	}
	v := viewFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return v.status(cmd.Context(), cmd.OutOrStdout()) }
	return cmd
}

func newDoctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for common problems of a cluster's storage, and say what to do",
		Long: `It only reads. The exit code is 0 if there is no problem, 1 if there is one, and 3 if the cluster, or the objects of
Holdfast in it, could not be read. Warnings and notes do not count.`,
		Example: `  holdfast doctor
  kubectl holdfast doctor -o json`,
	}
	v := viewFlags(cmd)
	cmd.Flags().StringVar(&v.driver, "driver-name", driver.DefaultName, "`name` of the driver, as StorageClasses have it")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return v.doctor(cmd.Context(), cmd.OutOrStdout()) }
	return cmd
}

// view is how a user looks at a cluster.
type view struct {
	*installation
	*output
	driver string
}

func viewFlags(cmd *cobra.Command) *view {
	return &view{installation: installationFlags(cmd.Flags()), output: outputFlag(cmd, tableFormats...)}
}

var (
	errNotWell = errors.New("not all is well")
	errIll     = errors.New("there are problems")
)

func (v *view) clients() (facts.Clients, error) {
	c := facts.Clients{}
	config, err := v.connection()
	if err != nil {
		return c, err
	}
	if c.Holdfast, err = holdfast.NewForConfig(config); err != nil {
		return c, err
	}
	if c.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		return c, err
	}
	c.Kubernetes, err = kubernetes.NewForConfig(inProtobuf(config))
	return c, err
}

func (v *view) status(ctx context.Context, out io.Writer) error {
	c, err := v.clients()
	if err != nil {
		return err
	}
	found, err := facts.OfHoldfast(ctx, c, v.namespace)
	if err != nil {
		return notAsked(err)
	}
	report, err := status.Look(found)
	if err != nil {
		return notAsked(err)
	}
	err = v.print(out, report, func(bool) error { return report.Text(out, time.Now()) })
	if err == nil && !report.Well {
		return errNotWell
	}
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
	err = v.print(out, findings, func(bool) error { return doctor.Text(out, findings) })
	if err == nil && doctor.Ill(findings) {
		return errIll
	}
	return cmp.Or(err, unread(found))
}

// unread is an error where an object of Holdfast may be ill that could not be read.
func unread(f *facts.Facts) error {
	for _, kind := range facts.Required {
		if err := f.Hidden[kind]; err != nil {
			return notAsked(fmt.Errorf("the %s could not be read: %w", kind, err))
		}
	}
	return nil
}
