package upgrade

import (
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// made are the objects that were rendered for a StorageCluster.
type made struct {
	Workloads
	objects []*unstructured.Unstructured
}

func (m made) Get(r apply.Ref) *unstructured.Unstructured {
	for _, o := range m.objects {
		if apply.RefOf(o) == r {
			return o
		}
	}
	return nil
}

func TestUpgrade_AppliesNoSpecThatWouldHideVolumes(t *testing.T) {
	cluster := &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "holdfast"}}
	cluster.Spec.Pools = []v1beta1.PoolSpec{{Name: "default", Path: "/srv/a"}}
	objects := check.Got(render.Objects(render.Input{Cluster: cluster, Namespace: ours}))(t)
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	check.OK(t, nodes.Add(&core.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{core.LabelOSStable: "linux"}}}))
	c := &Controller{Config: Config{Namespace: ours}, nodes: corelisters.NewNodeLister(nodes)}
	cluster.Spec.Pools[0].Path = "/srv/b"
	for held, want := range map[string]string{"": "/srv/b", "default": "/srv/a"} {
		if cluster.Status.Pools = nil; held != "" {
			cluster.Status.Pools = []v1beta1.HeldPool{{Name: held, Path: "/srv/a", Engine: v1beta1.EngineImage, Volumes: 1, Nodes: []string{"a"}}}
		}
		c.Owned = made{objects: objects}
		got, err := c.effective(cluster)
		if err != nil || got.Spec.Pools[0].Path != want {
			t.Errorf("where %q holds a volume it is %v, %v", held, got.Spec.Pools, err)
		}
		c.Owned = made{}
		if _, err := c.effective(cluster); (err != nil) != (held != "") {
			t.Errorf("where %q holds a volume and it is not known what runs: %v", held, err)
		}
	}
}
