package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-storage/holdfast/admin"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/printable"
)

func (i *installation) admin(c admin.Config) (*admin.Admin, error) {
	config, err := i.connection()
	if err != nil {
		return nil, err
	}
	if c.Clients, err = admin.Connect(config, i.namespace); err != nil {
		return nil, err
	}
	return &admin.Admin{Config: c}, nil
}

// list is what a command lists, of a cluster or of the pools of this host.
type list[T any] struct {
	ofCluster func(*admin.Admin, context.Context) ([]T, error)
	ofPools   func(context.Context, poolView) ([]T, error)
	table     func(io.Writer, []T, bool) error
	name      func(io.Writer, T) error // for -o name
	filters   filterable
	chosen    func(*admin.Filter, T) bool
	orders    []admin.Order[T]
}

var (
	volumeList = list[admin.Row]{
		(*admin.Admin).Volumes, volumesOfPools, admin.WriteVolumes, nameOf("Volume"),
		filterable{claim: true, health: true},
		(*admin.Filter).Row, admin.VolumeOrders,
	}
	snapshotList = list[admin.Row]{
		(*admin.Admin).Snapshots, snapshotsOfPools, admin.WriteSnapshots, nameOf("Snapshot"),
		filterable{claim: true, volume: true, health: true},
		(*admin.Filter).Row, admin.SnapshotOrders,
	}
	// A volume in the trash has no object: its name alone is an argument for restore.
	trashList = list[admin.Trashed]{(*admin.Admin).Trash, trashOfPools, admin.WriteTrash, func(out io.Writer, t admin.Trashed) error {
		_, err := fmt.Fprintln(out, printable.Line(t.Name))
		return err
	}, filterable{claim: true}, (*admin.Filter).Trashed, admin.TrashOrders}
)

func nameOf(kind string) func(io.Writer, admin.Row) error {
	return func(out io.Writer, r admin.Row) error {
		return printName(out, v1beta1.SchemeGroupVersion.WithKind(kind).GroupKind(), r.Name)
	}
}

// source is where a list is read, what of it is shown, and how.
type source struct {
	*installation
	*hostPools
	*output
	selection
}

const listPoolUsage = "only what is in the pool of that name. Or a `pool` of this host, to be read instead of a cluster:\n" +
	"name=NAME,path=DIRECTORY, with the other keys that holdfast standalone --help shows. May be given several times"

const listCephPoolUsage = listPoolUsage + ",\n" + cephPoolUsage

func (l list[T]) flags(cmd *cobra.Command) *source {
	flags := cmd.Flags()
	s := &source{
		installation: clusterFlags(flags),
		hostPools:    hostPoolFlags(flags),
		output:       outputFlag(cmd, append(tableFormats, "name")...),
	}
	flags.Func("pool", listCephPoolUsage, s.addPool(s.add))
	_ = cmd.RegisterFlagCompletionFunc("pool", completeNames(poolNames)) // it has none yet
	var orders []string
	for _, o := range l.orders {
		orders = append(orders, o.Name)
	}
	s.choose(cmd, l.filters)
	s.sortBy = choiceFlag(flags, "sort-by", "", "column", "by which the list is sorted, the largest and the oldest first", orders...)
	flags.BoolVar(&s.reverse, "reverse", false, "sort the other way round")
	return s
}

// command makes a command that prints the list.
func (l list[T]) command(cmd *cobra.Command) *cobra.Command {
	s := l.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return l.show(cmd.Context(), cmd.OutOrStdout(), s) }
	return cmd
}

func (l list[T]) show(ctx context.Context, out io.Writer, s *source) error {
	all, err := l.read(ctx, s)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(one T) bool { return !l.chosen(&s.Filter, one) })
	l.orders[0].Sort(all, false) // those that are equal in the column stay so
	for _, o := range l.orders {
		if o.Name == s.sortBy.value {
			o.Sort(all, s.reverse)
		}
	}
	if s.value == "name" {
		for _, one := range all {
			if err := l.name(out, one); err != nil {
				return err
			}
		}
		return nil
	}
	return s.print(out, all, func(wide bool) error { return l.table(out, all, wide) })
}

func (l list[T]) read(ctx context.Context, s *source) (all []T, err error) {
	if s.given() {
		if err := s.checkHost(); err != nil {
			return nil, err
		}
		err = s.each(ctx, func(of poolView) error {
			some, err := l.ofPools(ctx, of)
			all = append(all, some...)
			return err
		})
		return all, err
	}
	a, err := s.admin(admin.Config{Out: io.Discard})
	if err != nil {
		return nil, s.explain(err)
	}
	all, err = l.ofCluster(a, ctx)
	if err != nil {
		return nil, notAsked(err)
	}
	if !slices.ContainsFunc(all, func(one T) bool { return l.chosen(&s.Filter, one) }) {
		return all, s.checkCluster(ctx, a.Holdfast)
	}
	return all, nil
}

// printName prints a name as kubectl get -o name does.
func printName(out io.Writer, kind schema.GroupKind, name string) error {
	_, err := fmt.Fprintf(out, "%s/%s\n", strings.ToLower(kind.String()), name)
	return err
}
