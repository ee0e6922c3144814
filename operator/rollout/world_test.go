package rollout

import (
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"

	listers "github.com/holdfast-storage/holdfast/api/client/listers/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestWorld_OnlyNodesThatStoreAreAwaited(t *testing.T) {
	linux := func(name string) *core.Node {
		return &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{core.LabelOSStable: "linux", "role": name[:1]}}}
	}
	cluster := &v1beta1.StorageCluster{}
	cluster.Spec.NodeSelectorTerms = []core.NodeSelectorTerm{{
		MatchExpressions: []core.NodeSelectorRequirement{{Key: "role", Operator: core.NodeSelectorOpIn, Values: []string{"w"}}},
	}}
	stores := check.Got(Storing(cluster, []*core.Node{linux("w3"), linux("a1"), linux("w1"), linux("w2")}))(t)
	w := cachesOf(t, []*core.Pod{pod("w1", "new")}, nodes("w3", v1beta1.NodeOfServer("aaa/server"), "w2", "w1", "a1", "gone"), knows("w1", "ours")).World(stores)
	w.DaemonSet = set("new", 3)
	r, _ := Plan(w)
	if r.Node != "w2" || !strings.HasSuffix(r.Waiting, "2 of 3 node pods to be created; without one: w2, w3") {
		t.Fatalf("it waits for %q: %q", r.Node, r.Waiting)
	}
}

func knows(node string, drivers ...string) *storage.CSINode {
	n := &storage.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}}
	for _, d := range drivers {
		n.Spec.Drivers = append(n.Spec.Drivers, storage.CSINodeDriver{Name: d})
	}
	return n
}

type owned []*unstructured.Unstructured

func (all owned) Get(r apply.Ref) *unstructured.Unstructured {
	for _, o := range all {
		if apply.RefOf(o) == r {
			return o
		}
	}
	return nil
}

// ofNodes is an object of Holdfast for the node pods.
func ofNodes(version, kind string, created time.Time) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(version)
	o.SetKind(kind)
	o.SetNamespace("ours")
	o.SetName(v1beta1.NodeName)
	o.SetCreationTimestamp(metav1.NewTime(created))
	return o
}

func TestWorld_HasTheDaemonSetItsPodsAndTheAgeOfTheirAccount(t *testing.T) {
	controller := pod("b", "new")
	controller.Labels = map[string]string{v1beta1.NameLabel: v1beta1.AppName, v1beta1.ComponentLabel: "controller"}
	c := cachesOf(t, []*core.Pod{pod("a", "new"), controller}, nil)
	set, account := time.Unix(1000, 0), time.Unix(2000, 0)
	c.Owned = owned{ofNodes("apps/v1", "DaemonSet", set), ofNodes("v1", "ServiceAccount", account)}
	w := c.World(nil)
	if w.DaemonSet == nil || !w.DaemonSet.CreationTimestamp.Time.Equal(set) || !w.Account.Equal(account) {
		t.Errorf("the DaemonSet is %v, the account of %s", w.DaemonSet, w.Account)
	}
	if len(w.Pods) != 1 || w.Pods[0].Name != "pod-a" {
		t.Errorf("there are %d pods", len(w.Pods))
	}
}

func cachesOf(t *testing.T, pods []*core.Pod, nodes []*v1beta1.StorageNode, kubelets ...*storage.CSINode) Caches {
	t.Helper()
	indexer := func() cache.Indexer {
		return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	}
	p, s, k := indexer(), indexer(), indexer()
	for _, o := range pods {
		if o.Namespace = "ours"; o.Labels == nil {
			o.Labels = map[string]string{v1beta1.NameLabel: v1beta1.AppName, v1beta1.ComponentLabel: v1beta1.NodeComponent}
		}
		check.OK(t, p.Add(o))
	}
	for _, o := range nodes {
		check.OK(t, s.Add(o))
	}
	for _, o := range kubelets {
		check.OK(t, k.Add(o))
	}
	return Caches{
		Owned: owned(nil), Pods: corelisters.NewPodLister(p), StorageNodes: listers.NewStorageNodeLister(s), CSINodes: storagelisters.NewCSINodeLister(k),
		Namespace: "ours", Driver: "ours",
	}
}

func TestWorld_NodeWithoutACSINodeIsNotRegistered(t *testing.T) {
	var stores []*core.Node
	for _, name := range []string{"a", "b", "c"} {
		stores = append(stores, &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	var unregistered []string
	for name, is := range cachesOf(t, nil, nil, knows("a", "other", "ours"), knows("b", "other")).World(stores).Unregistered {
		if is {
			unregistered = append(unregistered, name)
		}
	}
	if slices.Sort(unregistered); !slices.Equal(unregistered, []string{"b", "c"}) {
		t.Errorf("not registered are %q", unregistered)
	}
}
