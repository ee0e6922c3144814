package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local"
)

var volumesCommand = command{
	name:    "volumes",
	summary: "List, restore, delete and adopt the volumes of a cluster or of this host's pools",
	text: `
It asks a cluster, as kubectl does. With --pool it reads pools of this host themselves, whether or not a process serves
them, and lists and restores what is there.

  holdfast volumes
  holdfast volumes restore pvc-0c4e --claim shop/orders
  holdfast volumes --pool name=fast,path=/srv/fast
  holdfast volumes --pool name=fast,path=/srv/fast --trash
  holdfast volumes --pool name=fast,path=/srv/fast --restore pvc-0c4e
`,
	verbs: []command{volumesListVerb, trashVerb, restoreVerb, deleteVerb, adoptVerb},
	prepare: func(flags *flag.FlagSet) func(context.Context, io.Writer) error {
		v := &volumes{pools: poolFlag(flags), logging: logFlags(flags), cluster: listerFlags(flags)}
		flags.BoolVar(&v.trash, "trash", false, "with --pool: list deleted volumes that are kept instead")
		flags.StringVar(&v.restore, "restore", "", "with --pool: take the volume with this `id` out of the trash")
		return v.run
	},
}

// volumes are those of this host if pools are given, else those of a cluster.
type volumes struct {
	*pools
	*logging
	cluster *lister
	trash   bool
	restore string
}

func (v *volumes) run(ctx context.Context, out io.Writer) (err error) {
	switch {
	case v.trash && v.restore != "":
		return fmt.Errorf("--trash and --restore exclude each other: %w", errUsage)
	case len(*v.pools) == 0 && v.trash:
		return fmt.Errorf("--trash is for pools of this host, and --pool is missing; of a cluster: holdfast volumes trash: %w", errUsage)
	case len(*v.pools) == 0 && v.restore != "":
		return fmt.Errorf("--restore is for pools of this host, and --pool is missing; of a cluster: holdfast volumes restore %s: %w", v.restore, errUsage)
	case len(*v.pools) == 0:
		return v.cluster.volumes(ctx, out)
	}
	log, err := v.logger()
	if err != nil {
		return err
	}
	storage, err := local.Peek(ctx, *v.pools, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, storage.Close(context.WithoutCancel(ctx))) }()
	switch {
	case v.restore != "":
		return restore(ctx, out, storage, v.restore)
	case v.trash:
		return listTrash(ctx, out, storage)
	}
	return listVolumes(ctx, out, storage)
}

func restore(ctx context.Context, out io.Writer, storage *local.Backend, s string) error {
	id, err := backend.ParseID(s)
	if err != nil {
		return err
	}
	v, err := storage.Undelete(ctx, id)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "volume %s (%s) is back in pool %s\n", v.ID, size(v.Size), v.Pool)
	return err
}

func listVolumes(ctx context.Context, out io.Writer, storage *local.Backend) error {
	all, err := storage.List(ctx)
	if err != nil {
		return err
	}
	table := newTable(out, "ID", "POOL", "SIZE", "USED", "MODE", "FS", "CLAIM", "CREATED", "CONDITION")
	for _, v := range all {
		condition := "ok"
		if v.Condition.Abnormal {
			condition = v.Condition.Message
		}
		table.row(string(v.ID), v.Pool, size(v.Size), size(v.Used), string(v.Mode), v.FSType, v1.ClaimOf(v.Labels), stamp(v.Created), condition)
	}
	return table.Flush()
}

func listTrash(ctx context.Context, out io.Writer, storage *local.Backend) error {
	all, err := storage.Trash(ctx)
	if err != nil {
		return err
	}
	table := newTable(out, "ID", "POOL", "SIZE", "NAME", "DELETED", "KEPT UNTIL")
	for _, t := range all {
		table.row(string(t.ID), t.Pool, size(t.Size), backend.Quote(t.Name), stamp(t.Deleted), stamp(t.Expires))
	}
	return table.Flush()
}

func stamp(t time.Time) string { return t.Local().Format("2006-01-02 15:04") }

func size(bytes int64) string { return v1.Readable(v1.Quantity(bytes)) }

type table struct{ *tabwriter.Writer }

func newTable(out io.Writer, columns ...string) *table {
	t := &table{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
	t.row(columns...)
	return t
}

func (t *table) row(cells ...string) {
	for _, cell := range cells {
		fmt.Fprint(t, cmp.Or(cell, "-"), "\t")
	}
	fmt.Fprintln(t)
}
