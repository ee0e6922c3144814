package volumecopy

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/admin/persistent"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/transfer/protocol"
)

// observed is all that a plan depends on. What belongs to the copy is live: a cache may be behind the writes of the step
// before.
type observed struct {
	now    time.Time
	target *v1beta1.Volume    // nil if there is none
	own    traces             // of the copy into target
	others []traces           // of copies into Volumes of that name that are gone
	waits  string             // why it has no slot
	wanted bool               // another waits for its slot
	down   string             // why source or target is out of reach
	log    *protocol.Progress // what the pod that runs has said last; nil if nothing
}

// traces are what there is of one copy.
type traces struct {
	uid        types.UID         // of the target
	source     *v1beta1.Volume   // from which the target is copied; nil once that is gone
	temporary  []*v1beta1.Volume // all that say that they are it
	persistent map[role]*core.PersistentVolume
	claims     map[role]*core.PersistentVolumeClaim
	pods       []*core.Pod
	attached   []string // nodes to which one of the PersistentVolumes is attached; only once these are gone
}

func (t traces) isEmpty() bool { return len(t.temporary) == 0 && !t.isUsed() }

// isUsed says whether anything may still use the volumes.
func (t traces) isUsed() bool { return len(t.persistent)+len(t.claims)+len(t.pods)+len(t.attached) > 0 }

func (r *Controller) observe(ctx context.Context, name string) (observed, error) {
	o := observed{now: time.Now()}
	var err error
	if o.target, err = kube.Live(ctx, r.Storage.Client.HoldfastV1beta1().Volumes().Get, name); err != nil {
		return o, err
	}
	temporary := r.temporary(name)
	for uid, found := range temporary {
		if o.target != nil && uid == o.target.UID {
			continue
		}
		t, err := r.tracesOf(ctx, uid, name, found)
		if err != nil {
			return o, err
		}
		o.others = append(o.others, t)
	}
	if o.target == nil || o.target.Spec.PopulatedBy != v1beta1.PopulatedByPod {
		return o, nil
	}
	// One that waits has nothing, and there may be any number of them: nothing is asked about it.
	if o.waits, o.wanted = r.takeSlot(o.target); o.waits != "" {
		return o, nil
	}
	if o.own, err = r.tracesOf(ctx, o.target.UID, name, temporary[o.target.UID]); err != nil {
		return o, err
	}
	if o.own.source, err = r.sourceOf(ctx, o); err != nil {
		return o, err
	}
	o.down = r.whyDown(o.target, o.own.source)
	if p := o.pod(); p != nil && p.Spec.NodeName != "" && r.Storage.WhyDown(p.Spec.NodeName) != "" {
		o.down = "node " + p.Spec.NodeName + ", where its pod is, is down"
	} else if p != nil && isRunning(p) {
		o.log = r.lastLine(ctx, p)
	}
	return o, nil
}

// temporary are the Volumes that say that they are the temporary source of a copy into a Volume of a name, by its UID.
func (r *Controller) temporary(name string) map[types.UID][]*v1beta1.Volume {
	found := map[types.UID][]*v1beta1.Volume{}
	for _, v := range kube.Cached(r.volumes.List) {
		if v.Spec.Labels[v1beta1.CopyLabel] == name && isTemporary(v) {
			uid := types.UID(v.Spec.Labels[v1beta1.CopyUIDLabel])
			found[uid] = append(found[uid], v)
		}
	}
	return found
}

// sourceOf finds the temporary source: the one that its PersistentVolume names, or that the controller has made. An agent may have
// written any other. What it has found on its disk is taken where its own source is, since that node has all of the data anyway.
func (r *Controller) sourceOf(ctx context.Context, o observed) (*v1beta1.Volume, error) {
	bound := o.own.persistent[source]
	var found []*v1beta1.Volume
	for _, v := range o.own.temporary {
		switch {
		case bound != nil && persistent.Names(v, bound), bound == nil && v.Labels[v1beta1.AdoptedLabel] == "":
			return v, nil
		case bound == nil && v.Spec.SourceRef != nil && *v.Spec.SourceRef == *o.target.Spec.SourceRef:
			found = append(found, v)
		}
	}
	if len(found) == 0 {
		return nil, nil
	}
	node, pool, err := r.locate(ctx, o.target.Spec.SourceRef)
	switch {
	case errors.Is(err, backend.ErrNotFound), err != nil && !isUnfinished(o.target): // of a copy that has ended all is removed
		return nil, nil
	case err != nil:
		return nil, err
	}
	for _, v := range found {
		if v.Spec.Node == node && (v.PoolName() == pool || v1beta1.IsSite(node)) {
			return v, nil
		}
	}
	return nil, nil
}

func (r *Controller) whyDown(volumes ...*v1beta1.Volume) string {
	for _, v := range volumes {
		if v == nil {
			continue
		}
		if r.Storage.WhyDown(v.Spec.Node) != "" { // for how long changes all the time
			return v1beta1.SiteOf(v.Spec.Node).String() + " is down"
		}
	}
	return ""
}

// isUnfinished says whether a pod has or may have to copy into the volume.
func isUnfinished(v *v1beta1.Volume) bool {
	if !isPopulated(v) || v.DeletionTimestamp != nil || !v.IsBeingPopulated() || v.HasContent() || v.Status.CreationTime == nil {
		return false
	}
	c := v.Status.Copy
	return c == nil || c.Phase != v1beta1.CopyFailed && c.Phase != v1beta1.CopyComplete
}

// isPopulated says whether the volume is one that the controller has made to be populated. An agent makes none.
func isPopulated(v *v1beta1.Volume) bool {
	return v.Unreadable() == nil && v.Spec.PopulatedBy == v1beta1.PopulatedByPod && v.Spec.SourceRef != nil && v.Labels[v1beta1.AdoptedLabel] == ""
}

// tracesOf asks the API server for all that there is of a copy, and for those of the temporary ones that are still there.
func (r *Controller) tracesOf(ctx context.Context, uid types.UID, name string, temporary []*v1beta1.Volume) (t traces, err error) {
	t = traces{uid: uid, persistent: map[role]*core.PersistentVolume{}, claims: map[role]*core.PersistentVolumeClaim{}}
	if t.temporary, err = r.live(ctx, temporary); err != nil {
		return t, err
	}
	objects := r.Storage.Kubernetes.CoreV1()
	for _, role := range roles {
		pv, err := kube.Live(ctx, objects.PersistentVolumes().Get, nameOf(uid, role))
		if err != nil {
			return t, err
		}
		if pv != nil && pv.Labels[v1beta1.CopyLabel] == name {
			t.persistent[role] = pv
		}
		claim, err := kube.Live(ctx, objects.PersistentVolumeClaims(r.Storage.Namespace).Get, nameOf(uid, role))
		if err != nil {
			return t, err
		}
		if claim != nil && claim.Labels[v1beta1.CopyLabel] == name {
			t.claims[role] = claim
		}
	}
	pods, err := objects.Pods(r.Storage.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.Set{v1beta1.CopyLabel: name}.String()})
	if err != nil {
		return t, err
	}
	for i := range pods.Items {
		if attemptOf(uid, &pods.Items[i]) > 0 {
			t.pods = append(t.pods, &pods.Items[i])
		}
	}
	slices.SortFunc(t.pods, func(a, b *core.Pod) int { return cmp.Compare(attemptOf(uid, a), attemptOf(uid, b)) })
	if len(t.persistent) == 0 {
		t.attached, err = r.attached(ctx, uid)
	}
	return t, err
}

// live are those of the Volumes that are still there, the oldest first.
func (r *Controller) live(ctx context.Context, cached []*v1beta1.Volume) (found []*v1beta1.Volume, err error) {
	for _, c := range cached {
		v, err := kube.Live(ctx, r.Storage.Client.HoldfastV1beta1().Volumes().Get, c.Name)
		if err != nil {
			return nil, err
		}
		if v != nil {
			found = append(found, v)
		}
	}
	slices.SortFunc(found, v1beta1.ByAge)
	return found, nil
}

// attached are the nodes that have one of the two volumes.
func (r *Controller) attached(ctx context.Context, uid types.UID) (nodes []string, err error) {
	all, err := r.Storage.Kubernetes.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, a := range all.Items {
		if pv := a.Spec.Source.PersistentVolumeName; pv != nil && (*pv == nameOf(uid, source) || *pv == nameOf(uid, target)) {
			nodes = append(nodes, a.Spec.NodeName)
		}
	}
	return nodes, nil
}

// logTime bounds the wait for the kubelet of a node that may be lost.
const logTime = 5 * time.Second

// lastLine reads what the pod has said last of its progress, among the lines of its log. What cannot be read is no progress.
func (r *Controller) lastLine(ctx context.Context, p *core.Pod) *protocol.Progress {
	ctx, cancel := context.WithTimeout(ctx, logTime)
	defer cancel()
	lines, most := int64(20), int64(16<<10)
	data, err := r.Storage.Kubernetes.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &core.PodLogOptions{Container: containerName, TailLines: &lines, LimitBytes: &most}).DoRaw(ctx)
	if err != nil {
		return nil
	}
	return lastProgress(data)
}

// lastProgress is nil for a log that has none.
func lastProgress(log []byte) (last *protocol.Progress) {
	for line := range bytes.Lines(log) {
		var said protocol.Progress
		if json.Unmarshal(line, &said) == nil && stage(phaseOf(&said)) > 0 {
			last = &said
		}
	}
	return last
}
