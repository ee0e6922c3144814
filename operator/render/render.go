// Package render computes the objects of a StorageCluster. It does not access the cluster: the same input gives the same
// objects.
package render

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// Input is what the objects depend on.
type Input struct {
	Cluster   *v1beta1.StorageCluster
	Namespace string            // where Holdfast runs
	Secret    map[string][]byte // data of spec.secretRef; nil if it is not named
	CephKeys  map[string][]byte // by the name of a secret that a pool names, the value of its key; none where a secret is missing
	// Has says whether the API server knows a kind that not every cluster has. None is known if it is nil.
	Has             func(schema.GroupKind) bool
	Snapshots       bool          // the kinds of snapshots were brought, and so their controller is to run; the controller's own workload is the same
	Served          []string      // namespaces that have NFS servers with volumes, which keep their loop devices whatever spec.nfs says
	KubeletDir      string        // of the kubelets, where their Nodes show it
	OtherDefault    bool          // another class than OwnClass is the cluster's default
	KeepInline      bool          // inline ephemeral volumes that are not allowed are still in use
	Image           v1beta1.Image // instead of spec.images.holdfast, for an upgrade at work; "" otherwise
	ControllerImage v1beta1.Image // the same for the workload of the controller alone
	Release         Release
}

// Objects returns all objects of a StorageCluster, in the order in which to apply them: what pods need comes before them,
// and the controller's own workload is last. An error is about the spec: it names the field, its value and what is
// allowed.
func Objects(in Input) ([]*unstructured.Unstructured, error) {
	p, err := newPlan(in)
	if err != nil {
		return nil, err
	}
	objects, err := p.secrets()
	if err != nil {
		return nil, err
	}
	for _, part := range []func() []object{
		p.driver, p.node, p.loopSets, p.classes, p.snapshotClasses, p.service, p.ingress, p.monitor, p.priority,
		p.policies, p.nfsPolicies, p.cephPolicies, p.ceph, p.snapshotController, p.controller,
	} {
		objects = append(objects, part()...)
	}
	all := make([]*unstructured.Unstructured, 0, len(objects))
	for _, o := range objects {
		all = append(all, p.finish(o))
	}
	return all, nil
}

// plan is a StorageCluster with its defaults.
type plan struct {
	Input
	spec       v1beta1.StorageClusterSpec
	images     v1beta1.Images
	pools      []v1beta1.PoolSpec
	kubeletDir string
}

func newPlan(in Input) (*plan, error) {
	if err := in.Cluster.Unreadable(); err != nil { // a spec with missing fields must not be rendered
		return nil, fmt.Errorf("StorageCluster %s cannot be read: %w", in.Cluster.Name, err)
	}
	p := &plan{Input: in, spec: in.Cluster.Spec, images: in.Release.Images(in.Cluster), pools: Pools(in.Cluster)}
	if in.Image != "" {
		p.images.Holdfast = in.Image
		p.images.Ceph = cmp.Or(p.spec.Images.Ceph, in.Release.CephImage(in.Image))
	}
	if in.Has == nil {
		p.Has = func(schema.GroupKind) bool { return false }
	}
	var err error
	if p.kubeletDir, err = kubeletDir(p.spec, in.KubeletDir); err != nil {
		return nil, err
	}
	return p, checkAll(p)
}

// WithCSI says whether the driver is enabled.
func WithCSI(s *v1beta1.StorageClusterSpec) bool { return s.CSI.Enabled == nil || *s.CSI.Enabled }

func (p *plan) withCSI() bool { return WithCSI(&p.spec) }
