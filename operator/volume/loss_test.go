package volume_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/cluster"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

// lossy is a cluster of nodes a and b under a leading controller; the agent of a can be stopped.
func lossy(t *testing.T) (*world, map[string]*inmemory.Host) {
	w := newWorld(t)
	for _, name := range []string{"a", "b"} {
		w.KubernetesNode(name)
	}
	hosts := w.Hosts(map[string]int64{"a": gib, "b": gib})
	return w.leads(), hosts
}

func (w *world) made(name, node string, loss backend.OnNodeLoss) {
	w.Helper()
	s := inmemory.Spec(name, mib, node)
	s.OnNodeLoss = loss
	s.Labels = map[string]string{
		"csi.storage.k8s.io/pvc/name": "claim-of-" + name, "csi.storage.k8s.io/pvc/namespace": "shop", "csi.storage.k8s.io/pv/name": "pv-of-" + name,
	}
	check.Got(w.Backend.Create(w.Context(), s))(w)
}

// down stops the agent of a node and waits until that is noticed.
func (w *world) down(name string) {
	w.Helper()
	w.Agents[name]()
	w.Until("the node's condition", func() bool {
		n, err := w.Nodes().Get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		status, _ := w.Readiness(n.Status.Conditions)
		return status == metav1.ConditionUnknown
	})
}

func (w *world) reason(volume, reason string) {
	w.Helper()
	w.Until(reason+" of volume "+volume, func() bool {
		v := w.Volume(volume)
		if v == nil {
			return false
		}
		_, why := w.Readiness(v.Status.Conditions)
		return why == reason
	})
}

func (w *world) deleteNode(name string) {
	w.Helper()
	check.OK(w, w.Theirs.CoreV1().Nodes().Delete(w.Context(), name, metav1.DeleteOptions{}))
}

func TestLoss_NodeThatIsDownKeepsItsVolumesVisibleAndTakesThemBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, hosts := lossy(t)
		w.made("v", "a", "")
		w.made("other", "b", "")
		w.down("a")
		w.reason("v", v1beta1.ReasonNodeDown)
		if v := w.Volume("v"); v.Status.Phase != v1beta1.PhaseReady {
			t.Errorf("it is %s", v.Status.Phase)
		}
		v, err := w.Backend.Get(t.Context(), "v")
		if err != nil || !v.Condition.Abnormal || v.Access != (backend.Access{}) {
			t.Errorf("callers see %+v, %v", v, err)
		}
		w.ExpectEvent(v1beta1.ReasonNodeDown)
		_, reason := w.Readiness(w.Volume("other").Status.Conditions)
		if reason != v1beta1.ReasonReady {
			t.Errorf("the other node's volume is %s", reason)
		}
		w.Agent("a", hosts["a"])
		w.reason("v", v1beta1.ReasonReady)
		w.Ready("a")
	})
}

func TestLoss_RequestForANodeThatIsDownFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := lossy(t)
		w.made("v", "a", "")
		w.down("a")
		_, err := w.Backend.Create(t.Context(), inmemory.Spec("w", mib, "a"))
		inmemory.Expect(t, err, backend.ErrExhausted, "node a is down", "last renewed its Lease")
		_, err = w.Backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "v"})
		inmemory.Expect(t, err, backend.ErrUnavailable, "node a is down")
		_, err = w.Backend.Clone(t.Context(), "v", inmemory.Spec("c", mib))
		inmemory.Expect(t, err, backend.ErrUnavailable, "node a is down")
		_, err = w.Backend.Expand(t.Context(), "v", backend.Size{Required: 2 * mib})
		inmemory.Expect(t, err, backend.ErrUnavailable, "node a is down")
		_, err = w.Backend.CapacityAt(t.Context(), "a", "")
		inmemory.Expect(t, err, backend.ErrUnavailable)
		if v, err := w.Backend.Create(t.Context(), inmemory.Spec("w", mib)); err != nil || v.Node != "b" {
			t.Errorf("with a choice: %+v, %v", v, err)
		}
		inmemory.Expect(t, w.Backend.Delete(t.Context(), "v"), backend.ErrUnavailable, "node a", "down")
		if v := w.Volume("v"); v == nil || v.DeletionTimestamp == nil {
			t.Errorf("the wish was forgotten: %+v", v)
		}
	})
}

func TestLoss_VolumeOfADeletedNodeIsUnreachableAndReturnsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, hosts := lossy(t)
		w.made("v", "a", backend.RetainOnNodeLoss)
		check.Got(w.Backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "v"}))(t)
		hosts["a"].Write("v", []byte("precious"))
		w.down("a")
		w.deleteNode("a")
		w.reason("v", v1beta1.ReasonNodeGone)
		w.Until("the phase", func() bool { return w.Volume("v").Status.Phase == v1beta1.PhaseUnreachable })
		w.ExpectEvent(v1beta1.ReasonNodeGone)
		w.Until("the snapshot's phase", func() bool {
			s, err := w.Snapshots().Get(t.Context(), "s", metav1.GetOptions{})
			return err == nil && s.Status.Phase == v1beta1.PhaseUnreachable
		})
		w.KubernetesNode("a")
		w.Agent("a", hosts["a"])
		w.reason("v", v1beta1.ReasonReady)
		if got := string(hosts["a"].Read("v", 100)); got != "precious" || w.Volume("v").Status.Phase != v1beta1.PhaseReady {
			t.Errorf("it came back with %q", got)
		}
	})
}

func TestLoss_VolumeThatIsGivenUpOrDeletedDoesNotReturnWithItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, hosts := lossy(t)
		w.made("v", "a", backend.DeleteOnNodeLoss)
		w.made("deleted", "a", "")
		w.made("kept", "a", "")
		w.down("a")
		w.reason("v", v1beta1.ReasonNodeDown) // down is not gone
		inmemory.Expect(t, w.Backend.Delete(t.Context(), "deleted"), backend.ErrUnavailable)
		n := check.Got(w.Theirs.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{}))(t)
		n.Spec.Taints = []core.Taint{{Key: "node.kubernetes.io/out-of-service", Effect: core.TaintEffectNoExecute}}
		check.Got(w.Theirs.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}))(t)
		w.Gone("v")
		w.ExpectEvent("VolumeGivenUp")
		w.Until("the end of both for callers", func() bool {
			return w.Backend.Delete(t.Context(), "v") == nil && w.Backend.Delete(t.Context(), "deleted") == nil
		})
		w.reason("kept", v1beta1.ReasonNodeGone)
		w.Agent("a", hosts["a"])
		w.reason("kept", v1beta1.ReasonReady)
		w.Until("the disk without them", func() bool { return !hosts["a"].Has("v") && !hosts["a"].Has("deleted") })
		w.Until("nothing more to discard", func() bool {
			n, err := w.Nodes().Get(t.Context(), "a", metav1.GetOptions{})
			return err == nil && len(n.Spec.Discard) == 0
		})
		if w.Volume("v") != nil || w.Volume("deleted") != nil {
			t.Error("one was adopted")
		}
	})
}

// The cache of Nodes is behind: by the API server, the node is there again.
func TestLoss_NothingIsGivenUpByTheCacheOfNodesAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.KubernetesNode("a")
		ahead := &nodesAhead{Interface: w.Theirs}
		w.Change = func(c *cluster.Config) { c.Kubernetes = ahead }
		w.Hosts(map[string]int64{"a": gib})
		w.leads()
		w.made("v", "a", backend.DeleteOnNodeLoss)
		w.down("a")
		ahead.there.Store(true)
		w.deleteNode("a")
		w.Until("the question of whether it is gone", func() bool { return ahead.questions.Load() > 0 })
		again := func() {
			t.Helper()
			touch := []byte(`{"metadata":{"annotations":{"touched":"` + rand.String(5) + `"}}}`)
			check.Got(w.Volumes().Patch(t.Context(), "v", types.MergePatchType, touch, metav1.PatchOptions{}))(t)
		}
		before := ahead.questions.Load()
		again()
		w.Until("the next look at it, after the first", func() bool { return ahead.questions.Load() > before })
		v := w.Volume("v")
		if v == nil || v.DeletionTimestamp != nil {
			t.Fatalf("the volume is %+v", v)
		}
		if _, reason := w.Readiness(v.Status.Conditions); reason != v1beta1.ReasonNodeDown {
			t.Errorf("the volume is %s", reason)
		}
		ahead.there.Store(false)
		again()
		w.Gone("v")
	})
}

// nodesAhead is a client to which Nodes may be there that are not in caches.
type nodesAhead struct {
	kubernetes.Interface
	there     atomic.Bool
	questions atomic.Int32
}

func (n *nodesAhead) CoreV1() corev1.CoreV1Interface { return coreAhead{n.Interface.CoreV1(), n} }

type coreAhead struct {
	corev1.CoreV1Interface
	ahead *nodesAhead
}

func (c coreAhead) Nodes() corev1.NodeInterface {
	return nodeAhead{c.CoreV1Interface.Nodes(), c.ahead}
}

type nodeAhead struct {
	corev1.NodeInterface
	ahead *nodesAhead
}

func (n nodeAhead) Get(ctx context.Context, name string, o metav1.GetOptions) (*core.Node, error) {
	n.ahead.questions.Add(1)
	if n.ahead.there.Load() {
		return &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
	}
	return n.NodeInterface.Get(ctx, name, o)
}

func TestLoss_NodeThatGoesDownDuringCreationBlocksNoCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, hosts := lossy(t)
		inside, block := make(chan struct{}, 100), make(chan struct{})
		stuck := &stuckHost{Host: hosts["a"], inside: inside, block: block}
		w.Agents["a"]()
		wire := w.Agent("a", stuck)
		release := sync.OnceFunc(func() { close(block) })
		t.Cleanup(release) // before the agent is stopped
		w.Ready("a")
		made := make(chan error, 1)
		go func() {
			_, err := w.Backend.Create(context.WithoutCancel(t.Context()), inmemory.Spec("v", mib, "a"))
			made <- err
		}()
		<-inside
		wire.Cut.Store(true) // the agent goes on making the volume, which the controller cannot see
		err := <-made
		inmemory.Expect(t, err, backend.ErrExhausted, "node a is down")
		w.Gone("v")
		if v, err := w.Backend.Create(t.Context(), inmemory.Spec("v", mib, "b")); err != nil || v.Node != "b" {
			t.Fatalf("elsewhere: %+v, %v", v, err)
		}
		release() // now the first one is made after all, and is one too many
		wire.Cut.Store(false)
		w.Until("the disk of a without it", func() bool { return stuck.made.Load() > 0 && !hosts["a"].Has("v") })
		if !hosts["b"].Has("v") || w.Volume("v").Spec.Node != "b" {
			t.Error("the second one went with the first")
		}
	})
}

func TestLoss_RecordsOfADeletedNodeAreRemovedWhenNothingCanReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := lossy(t)
		w.down("a")
		w.deleteNode("a")
		w.Until("the end of its record", func() bool {
			_, err := w.Nodes().Get(t.Context(), "a", metav1.GetOptions{})
			_, errLease := w.Theirs.CoordinationV1().Leases("holdfast-system").Get(t.Context(), v1beta1.LeasePrefix+"a", metav1.GetOptions{})
			return apierrors.IsNotFound(err) && apierrors.IsNotFound(errLease)
		})
		if _, err := w.Nodes().Get(t.Context(), "b", metav1.GetOptions{}); err != nil {
			t.Errorf("the other node: %v", err)
		}
	})
}

func TestLoss_DeletedNodeObjectOfALiveAgentChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := lossy(t)
		w.made("v", "a", backend.DeleteOnNodeLoss)
		w.made("lost", "b", "")
		w.deleteNode("a")
		w.down("b")
		w.deleteNode("b")
		w.Until("the other node being reconciled, after this one", func() bool { return w.Volume("lost").Status.Phase == v1beta1.PhaseUnreachable })
		v := w.Volume("v")
		if v == nil || v.DeletionTimestamp != nil {
			t.Fatalf("the volume is %+v", v)
		}
		if _, reason := w.Readiness(v.Status.Conditions); reason != v1beta1.ReasonReady {
			t.Errorf("the volume is %s", reason)
		}
	})
}

func TestLoss_LateLeaderHandlesEarlierLosses(t *testing.T) {
	inBubble(t, func(_ *testing.T, w *world) {
		w.KubernetesNode("a")
		w.Hosts(map[string]int64{"a": gib})
		w.made("v", "a", "")
		w.Agents["a"]()
		w.Stop()
		w.started().leads()
		w.reason("v", v1beta1.ReasonNodeDown)
	})
}

// When a zone is cut off, all its nodes fall silent at once, and each write may take long.
func TestLoss_EightOfTheNodesThatFallSilentTogetherAreMarkedAtATime(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		slow := &slowWrites{}
		w.Change = func(c *cluster.Config) {
			config := rest.CopyConfig(w.Config)
			config.Wrap(func(next http.RoundTripper) http.RoundTripper { slow.RoundTripper = next; return slow })
			c.Client = client.NewForConfigOrDie(config)
		}
		w.started()
		const nodes = 20
		for i := range nodes {
			node := fmt.Sprintf("n%d", i)
			w.KubernetesNode(node)
			w.Puppet(node, gib)
			o := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: "on-" + node}, Spec: v1beta1.VolumeSpec{Name: "on-" + node, Node: node}}
			check.Got(w.Volumes().Create(t.Context(), o, metav1.CreateOptions{}))(t)
			w.Answer(o.Name, inmemory.Made)
		}
		w.leads()
		for i := range nodes {
			w.Beat(fmt.Sprintf("n%d", i), 1)
		}
		for i := range nodes {
			w.reason(fmt.Sprintf("on-n%d", i), v1beta1.ReasonNodeDown)
		}
		if most := slow.most.Load(); most != 8 {
			t.Errorf("%d writes were made at a time", most)
		}
	})
}

// slowWrites makes each write of a status take a second, and counts those that are made at a time.
type slowWrites struct {
	http.RoundTripper
	now, most atomic.Int32
}

func (s *slowWrites) RoundTrip(q *http.Request) (*http.Response, error) {
	if q.Method == http.MethodPut {
		now := s.now.Add(1)
		defer s.now.Add(-1)
		for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
		}
		<-time.After(time.Second)
	}
	return s.RoundTripper.RoundTrip(q)
}

// stuckHost makes volumes only when it is released.
type stuckHost struct {
	*inmemory.Host
	inside, block chan struct{}
	made          atomic.Int32
}

func (s *stuckHost) Create(ctx context.Context, spec backend.VolumeSpec) (*backend.Volume, error) {
	s.inside <- struct{}{}
	<-s.block
	defer s.made.Add(1)
	return s.Memory.Create(context.WithoutCancel(ctx), spec)
}
