package nfsserver

import (
	"slices"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/operator/rollout"
)

// situation is a server and all that its status depends on.
type situation struct {
	now       time.Time
	server    *v1.NFSServer
	cluster   *v1.StorageCluster
	holdfast  string                      // the namespace of Holdfast
	entitled  bool                        // it may be where it is, or has its rights from before
	claim     *core.PersistentVolumeClaim // nil if there is none
	set       *apps.StatefulSet           // nil if there is none
	pods      []*core.Pod                 // the newest last
	clients   []string                    // the nodes
	namespace *core.Namespace             // nil if it is gone
	storage   *v1.StorageNode             // what the server says of itself; nil if it has said nothing
	address   string                      // of the Service
	node      string                      // that it has to be on; "" if any will do
	volumes   int
	exports   int // volumes that are made
	snapshots int
	unguarded bool // the API server knows no policies, so no loop devices are lent

	// What came of the last pass; empty while the cluster is paused.
	invalid  error
	failures []apply.Failure
	claimErr error  // the claim could not be made or grown
	leaving  string // what a deletion waits for
}

// observe looks only into caches.
func (r *Controller) observe(s *v1.NFSServer, cluster *v1.StorageCluster) (*situation, error) {
	o := &situation{now: time.Now(), server: s, cluster: cluster, holdfast: r.Namespace, entitled: r.entitled(s, cluster), claim: r.claim(s), pods: r.podsOf(s)}
	if ns, err := r.namespaces.Get(s.Namespace); err == nil {
		o.namespace = ns
	}
	if n, err := r.storageNodes.Get(s.NodeName()); err == nil {
		o.storage = n
	}
	volumes, err := r.volumes.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	snapshots, err := r.snapshots.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	for _, v := range volumes {
		if isOn(v, v.Spec.Node, s) {
			o.volumes++
			if v.Status.Created != nil {
				o.exports++
			}
		}
	}
	for _, n := range snapshots {
		if isOn(n, n.Spec.Node, s) {
			o.snapshots++
		}
	}
	o.address, o.node, o.clients = r.address(s), r.stays(s), r.nodeClients(cluster)
	o.unguarded = !render.HasPolicies(r.Owned.Has)
	if live := r.Servers.Get(refTo(s, "apps", "StatefulSet")); live != nil {
		set := &apps.StatefulSet{}
		if runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, set) == nil {
			o.set = set
		}
	}
	return o, nil
}

// address is that of the Service, or the one that it had.
func (r *Controller) address(s *v1.NFSServer) string {
	if live := r.Servers.Get(refTo(s, "", "Service")); live != nil {
		service := &core.Service{}
		if runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, service) == nil && service.Spec.ClusterIP != "" {
			return service.Spec.ClusterIP
		}
	}
	return s.Status.Address()
}

// pod is the one that serves or is to serve.
func (o *situation) pod() *core.Pod {
	if len(o.pods) == 0 {
		return nil
	}
	return o.pods[len(o.pods)-1]
}

func (o *situation) serves() bool { return slices.ContainsFunc(o.pods, rollout.IsReady) }

// current says whether the pod that serves is of the newest revision.
func (o *situation) current() bool {
	return o.set != nil && o.set.Status.ObservedGeneration >= o.set.Generation && o.set.Status.UpdatedReplicas == 1 && o.set.Status.ReadyReplicas == 1 &&
		o.set.Status.CurrentRevision == o.set.Status.UpdateRevision
}
