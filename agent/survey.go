package agent

import (
	"context"
	"time"

	"github.com/holdfast-storage/holdfast/api/convert"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

// surveyRegularly compares the disk with the objects, first at the start.
func (a *Agent) surveyRegularly(ctx context.Context) {
	tick := time.NewTicker(a.SurveyEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		percent := int64(largeChange)
		if n%10 == 0 {
			percent = smallChange
		}
		if err := a.survey(ctx, percent); err != nil && ctx.Err() == nil {
			a.log.Warn("the disk could not be listed; trying again", "error", err)
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
func expected(p v1beta1.Phase) bool { return p == v1beta1.PhaseReady || p == v1beta1.PhaseUnreachable }

// survey queues what differs between the disk and the objects. Usage differs if it has changed by percent of the size.
func (a *Agent) survey(ctx context.Context, percent int64) error {
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
		if o := a.volumeObject(string(v.ID)); o == nil || a.volumeDiffers(o, v, percent) {
			a.loop.Enqueue(key{v1beta1.SourceVolume, string(v.ID)})
		}
	}
	a.inline.Store(inline)
	for _, o := range kube.AllIn[*v1beta1.Volume](a.watches.volumes.GetStore()) {
		if !onDisk[o.Name] && expected(o.Status.Phase) && o.DeletionTimestamp == nil {
			a.loop.Enqueue(key{v1beta1.SourceVolume, o.Name})
		}
	}
	return a.surveySnapshots(ctx)
}

func (a *Agent) surveySnapshots(ctx context.Context) error {
	snapshots, err := a.Backend.ListSnapshots(ctx)
	if err != nil {
		return err
	}
	onDisk := map[string]bool{}
	for _, s := range snapshots {
		onDisk[string(s.ID)] = true
		if o := a.snapshotObject(string(s.ID)); o == nil || snapshotDiffers(o, s) {
			a.loop.Enqueue(key{v1beta1.SourceSnapshot, string(s.ID)})
		}
	}
	for _, o := range kube.AllIn[*v1beta1.Snapshot](a.watches.snapshots.GetStore()) {
		if !onDisk[o.Name] && expected(o.Status.Phase) && o.DeletionTimestamp == nil {
			a.loop.Enqueue(key{v1beta1.SourceSnapshot, o.Name})
		}
	}
	return nil
}

// volumeDiffers says whether the object differs from what is on disk, regardless of its writer.
func (a *Agent) volumeDiffers(o *v1beta1.Volume, v *backend.Volume, percent int64) bool {
	return o.DeletionTimestamp == nil && newsOfVolume(&o.Status, volumeStatus(o, v, convert.ToError(o.Status.Error), a.Address), percent)
}

func snapshotDiffers(o *v1beta1.Snapshot, t *backend.Snapshot) bool {
	return o.DeletionTimestamp == nil && newsOfSnapshot(&o.Status, snapshotStatus(o, t, convert.ToError(o.Status.Error)))
}
