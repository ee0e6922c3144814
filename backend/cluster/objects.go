package cluster

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/convert"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// isOnDisk says whether a volume was ever created on disk. Its content may not be complete.
func isOnDisk(v *v1beta1.Volume) bool { return v.Status.CreationTime != nil }

// wanted returns the minimum size of a volume.
func wanted(v *v1beta1.Volume) int64 {
	bytes, _ := convert.ToSize(v.Spec.Size).Choose(1, 1) // a size that cannot be met takes nothing
	return bytes
}

func volumeState(v *v1beta1.Volume) state {
	s := state{
		name: v.Name, node: v.Spec.Node, phase: v.Status.Phase, made: v.IsComplete(), deleting: v.DeletionTimestamp != nil, request: requestOf(v, v.Spec.Deletion),
		observed: v.Status.ObservedGeneration == v.Generation, err: v.Status.Error, born: v.CreationTimestamp.Time,
		ready: meta.FindStatusCondition(v.Status.Conditions, v1beta1.ReadyCondition), unreadable: v.Unreadable(),
	}
	if isOnDisk(v) && !s.made {
		s.copying = copyInWords(v.Status.Copy)
		if s.err != nil && !s.deleting { // what its agent cannot do now is no reason to remove what was copied
			s.copying, s.err = s.copying+"; "+s.err.Message, nil
		}
		if c := v.Status.Copy; c != nil && c.Phase == v1beta1.CopyFailed && !v.HasContent() && !s.deleting {
			s.err = &v1beta1.Error{Code: v1beta1.ErrorPrecondition, Message: "its content could not be copied: " + c.Message}
		}
	}
	return s
}

// copyInWords is how far a pod has brought the content of a volume.
func copyInWords(c *v1beta1.VolumeCopy) string {
	if c == nil {
		return "its content is to be copied by a pod"
	}
	words := fmt.Sprintf("its content is copied by a pod: %s, %s of %s", c.Phase, backend.Readable(c.BytesDone), backend.Readable(c.BytesTotal))
	if c.Message != "" {
		words += ": " + c.Message
	}
	return words
}

func snapshotState(s *v1beta1.Snapshot) state {
	return state{
		name: s.Name, node: s.Spec.Node, phase: s.Status.Phase, made: s.Status.CreationTime != nil, deleting: s.DeletionTimestamp != nil, request: requestOf(s, s.Spec.Deletion),
		observed: s.Status.ObservedGeneration == s.Generation, err: s.Status.Error, born: s.CreationTimestamp.Time,
		ready: meta.FindStatusCondition(s.Status.Conditions, v1beta1.ReadyCondition), unreadable: s.Unreadable(),
	}
}

// requestOf returns the deletion request of an object if it counts.
func requestOf(o interface{ DeletionRequested() bool }, r *v1beta1.DeletionRequest) *v1beta1.DeletionRequest {
	if !o.DeletionRequested() {
		return nil
	}
	return r
}

func volumeObject(id backend.ID, spec v1beta1.VolumeSpec) *v1beta1.Volume {
	return &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: string(id), Finalizers: []string{v1beta1.AgentFinalizer}}, Spec: spec}
}

// volume converts an object. While its node is down it has no access; a site may work without its agent.
func (b *Backend) volume(o *v1beta1.Volume) *backend.Volume {
	v, s := convert.ToVolume(o), volumeState(o)
	if o.Spec.PopulatedBy == v1beta1.PopulatedByPod { // it was made empty, and the node that formats it goes by that
		v.Source = convert.ToSource(o.Spec.SourceRef)
	}
	v.Condition = b.condition(s, o.Status.Conditions)
	if s.away() || v.Reach == backend.ItsHost && b.liveness.down(s.node) != "" {
		v.Access = backend.Access{}
	}
	return v
}

// snapshot converts an object.
func (b *Backend) snapshot(o *v1beta1.Snapshot) *backend.Snapshot {
	s := convert.ToSnapshot(o)
	s.Condition = b.condition(snapshotState(o), o.Status.Conditions)
	return s
}

// condition returns the problem of an object: that its node is down, or what its agent reports.
func (b *Backend) condition(s state, all []metav1.Condition) backend.Condition {
	if s.unreadable != nil {
		return backend.Condition{Abnormal: true, Message: "its object cannot be read: " + s.unreadable.Error()}
	}
	if why := b.liveness.down(s.node); why != "" {
		return backend.Condition{Abnormal: true, Message: v1beta1.SiteOf(s.node).String() + " is down: " + why}
	}
	if s.away() && s.ready != nil {
		return backend.Condition{Abnormal: true, Message: s.ready.Message}
	}
	return convert.ToCondition(all)
}
