package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-storage/holdfast/admin"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	cephsite "github.com/holdfast-storage/holdfast/backend/ceph/site"
	"github.com/holdfast-storage/holdfast/backend/local"
)

func newVolumesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "volumes",
		Short: "List, restore, delete and adopt the volumes of a cluster or of this host's pools",
		Long: `Without a command it lists them. It reads a cluster, as kubectl does. With --pool, list, trash and restore read pools
of this host, or in a Ceph cluster, whether or not a process serves them; delete and adopt are for clusters.`,
		Example: `  holdfast volumes
  holdfast volumes restore pvc-0c4e --claim shop/orders
  holdfast volumes --pool name=fast,path=/srv/fast`,
	}
	s, flags := volumeList.flags(cmd), cmd.Flags()
	// What trash and restore were before they were commands.
	trash := flags.Bool("trash", false, "with --pool: as holdfast volumes trash")
	restore := flags.String("restore", "", "with --pool: as holdfast volumes restore `NAME`")
	flags.Lookup("trash").Hidden, flags.Lookup("restore").Hidden = true, true
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, out := cmd.Context(), cmd.OutOrStdout()
		switch {
		case *trash && *restore != "":
			return fmt.Errorf("--trash and --restore exclude each other: %w", errUsage)
		case (*trash || *restore != "") && !s.given():
			return fmt.Errorf("--trash and --restore are for pools of this host, and --pool is missing; of a cluster: holdfast volumes trash and holdfast volumes restore NAME: %w", errUsage)
		case *restore != "":
			if err := s.checkHost("claim", "namespace"); err != nil {
				return err
			}
			return s.restore(ctx, out, *restore)
		case *trash:
			return trashList.show(ctx, out, s)
		}
		return volumeList.show(ctx, out, s)
	}
	cmd.AddCommand(newListVolumesCommand(), newDescribeVolumeCommand("describe"), newTrashCommand(), newRestoreCommand(), newDeleteCommand(), newAdoptCommand())
	return cmd
}

func newListVolumesCommand() *cobra.Command {
	return volumeList.command(&cobra.Command{
		Use:   "list",
		Short: "List the volumes of a cluster or of this host's pools",
		Long:  `With their problems: the Volume objects of a cluster, or what is in the pools that --pool names.`,
		Example: `  holdfast volumes list -o wide
  holdfast volumes list -o json --context production
  holdfast volumes list --pool name=fast,path=/srv/fast`,
	})
}

func newTrashCommand() *cobra.Command {
	return trashList.command(&cobra.Command{
		Use:   "trash",
		Short: "List the deleted volumes that can be restored",
		Long: `Those of all nodes and NFS servers, the last deleted first; of each, the last 100 are shown. With --pool, those of
pools of this host.`,
		Example: `  holdfast volumes trash
  holdfast volumes trash --pool name=fast,path=/srv/fast`,
	})
}

func newSnapshotsCommand() *cobra.Command {
	cmd := snapshotList.command(&cobra.Command{
		Use:   "snapshots",
		Short: "List the snapshots of a cluster or of this host's pools, and delete those that no VolumeSnapshot has",
		Long: `Without a command it lists them. Snapshots that were found on a node after the cluster lost its VolumeSnapshots, or
that an NFS server archived, can be deleted in no other way.`,
		Example: `  holdfast snapshots
  holdfast snapshots delete snapshot-0c4e`,
	})
	cmd.AddCommand(newListSnapshotsCommand(), newDeleteSnapshotCommand())
	return cmd
}

func newListSnapshotsCommand() *cobra.Command {
	return snapshotList.command(&cobra.Command{
		Use:   "list",
		Short: "List the snapshots of a cluster or of this host's pools",
		Long:  `With their problems: the Snapshot objects of a cluster, those that VolumeSnapshots have too, or what is in the pools.`,
		Example: `  holdfast snapshots list -o wide
  holdfast snapshots list --pool name=fast,path=/srv/fast`,
	})
}

// hostPools are pools of this host, or in Ceph clusters, whether or not a process serves them.
type hostPools struct {
	*pools
	ceph []cephsite.Config
	*logging
	flags *pflag.FlagSet
}

// hostPoolFlags leaves --pool to the command.
func hostPoolFlags(flags *pflag.FlagSet) *hostPools {
	return &hostPools{pools: &pools{}, logging: logFlags(flags), flags: flags}
}

func (p *hostPools) given() bool { return len(*p.pools)+len(p.ceph) > 0 }

// add takes a value of --pool.
func (p *hostPools) add(value string) error {
	if !cephsite.Describes(value) {
		return p.pools.add(value)
	}
	c, err := cephsite.ParsePool(value, parseDuration)
	if err != nil {
		return err
	}
	p.ceph = append(p.ceph, c)
	return nil
}

// checkHost refuses flags that are for a cluster, since this host would be read or changed instead. Others are those that
// not every command has, or that mean something else in some.
func (p *hostPools) checkHost(others ...string) error {
	return refuseGiven(p.flags, "is for a cluster, and --pool describes a pool of this host", append([]string{"node", "context", "kubeconfig"}, others...)...)
}

// explain adds to the error of a command that found no cluster that there is another way.
func (p *hostPools) explain(err error) error {
	if errors.Is(err, errNoCluster) {
		return fmt.Errorf("%w; for pools of this host, give --pool, such as --pool name=fast,path=/srv/fast", err)
	}
	return err
}

func (p *hostPools) peek(ctx context.Context, do func(*local.Backend) error) (err error) {
	log, err := p.logger()
	if err != nil {
		return err
	}
	storage, err := local.Peek(ctx, *p.pools, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, storage.Close(context.WithoutCancel(ctx))) }()
	return do(storage)
}

// each does something with the pools of this host together, which are such a view too, and with each of a Ceph cluster.
func (p *hostPools) each(ctx context.Context, do func(cephsite.View) error) error {
	if len(*p.pools) > 0 {
		if err := p.peek(ctx, func(b *local.Backend) error { return do(b) }); err != nil {
			return err
		}
	}
	log, err := p.logger()
	if err != nil {
		return err
	}
	for _, c := range p.ceph {
		view, err := cephsite.Peek(ctx, c, log)
		if err != nil {
			return err
		}
		if err := errors.Join(do(view), view.Close(context.WithoutCancel(ctx))); err != nil {
			return err
		}
	}
	return nil
}

func (p *hostPools) restore(ctx context.Context, out io.Writer, name string) error {
	id, err := backend.ParseID(name)
	if err != nil {
		return fmt.Errorf("%w: %w", err, errUsage)
	}
	var restored *backend.Volume
	var missing error
	err = p.each(ctx, func(of cephsite.View) error {
		if restored != nil {
			return nil
		}
		v, err := of.Undelete(ctx, id)
		if errors.Is(err, backend.ErrNotFound) { // another pool may have it
			missing = errors.Join(missing, err)
			return nil
		}
		restored = v
		return err
	})
	switch {
	case err != nil:
		return err
	case restored == nil:
		return missing
	}
	_, err = fmt.Fprintf(out, "volume %s (%s) is back in pool %s\n", restored.ID, v1beta1.Readable(v1beta1.Quantity(restored.Size)), restored.Pool)
	return err
}

func volumesOfPools(ctx context.Context, of cephsite.View) ([]admin.Row, error) {
	all, err := of.List(ctx)
	rows := make([]admin.Row, 0, len(all))
	for _, v := range all {
		rows = append(rows, admin.Row{
			Name: string(v.ID), CSIName: v.Name, ClaimRef: v1beta1.ReferenceTo(v1beta1.ClaimOf(v.Labels)), Pool: v.Pool, Size: v.Size, Used: v.Used, Mode: string(v.Mode), FSType: v.FSType,
			CreationTime: v.Created, Phase: v1beta1.PhaseReady, Condition: condition(v.Condition),
		})
	}
	return rows, err
}

func snapshotsOfPools(ctx context.Context, of cephsite.View) ([]admin.Row, error) {
	volumes, err := of.List(ctx)
	if err != nil {
		return nil, err
	}
	claims := map[backend.ID]*v1beta1.NamespacedReference{}
	for _, v := range volumes {
		claims[v.ID] = v1beta1.ReferenceTo(v1beta1.ClaimOf(v.Labels))
	}
	all, err := of.ListSnapshots(ctx)
	rows := make([]admin.Row, 0, len(all))
	for _, s := range all {
		rows = append(rows, admin.Row{
			Name: string(s.ID), CSIName: s.Name, ClaimRef: claims[s.Source], SourceRef: new(v1beta1.FromVolume(string(s.Source))), Pool: s.Pool, Size: s.Size, Used: s.Used, Mode: string(s.Mode), FSType: s.FSType,
			CreationTime: s.Created, Phase: v1beta1.PhaseReady, Condition: condition(s.Condition),
		})
	}
	return rows, err
}

func condition(c backend.Condition) string {
	if c.Abnormal {
		return c.Message
	}
	return "ok"
}

func trashOfPools(ctx context.Context, of cephsite.View) ([]admin.Trashed, error) {
	all, err := of.Trash(ctx)
	rows := make([]admin.Trashed, 0, len(all))
	for _, t := range all {
		rows = append(rows, admin.Trashed{
			Name: string(t.ID), CSIName: t.Name, ClaimRef: v1beta1.ReferenceTo(v1beta1.ClaimOf(t.Labels)), Pool: t.Pool, Size: t.Size, DeletionTime: t.Deleted, ExpirationTime: t.Expires,
			Incomplete: t.Incomplete,
		})
	}
	return rows, err
}
