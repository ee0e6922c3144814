package main

import (
	"context"
	"flag"
	"fmt"
	"io"

	"github.com/holdfast-storage/holdfast/admin"
	"github.com/holdfast-storage/holdfast/deploy"
)

var volumesListVerb = command{
	name:    "list",
	summary: "List the volumes of the cluster",
	text: `
The Volume objects, and what is not well with them.

  holdfast volumes list
  holdfast volumes list -o json
`,
	prepare: func(flags *flag.FlagSet) func(context.Context, io.Writer) error { return listerFlags(flags).volumes },
}

var trashVerb = command{
	name:    "trash",
	summary: "List the deleted volumes that can be restored",
	text: `
Those of all nodes and NFS servers, the last deleted first. Of each, the last 100 are shown.

  holdfast volumes trash
`,
	prepare: func(flags *flag.FlagSet) func(context.Context, io.Writer) error { return listerFlags(flags).trash },
}

var snapshotsListVerb = command{
	name:    "list",
	summary: "List the snapshots of the cluster",
	text: `
The Snapshot objects, and what is not well with them. Those that VolumeSnapshots have are among them.

  holdfast snapshots list
`,
	prepare: func(flags *flag.FlagSet) func(context.Context, io.Writer) error { return listerFlags(flags).snapshots },
}

// installation is how an administrator reaches a cluster with Holdfast in it.
type installation struct {
	*kubectl
	namespace string
}

func installationFlags(flags *flag.FlagSet) *installation {
	i := &installation{kubectl: kubectlFlags(flags)}
	flags.StringVar(&i.namespace, "namespace", deploy.Namespace, "`namespace` in which Holdfast runs")
	return i
}

func (i *installation) admin(c admin.Config) (*admin.Admin, error) {
	config, err := i.connection()
	if err != nil {
		return nil, err
	}
	config.QPS, config.UserAgent = -1, "holdfast/"+version
	if c.Clients, err = admin.Connect(config, i.namespace); err != nil {
		return nil, err
	}
	return admin.New(c)
}

// lister shows something of a cluster and changes nothing.
type lister struct {
	*installation
	output string
}

func listerFlags(flags *flag.FlagSet) *lister {
	l := &lister{installation: installationFlags(flags)}
	for _, name := range []string{"output", "o"} {
		flags.StringVar(&l.output, name, "table", "`format` of the list: table or json")
	}
	return l
}

func (l *lister) volumes(ctx context.Context, out io.Writer) error {
	return show(ctx, l, out, (*admin.Admin).Volumes, admin.WriteVolumes)
}

func (l *lister) snapshots(ctx context.Context, out io.Writer) error {
	return show(ctx, l, out, (*admin.Admin).Snapshots, admin.WriteSnapshots)
}

func (l *lister) trash(ctx context.Context, out io.Writer) error {
	return show(ctx, l, out, (*admin.Admin).Trash, admin.WriteTrash)
}

func show[T any](
	ctx context.Context, l *lister, out io.Writer, list func(*admin.Admin, context.Context) ([]T, error), write func(io.Writer, []T) error,
) error {
	if l.output != "table" && l.output != "json" {
		return fmt.Errorf("--output %q: it must be table or json: %w", l.output, errUsage)
	}
	a, err := l.admin(admin.Config{Out: out})
	if err != nil {
		return err
	}
	all, err := list(a, ctx)
	if err != nil {
		return err
	}
	if l.output == "json" {
		return writeJSON(out, all)
	}
	return write(out, all)
}
