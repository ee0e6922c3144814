package agent

import (
	"context"
	"time"

	"github.com/holdfast-storage/holdfast/api/convert"
	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
)

// surveyRegularly compares the disk with the objects, first of all at the start.
func (a *Agent) surveyRegularly(ctx context.Context) {
	tick := time.NewTicker(a.SurveyEvery)
	defer tick.Stop()
	for {
		if err := a.survey(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("what is on disk could not be looked at; trying again", "error", err)
		}
		a.node.change()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-a.poolsChanged:
		}
	}
}

// expected says whether something should be on the disk, or may be back on it.
func expected(p v1.Phase) bool { return p == v1.PhaseReady || p == v1.PhaseUnreachable }

// survey adds to the work what the objects do not tell, or no longer.
func (a *Agent) survey(ctx context.Context) error {
	volumes, err := a.Backend.List(ctx)
	if err != nil {
		return err
	}
	onDisk := map[string]bool{}
	inline := int32(0)
	for _, v := range volumes {
		if a.Foreign != nil && a.Foreign(v) {
			inline++
		}
		onDisk[string(v.ID)] = true
		if o := a.volumeObject(string(v.ID)); o == nil || a.volumeDiffers(o, v) {
			a.work.add(key{v1.SourceVolume, string(v.ID)})
		}
	}
	a.inline.Store(inline)
	for _, o := range listed[v1.Volume](a.watches.volumes) {
		if !onDisk[o.Name] && expected(o.Status.Phase) && o.DeletionTimestamp == nil {
			a.work.add(key{v1.SourceVolume, o.Name})
		}
	}
	if a.snapshotter == nil {
		return nil
	}
	return a.surveySnapshots(ctx)
}

func (a *Agent) surveySnapshots(ctx context.Context) error {
	snapshots, err := a.snapshotter.ListSnapshots(ctx)
	if err != nil {
		return err
	}
	onDisk := map[string]bool{}
	for _, s := range snapshots {
		onDisk[string(s.ID)] = true
		if o := a.snapshotObject(string(s.ID)); o == nil || snapshotDiffers(o, s) {
			a.work.add(key{v1.SourceSnapshot, string(s.ID)})
		}
	}
	for _, o := range listed[v1.Snapshot](a.watches.snapshots) {
		if !onDisk[o.Name] && expected(o.Status.Phase) && o.DeletionTimestamp == nil {
			a.work.add(key{v1.SourceSnapshot, o.Name})
		}
	}
	return nil
}

// volumeDiffers says whether the object tells something else than what is on disk, whoever wrote it.
func (a *Agent) volumeDiffers(o *v1.Volume, v *backend.Volume) bool {
	return o.DeletionTimestamp == nil && newsOfVolume(&o.Status, volumeStatus(o, v, convert.ToError(o.Status.Error), a.Address))
}

func snapshotDiffers(o *v1.Snapshot, t *backend.Snapshot) bool {
	return o.DeletionTimestamp == nil && newsOfSnapshot(&o.Status, snapshotStatus(o, t, convert.ToError(o.Status.Error)))
}
