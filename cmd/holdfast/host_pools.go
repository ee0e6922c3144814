//go:build linux && !client

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-storage/holdfast/admin"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	cephsite "github.com/holdfast-storage/holdfast/backend/ceph/site"
	"github.com/holdfast-storage/holdfast/backend/local"
	"github.com/holdfast-storage/holdfast/report/top"
	"github.com/holdfast-storage/holdfast/transfer"
	"github.com/holdfast-storage/holdfast/transfer/protocol"
)

// What a program has that runs on the nodes of a cluster, and not only at the desk of its administrator: see client.go.

func hostCommands() map[string][]*cobra.Command {
	return map[string][]*cobra.Command{
		forHosts: {newStandaloneCommand(), newDisksCommand(), newCleanupCommand()},
		forPods:  {newControllerCommand(), newNodeCommand(), newNFSCommand(), newCephCommand(), newCopyCommand()},
	}
}

// metadata is the version of the metadata in pools that this program writes, and the newest that it reads.
func metadata() metadataVersion {
	newest := max(local.MetadataVersion, cephsite.MetadataVersion)
	return metadataVersion{Writes: newest, Reads: newest}
}

// exitCodeOfCopy is 0 for an error that is not of a copy.
func exitCodeOfCopy(err error) int {
	switch {
	case errors.Is(err, transfer.ErrHasContent):
		return protocol.HasContentExit
	case errors.Is(err, transfer.ErrFinal):
		return protocol.FinalExit
	}
	return 0
}

// poolView is a pool that is read without its process.
type poolView = cephsite.View

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
func (p *hostPools) each(ctx context.Context, do func(poolView) error) error {
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
	err = p.each(ctx, func(of poolView) error {
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

func volumesOfPools(ctx context.Context, of poolView) ([]admin.Row, error) {
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

func snapshotsOfPools(ctx context.Context, of poolView) ([]admin.Row, error) {
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

func trashOfPools(ctx context.Context, of poolView) ([]admin.Trashed, error) {
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

// addLocal takes a value of --pool of a command for pools on disks alone.
func (p *hostPools) addLocal(value string) error { return p.pools.add(value) }

func (t *topper) showHost(ctx context.Context, out io.Writer) error {
	return t.peek(ctx, func(storage *local.Backend) error { return t.show(ctx, out, &hostTraffic{storage, t.Place}) })
}

// hostTraffic is what is counted on this host.
type hostTraffic struct {
	storage *local.Backend
	chosen  func(claim *v1beta1.NamespacedReference, node, pool string) bool
}

// Sample reads the kernel.
func (h *hostTraffic) Sample(ctx context.Context) (*top.Sample, error) {
	s := &top.Sample{At: map[string]time.Time{"": time.Now()}, Counted: map[top.Key]top.Counters{}}
	for _, v := range h.storage.Traffic(ctx) {
		s.Counted[top.Key{Volume: string(v.ID)}] = top.Counters{
			Reads: float64(v.Reads), ReadBytes: float64(v.ReadBytes), Writes: float64(v.Writes), WrittenBytes: float64(v.WrittenBytes),
		}
	}
	return s, ctx.Err()
}

// Volumes lists the pools.
func (h *hostTraffic) Volumes(ctx context.Context) ([]top.Volume, error) {
	all, err := h.storage.List(ctx)
	if err != nil {
		return nil, err
	}
	rows := []top.Volume{}
	for _, v := range all {
		claim := v1beta1.ReferenceTo(v1beta1.ClaimOf(v.Labels))
		if !h.chosen(claim, "", v.Pool) {
			continue
		}
		one := top.Volume{Name: string(v.ID), ClaimRef: claim, Pool: v.Pool}
		i := slices.IndexFunc(h.storage.Pools(), func(p local.PoolConfig) bool { return p.Name == v.Pool })
		if i >= 0 && h.storage.Pools()[i].Engine == "directory" {
			one.Uncounted = top.Uncounted
		}
		rows = append(rows, one)
	}
	return rows, nil
}
