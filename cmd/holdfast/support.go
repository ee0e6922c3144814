package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-storage/holdfast/printable"
	"github.com/holdfast-storage/holdfast/report/bundle"
)

func newSupportBundleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Collect what a helper needs to see of a cluster's storage, in one file",
		Long: `What status and doctor say, the objects of Holdfast with the claims, volumes, nodes and events that are about them, and
the logs of its pods. It changes nothing, and has the content of no secret. The file has the names of your namespaces, claims and
nodes: look into it before you hand it on.`,
		Example: `  holdfast support-bundle
  kubectl -n holdfast-system exec deploy/holdfast-controller -- holdfast support-bundle --file - >bundle.tar.gz`,
	}
	i := installationFlags(cmd.Flags())
	file := cmd.Flags().StringP("file", "f", "", "the `file` to write, or - for standard output (default holdfast-support-TIME.tar.gz in this directory)")
	lines := cmd.Flags().Int64("log-lines", 20000, "the last `lines` of the log of each container")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *lines < 1 {
			return fmt.Errorf("--log-lines %d: it must be at least 1: %w", *lines, errUsage)
		}
		clients, err := i.clients()
		if err != nil {
			return err
		}
		c := bundle.Config{Clients: clients, Namespace: i.namespace, Version: version, LogLines: *lines, Now: time.Now()}
		if *file == "-" {
			return collect(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), c)
		}
		if *file == "" {
			*file = "holdfast-support-" + c.Now.UTC().Format("20060102-150405") + ".tar.gz"
		}
		return collectInto(cmd, *file, c)
	}
	return cmd
}

// collectInto overwrites no file, and leaves none that is not whole.
func collectInto(cmd *cobra.Command, name string, c bundle.Config) (err error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("--file: %w", err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(name))
		}
	}()
	if err := collect(cmd.Context(), f, cmd.ErrOrStderr(), c); err != nil {
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), printable.Line(name))
	return err
}

func collect(ctx context.Context, out, said io.Writer, c bundle.Config) error {
	missing, err := bundle.Write(ctx, out, c)
	if err != nil {
		return notAsked(err)
	}
	for _, one := range missing {
		fmt.Fprintln(said, "not in it:", printable.Line(one))
	}
	return nil
}
