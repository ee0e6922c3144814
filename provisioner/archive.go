package provisioner

import (
	"context"
	"errors"
	"fmt"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/backend"
)

// archivePrefix and the name of a volume make the name of the snapshot that archives it.
const archivePrefix = "archived-"

// archive keeps the data as a snapshot, which no client can reach and which takes only the space of written blocks.
func (p *Provisioner) archive(ctx context.Context, pv *core.PersistentVolume, v *backend.Volume) error {
	name, err := p.archiveName(ctx, pv)
	if err != nil {
		return err
	}
	s, err := p.Backend.Snapshot(ctx, backend.SnapshotSpec{Name: name, Source: v.ID})
	if err != nil {
		return fmt.Errorf("archiving volume %s: %w", v.ID, err)
	}
	if err := usableArchive(pv, s); err != nil {
		return err
	}
	p.Made(backend.SourceSnapshot, s.ID)
	p.eventOncef(pv, core.EventTypeNormal, "Archived", "the data is kept on NFS server %s as snapshot %s; when it is no longer needed: holdfast snapshots delete %s",
		p.Identity, s.ID, s.ID)
	return nil
}

// archiveName returns the name of the archive of this release. A volume that comes back from the trash has its old name,
// and the archive of its earlier life may still be there, without what was written since. Retries find what was taken: the
// second name has the time of the release, and under the first one a snapshot counts that is not older. If the clock of
// this host is behind that of the API server, a retry may take a second archive, and none is lost.
func (p *Provisioner) archiveName(ctx context.Context, pv *core.PersistentVolume) (string, error) {
	release := p.releaseOf(pv)
	plain := archivePrefix + p.volumeName(pv.Name)
	dated := fmt.Sprintf("%s-%d", plain, release.Unix())
	for _, name := range []string{dated, plain} {
		id, err := backend.IDFor(name)
		if err != nil {
			return "", err
		}
		s, err := p.Backend.GetSnapshot(ctx, id)
		switch {
		case errors.Is(err, backend.ErrNotFound):
			continue
		case err != nil:
			return "", fmt.Errorf("whether snapshot %s archives PersistentVolume %s: %w", id, pv.Name, err)
		case name == plain && !s.Created.IsZero() && s.Created.Before(release):
			return dated, nil
		}
		return name, usableArchive(pv, s)
	}
	return plain, nil
}

// releaseOf returns since when the claim is gone, which is the same for all tries of a deletion. A PersistentVolume
// without that time has not changed since an API server that did not write it yet. So nothing that is older than this
// process is taken for its archive: each process that tries the deletion takes one of its own.
func (p *Provisioner) releaseOf(pv *core.PersistentVolume) time.Time {
	if t := pv.Status.LastPhaseTransitionTime; t != nil {
		return t.Time
	}
	return p.started
}

// usableArchive fails for a snapshot that may not have the data.
func usableArchive(pv *core.PersistentVolume, s *backend.Snapshot) error {
	if !s.Condition.Abnormal {
		return nil
	}
	return fmt.Errorf("%w: snapshot %s, the archive of PersistentVolume %s, cannot be used (%s); the data is kept. If that lasts, delete it, and another is taken: holdfast snapshots delete %s",
		backend.ErrPrecondition, s.ID, pv.Name, s.Condition.Message, s.ID)
}
