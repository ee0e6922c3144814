package cluster

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
)

// The labels by which external-provisioner says what a volume is for.
const (
	claimNameLabel      = "csi.storage.k8s.io/pvc/name"
	claimNamespaceLabel = "csi.storage.k8s.io/pvc/namespace"
	persistentLabel     = "csi.storage.k8s.io/pv/name"
)

func bytesOf(q *resource.Quantity) int64 {
	if q == nil {
		return 0
	}
	return q.Value()
}

// quantity is nil for none, so that the field is left out.
func quantity(bytes int64) *resource.Quantity {
	if bytes == 0 {
		return nil
	}
	return resource.NewQuantity(bytes, resource.BinarySI)
}

// made says whether a volume was real once.
func made(v *v1.Volume) bool { return v.Status.Created != nil }

// wanted is the size that a volume will have at least.
func wanted(v *v1.Volume) int64 {
	size := backend.Size{Required: bytesOf(v.Spec.Size.Required), Limit: bytesOf(v.Spec.Size.Limit)}
	bytes, _ := size.Choose(1, 1) // a wish that cannot be met takes nothing
	return bytes
}

func lookVolume(v *v1.Volume) state {
	return state{
		name: v.Name, node: v.Spec.Node, phase: v.Status.Phase, made: made(v), deleting: v.DeletionTimestamp != nil, request: requestOf(v, v.Spec.Deletion),
		observed: v.Status.ObservedGeneration == v.Generation, err: v.Status.Error, born: v.CreationTimestamp.Time,
		ready: meta.FindStatusCondition(v.Status.Conditions, v1.ReadyCondition), unreadable: v.Unreadable(),
	}
}

func lookSnapshot(s *v1.Snapshot) state {
	return state{
		name: s.Name, node: s.Spec.Node, phase: s.Status.Phase, made: s.Status.Created != nil, deleting: s.DeletionTimestamp != nil, request: requestOf(s, s.Spec.Deletion),
		observed: s.Status.ObservedGeneration == s.Generation, err: s.Status.Error, born: s.CreationTimestamp.Time,
		ready: meta.FindStatusCondition(s.Status.Conditions, v1.ReadyCondition), unreadable: s.Unreadable(),
	}
}

// requestOf leaves out a request that does not count.
func requestOf(o interface{ DeletionRequested() bool }, r *v1.DeletionRequest) *v1.DeletionRequest {
	if !o.DeletionRequested() {
		return nil
	}
	return r
}

func volumeObject(id backend.ID, node string, spec backend.VolumeSpec, source *backend.Source) *v1.Volume {
	o := &v1.Volume{
		ObjectMeta: metav1.ObjectMeta{Name: string(id), Finalizers: []string{v1.AgentFinalizer}},
		Spec: v1.VolumeSpec{
			Name: spec.Name, Node: node, Pool: spec.Pool,
			Size: v1.VolumeSize{Required: quantity(spec.Size.Required), Limit: quantity(spec.Size.Limit)},
			Mode: v1.Mode(spec.Mode), FSType: v1.FSType(spec.FSType), Provisioning: v1.Provisioning(spec.Provisioning),
			MkfsOptions: spec.MkfsOptions, Inodes: int64(spec.Inodes), Labels: spec.Labels, OnNodeLoss: v1.OnNodeLoss(spec.OnNodeLoss),
			Shared: spec.Shared, Server: spec.Server,
		},
	}
	if name := spec.Labels[claimNameLabel]; name != "" {
		o.Spec.Claim = spec.Labels[claimNamespaceLabel] + "/" + name
	}
	if source != nil {
		o.Spec.Source = &v1.VolumeSource{Kind: v1.SourceKind(source.Kind), Name: string(source.ID)}
	}
	return o
}

// volume shows an object as callers know it.
func (b *Backend) volume(o *v1.Volume) *backend.Volume {
	v := &backend.Volume{
		ID: backend.ID(o.Name), Name: o.Spec.Name, Node: o.Spec.Node, Pool: o.Status.Pool, Size: bytesOf(o.Status.Size),
		Mode: backend.Mode(o.Status.Mode), FSType: o.Status.FSType, FSSize: bytesOf(o.Status.FSSize),
		Provisioning: backend.Provisioning(o.Status.Provisioning), MkfsOptions: o.Spec.MkfsOptions, Inodes: uint64(o.Spec.Inodes),
		Labels: o.Spec.Labels, Used: bytesOf(o.Status.Used), Condition: b.condition(lookVolume(o), o.Status.Conditions),
		Shared: o.Spec.Shared, OnNodeLoss: backend.OnNodeLoss(o.Spec.OnNodeLoss),
	}
	if o.Spec.Shared {
		v.Server = v1.ServerOf(o.Spec.Node)
	}
	if o.Status.Created != nil {
		v.Created = o.Status.Created.Time
	}
	if s := o.Status.Source; s != nil {
		v.Source = &backend.Source{Kind: backend.SourceKind(s.Kind), ID: backend.ID(s.Name)}
	}
	if !lookVolume(o).away() {
		v.Access = b.access(o)
	}
	return v
}

// access is none while the volume's node is down. What a server exports it may go on exporting, without its agent.
func (b *Backend) access(o *v1.Volume) backend.Access {
	switch a := o.Status.Access; {
	case a == nil:
		return backend.Access{}
	case a.NFS != nil:
		return backend.Access{NFS: &backend.NFS{Server: a.NFS.Server, Path: a.NFS.Path}}
	case b.pulse.down(o.Spec.Node) == "":
		return backend.Access{Image: a.Image, Directory: a.Directory}
	}
	return backend.Access{}
}

// snapshot shows an object as callers know it.
func (b *Backend) snapshot(o *v1.Snapshot) *backend.Snapshot {
	s := &backend.Snapshot{
		ID: backend.ID(o.Name), Name: o.Spec.Name, Node: o.Spec.Node, Pool: o.Status.Pool, Source: backend.ID(o.Spec.Source),
		Size: bytesOf(o.Status.Size), Mode: backend.Mode(o.Status.Mode), FSType: o.Status.FSType, Used: bytesOf(o.Status.Used),
		Group: backend.ID(o.Status.Group), Shared: isServer(o.Spec.Node), Condition: b.condition(lookSnapshot(o), o.Status.Conditions),
	}
	if o.Status.Created != nil {
		s.Created = o.Status.Created.Time
	}
	return s
}

// healthReason is the backend's own word, where the agent has taken it from its backend.
func healthReason(said string) backend.HealthReason {
	switch r := backend.HealthReason(said); r {
	case backend.DeviceErrors, backend.FileSystemErrors, backend.NotGrown, backend.PoolErrors:
		return r
	}
	return backend.Damaged
}

// condition is what ails an object: its node, or what its agent says of it.
func (b *Backend) condition(s state, all []metav1.Condition) backend.Condition {
	if s.unreadable != nil {
		return backend.Condition{Abnormal: true, Message: "its object cannot be read: " + s.unreadable.Error()}
	}
	if why := b.pulse.down(s.node); why != "" {
		return backend.Condition{Abnormal: true, Message: hostWord(s.node) + " is down: " + why}
	}
	if s.away() && s.ready != nil {
		return backend.Condition{Abnormal: true, Message: s.ready.Message}
	}
	if c := meta.FindStatusCondition(all, v1.HealthyCondition); c != nil && c.Status == metav1.ConditionFalse {
		return backend.Condition{Abnormal: true, Reason: healthReason(c.Reason), Message: c.Message}
	}
	return backend.Condition{}
}
