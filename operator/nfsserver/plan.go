package nfsserver

import (
	"cmp"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
)

type desired struct {
	server  *v1beta1.NFSServer
	cluster *v1beta1.StorageCluster // never nil; empty if there is none
	// image is the one of an upgrade that has paused the cluster; "" means that of the StorageCluster.
	image    v1beta1.Image
	holdfast string // the namespace of Holdfast
	release  render.Release
}

// plan is what to do now, in the order of the fields; the package comment says why.
type plan struct {
	// To maintain.
	finalizer   bool
	patchVolume *volumePatch // of the PersistentVolume that has the data
	makeClaim   *core.PersistentVolumeClaim
	growClaim   *core.PersistentVolumeClaim
	grant       bool                         // the rights that all servers share, this one among them
	network     []*unstructured.Unstructured // the Service, and the policies that shut the server
	workload    []*unstructured.Unstructured // the StatefulSet
	prune       bool                         // all other objects of the server, if everything was applied

	// To remove.
	delete      []*unstructured.Unstructured
	deleteClaim *core.PersistentVolumeClaim // after patchVolume has released its data
	leaving     string                      // what the removal waits for
	finish      bool                        // revoke the rights, and remove the finalizer last

	invalid      error // why nothing is maintained
	claimRefused error // why the claim is not touched
	silent       bool  // the status stays as it is
	again        time.Duration
}

type outcome struct {
	apply.Outcome

	claimErr error     // the claim could not be made, grown or kept
	barredAt time.Time // when users last kept an object of the server from being written; zero if they did not
}

// round is one pass over one server. The plan depends on the desired and observed state, the status on all four.
type round struct {
	desired
	observed
	plan
	outcome
}

func newPlan(d desired, o observed) plan {
	r := &round{desired: d, observed: o}
	if d.server.DeletionTimestamp != nil {
		r.remove()
	} else {
		r.maintain()
	}
	return r.plan
}

// maintain plans the objects of a server. If its spec cannot be served, the running objects stay.
func (r *round) maintain() {
	if r.isPaused() || !r.entitled { // the StorageCluster is watched
		return
	}
	r.finalizer = r.server.DeletionTimestamp == nil
	if r.invalid = checkServer(r.server, r.others); r.invalid == nil {
		r.maintainObjects()
	} else {
		r.again = kube.RetryRefused // another server may have been deleted
	}
}

// maintainObjects plans the claim, the rights and the objects of a server that is served.
func (r *round) maintainObjects() {
	r.maintainClaim()
	r.grant = true
	in := r.input()
	r.network = append([]*unstructured.Unstructured{service(in)}, network(in)...)
	// The Service queues the server when it has an address. Without one, it could not be created, and the status says why.
	if r.service == "" || r.isClaimForeign() {
		return
	}
	r.prune = true
	r.workload = []*unstructured.Unstructured{workload(in)}
}

// isPaused says whether nothing may be changed. A StorageCluster that cannot be decoded may be paused.
func (r *round) isPaused() bool {
	return r.cluster.Spec.Paused && r.image == "" || r.cluster.Unreadable() != nil
}

// isMaintained says whether anything is applied.
func (r *round) isMaintained() bool {
	isLeft := r.server.DeletionTimestamp == nil || r.isRemovable() && r.remains.inUse
	return isLeft && !r.isPaused() && r.entitled && checkServer(r.server, r.others) == nil
}

// input is all that the objects of a server depend on.
type input struct {
	desired

	address string // that the Service has, or had; "" as long as there is none
	node    string // that the server must stay on; "" if any will do
	closing closing
	renewed string // see accountAnnotation
}

func (r *round) input() input {
	return input{desired: r.desired, address: r.address(), node: r.node(), closing: r.closing(), renewed: r.renewed()}
}

// address returns the address of the Service, or the last one if there is no Service.
func (r *round) address() string { return cmp.Or(r.service, r.server.Status.Address()) }
