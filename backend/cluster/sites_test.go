package cluster_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/cluster"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
)

// withCeph is a cluster with a node and a Ceph pool, both of a pool named memory: what asks for it means that of Ceph.
func withCeph(t *testing.T, engine v1beta1.Engine, room, onNode int64) (w *world, pool, host *inmemory.Host) {
	t.Helper()
	w = newWorld(t)
	pool = w.CephPool(room, engine)
	host = w.Hosts(map[string]int64{node: onNode})[node]
	w.Ready(inmemory.CephPool)
	return w, pool, host
}

func cephSpec(name string, size int64, nodes ...string) backend.VolumeSpec {
	s := inmemory.Spec(name, size, nodes...)
	s.Pool = "memory"
	return s
}

// configure has the StorageCluster name pools.
func (w *world) configure(pools ...v1beta1.PoolSpec) {
	w.Helper()
	c := &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "holdfast"}, Spec: v1beta1.StorageClusterSpec{Pools: pools}}
	check.Got(w.Ours.HoldfastV1beta1().StorageClusters().Create(w.Context(), c, metav1.CreateOptions{}))(w)
}

func TestCephPool_ItsVolumesAreThereWhereverTheyAreRequested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for engine, reach := range map[v1beta1.Engine]backend.Reach{v1beta1.EngineRBD: backend.OneHost, v1beta1.EngineCephFS: backend.ManyHosts} {
			w, pool, _ := withCeph(t, engine, 4*gib, 100*gib)
			if got := w.Backend.Reach("memory"); got != reach {
				t.Errorf("%s is reached by %d", engine, got)
			}
			v, err := w.Backend.Create(t.Context(), cephSpec("v", gib, node))
			if err != nil || v.Node != inmemory.CephPool || v.Reach != reach || v.Shared || !pool.Has("v") {
				t.Fatalf("%s: made %+v, %v", engine, v, err)
			}
			if v.Access.RBD == nil && v.Access.CephFS == nil {
				t.Errorf("%s: it is used by %+v", engine, v.Access)
			}
			w.Until("a report that has the volume", func() bool {
				n := check.Got(w.Ours.HoldfastV1beta1().StorageNodes().Get(t.Context(), inmemory.CephPool, metav1.GetOptions{}))(t)
				return v1beta1.Bytes(&n.Status.Pools[0].Promised) == gib
			})
			synctest.Wait() // until the caches have it: before, the volume may count twice, or not at all
			_, err = w.Backend.Create(t.Context(), cephSpec("large", 5*gib, node))
			inmemory.Expect(t, err, backend.ErrExhausted, "Ceph pool memory", "3Gi are free")
		}
	})
}

func TestCephPool_HasNoVolumesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, pool, host := withCeph(t, v1beta1.EngineRBD, 100*gib, 2*gib)
		for name, nodes := range map[string][]string{"free": nil, "chosen": {node}} {
			if v, err := w.Backend.Create(t.Context(), inmemory.Spec(name, mib, nodes...)); err != nil || v.Node != node || v.Reach != backend.ItsHost || !host.Has(v.ID) {
				t.Errorf("%s: made %+v, %v", name, v, err)
			}
		}
		inmemory.Refused(w.Backend.Create(t.Context(), inmemory.Spec("large", 5*gib)))(t, backend.ErrExhausted, node)
		inmemory.Refused(w.Backend.Create(t.Context(), inmemory.Spec("strange", mib, inmemory.CephPool)))(t, backend.ErrExhausted)
		if has := pool.Volumes(); len(has) > 0 {
			t.Errorf("the Ceph pool has %v", has)
		}
		if c, err := w.Backend.Capacity(t.Context(), ""); err != nil || c.Total != 2*gib {
			t.Errorf("nodes have %+v, %v", c, err)
		}
	})
}

func TestCephPool_WhatIsMadeOfItsVolumesStaysThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, _ := withCeph(t, v1beta1.EngineRBD, 100*gib, 100*gib)
		for _, name := range []string{"v", "w"} {
			check.Got(w.Backend.Create(t.Context(), cephSpec(name, mib)))(t)
		}
		if v, err := w.Backend.Expand(t.Context(), "v", backend.Size{Required: 2 * mib}); err != nil || v.Size != 2*mib || v.Reach != backend.OneHost {
			t.Fatalf("grown to %+v, %v", v, err)
		}
		s, err := w.Backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "v"})
		if err != nil || s.Node != inmemory.CephPool || !s.Shared {
			t.Fatalf("the snapshot is %+v, %v", s, err)
		}
		if o := check.Got(w.Snapshots().Get(t.Context(), string(s.ID), metav1.GetOptions{}))(t); o.Status.Consistency != v1beta1.CrashConsistent {
			t.Errorf("its consistency is %q", o.Status.Consistency)
		}
		if v, err := w.Backend.Restore(t.Context(), "s", cephSpec("restored", 2*mib, node)); err != nil || v.Node != inmemory.CephPool {
			t.Errorf("restored %+v, %v", v, err)
		}
		if v, err := w.Backend.Clone(t.Context(), "v", cephSpec("cloned", 2*mib, node)); err != nil || v.Node != inmemory.CephPool {
			t.Errorf("cloned %+v, %v", v, err)
		}
		_, err = w.Backend.SnapshotGroup(t.Context(), backend.GroupSpec{Name: "g", Sources: []backend.ID{"v", "w"}})
		inmemory.Expect(t, err, backend.ErrUnsupported, "Ceph pool memory", "Ceph 19 (Squid)", "a snapshot of each")
		if all, err := w.Backend.ListSnapshots(t.Context()); err != nil || len(all) != 1 {
			t.Errorf("there are %+v, %v, want s alone", all, err)
		}
		shared := inmemory.SharedSpec("b", mib, "")
		inmemory.Refused(w.Backend.Clone(t.Context(), "v", shared))(t, backend.ErrInvalid, "Ceph pool memory", "class without shared")
		check.Report(t, w.Backend.Delete(t.Context(), "w"))
	})
}

func TestCephPool_IsWaitedFor(t *testing.T) {
	inBubble(t, func(w *world) {
		w.configure(v1beta1.PoolSpec{Name: "memory", Engine: v1beta1.EngineCephFS, Ceph: &v1beta1.CephSpec{}})
		w.Hosts(map[string]int64{node: gib})
		if got := w.Backend.Reach("memory"); got != backend.ManyHosts {
			w.Errorf("a pool that is only configured is reached by %d", got)
		}
		for _, spec := range []backend.VolumeSpec{cephSpec("v", mib), inmemory.Spec("v", mib)} { // there are no other pools
			inmemory.Refused(w.Backend.Create(w.Context(), spec))(w, backend.ErrUnavailable, "Ceph pool memory", "holdfast-ceph-memory")
		}
		inmemory.Refused(w.Backend.Capacity(w.Context(), "memory"))(w, backend.ErrNotFound, "Ceph pool memory")
		w.CephPool(gib, v1beta1.EngineCephFS)
		w.Ready(inmemory.CephPool)
		if v, err := w.Backend.Create(w.Context(), inmemory.Spec("v", mib)); err != nil || v.Node != inmemory.CephPool {
			w.Errorf("of a class without a pool: %+v, %v", v, err)
		}
	})
}

func TestCephPool_ConfigurationSaysWhereAPoolIs(t *testing.T) {
	inBubble(t, func(w *world) {
		w.configure(v1beta1.PoolSpec{Name: "memory"})
		w.CephPool(gib, v1beta1.EngineRBD) // was removed, and its agent is not yet
		w.Hosts(map[string]int64{node: gib})
		if v, err := w.Backend.Create(w.Context(), cephSpec("v", mib)); err != nil || v.Node != node || w.Backend.Reach("memory") != backend.ItsHost {
			w.Errorf("made %+v, %v", v, err)
		}
	})
}

func TestCephPool_VolumesAreUsedWhileItsAgentIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, _ := withCeph(t, v1beta1.EngineRBD, gib, gib)
		check.Got(w.Backend.Create(t.Context(), cephSpec("v", mib)))(t)
		w.Agents[inmemory.CephPool]()
		w.Beat(inmemory.CephPool, 1)
		w.Until("the silence", func() bool { return w.Backend.WhyDown(inmemory.CephPool) != "" })
		v, err := w.Backend.Get(t.Context(), "v")
		if err != nil || v.Access.RBD == nil || !v.Condition.Abnormal {
			t.Errorf("it is %+v, %v", v, err)
		}
		inmemory.Refused(w.Backend.Create(t.Context(), cephSpec("w", mib)))(t, backend.ErrUnavailable, "Ceph pool memory")
		err = w.Backend.Delete(t.Context(), "v")
		inmemory.Expect(t, err, backend.ErrUnavailable, "Ceph pool memory", "agent is back")
	})
}

func TestCephPool_ImageIsAttachedToOneNodeAtATime(t *testing.T) { inBubble(t, attachesOne) }

func TestCephPool_ImageIsAttachedToOneNodeAtATimeByARealAPIServer(t *testing.T) {
	attachesOne(realWorld(t))
}

func attachesOne(w *world) {
	w.Helper()
	w.Change = func(c *cluster.Config) { c.Driver = v1beta1.DriverName }
	w.CephPool(gib, v1beta1.EngineRBD)
	w.Start()
	w.Ready(inmemory.CephPool)
	check.Got(w.Backend.Create(w.Context(), cephSpec("v", mib)))(w)
	attach := func(node string) error { return w.Backend.Attach(w.Context(), "v", node) }
	detach := func(id backend.ID, node string) {
		w.Helper()
		check.Report(w, w.Backend.Detach(w.Context(), id, node))
	}
	var nodes []string
	for i := range 8 {
		nodes = append(nodes, fmt.Sprintf("node-%d", i))
		w.attached("v", nodes[i], "pv-of-a-test")
	}
	results := make(chan error)
	for _, node := range nodes {
		go func() { results <- attach(node) }()
	}
	won := 0
	for range nodes {
		if err := <-results; err == nil {
			won++
		} else {
			inmemory.Expect(w, err, backend.ErrPrecondition, "is attached to node node-")
		}
	}
	first := w.Volume("v").Annotations[v1beta1.AttachedAnnotation]
	if won != 1 || first == "" {
		w.Fatalf("%d of %d have it, recorded is %q", won, len(nodes), first)
	}
	for range 2 {
		inmemory.Expect(w, attach("other"), backend.ErrPrecondition, "node "+first, "node other")
	}
	check.Report(w, attach(first)) // again
	detach("v", "other")
	inmemory.Expect(w, attach("other"), backend.ErrPrecondition, first)
	detach("v", first)
	check.Report(w, attach("other"))      // after it was detached
	if err := attach(first); err != nil { // other has no VolumeAttachment: it was removed by force
		w.Errorf("after its VolumeAttachment was removed: %v", err)
	}
	detach("v", "")
	if at, is := w.Volume("v").Annotations[v1beta1.AttachedAnnotation]; is {
		w.Errorf("it is attached to %q", at)
	}
	detach("gone", "other")
	inmemory.Expect(w, w.Backend.Attach(w.Context(), "gone", "other"), backend.ErrNotFound)
}

func TestCephPool_ImageThatAnotherClientHasOpenIsNotAttached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stranger = "10.0.0.9:0/1"
		w := newWorld(t)
		host := w.CephPool(gib, v1beta1.EngineRBD)
		w.Start()
		w.Ready(inmemory.CephPool)
		w.Puppet(node, gib)
		check.Got(w.Backend.Create(t.Context(), cephSpec("v", mib)))(t)
		attach := func() error { return w.Backend.Attach(t.Context(), "v", node) }
		attached := func() bool { return attach() == nil }
		host.Opens(stranger)
		for range 2 {
			inmemory.Expect(t, attach(), backend.ErrPrecondition, "volume v", "at "+stranger, "node "+node+" has recorded no such client", "rbd status")
		}
		w.status(func(n *v1beta1.StorageNode) {
			n.Status.CephClients = []v1beta1.CephClient{{FSID: "f", ID: "client.1", Address: stranger}}
		})
		w.Until("the client being known as the node's", attached)
		w.status(func(n *v1beta1.StorageNode) { n.Status.CephClients = nil })
		check.OK(t, attach()) // it was seen since the volume was attached
		check.OK(t, w.Backend.Detach(t.Context(), "v", node))
		w.Until("the end of that", func() bool { return w.Volume("v").Status.Attached == nil })
		inmemory.Expect(t, attach(), backend.ErrPrecondition, stranger)
		host.Opens("")
		w.Until("the client having gone", attached)
	})
}

func TestCephPool_AgentThatIsAwayKeepsNoImageFromBeingAttached(t *testing.T) {
	inBubble(t, func(w *world) {
		w.CephPool(gib, v1beta1.EngineRBD)
		w.Start()
		w.Ready(inmemory.CephPool)
		check.Got(w.Backend.Create(w.Context(), cephSpec("v", mib)))(w)
		w.Agents[inmemory.CephPool]()
		began := time.Now()
		check.OK(w, w.Backend.Attach(w.Context(), "v", node))
		if waited := time.Since(began); waited < 10*time.Second {
			w.Errorf("its agent had %s", waited)
		}
		if v := w.Volume("v"); v.Annotations[v1beta1.AttachedAnnotation] != node || v.Status.Attached != nil {
			w.Errorf("%+v", v)
		}
		check.OK(w, w.Backend.Detach(w.Context(), "v", node))
		w.Until("its agent being known to be away", func() bool { return w.Backend.WhyDown(inmemory.CephPool) != "" })
		began = time.Now()
		check.OK(w, w.Backend.Attach(w.Context(), "v", node))
		if waited := time.Since(began); waited > 0 {
			w.Errorf("an agent that is known to be away had %s", waited)
		}
	})
}

// reports has the agent of the node report a condition, until the backend goes by that.
func (w *world) reports(condition string, status metav1.ConditionStatus) (why error) {
	w.Helper()
	nodes := w.Ours.HoldfastV1beta1().StorageNodes()
	w.Until("the report", func() bool { // the agent, which has no clients to report, writes as well
		n, err := nodes.Get(w.Context(), node, metav1.GetOptions{})
		check.OK(w, err)
		meta.SetStatusCondition(&n.Status.Conditions, metav1.Condition{Type: condition, Status: status, Reason: v1beta1.ReasonNoCephClient, Message: "the kernel has no module"})
		if _, err = nodes.UpdateStatus(w.Context(), n, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
			w.Fatal(err)
		}
		why = w.Backend.CanUse(node, v1beta1.ClientLabels[condition])
		return (why == nil) == (status == metav1.ConditionTrue)
	})
	return why
}

func TestCanUse_FollowsWhatTheAgentOfANodeReports(t *testing.T) {
	inBubble(t, func(w *world) {
		w.Hosts(map[string]int64{node: gib})
		for _, status := range []metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionTrue} {
			if why := w.reports(v1beta1.RBDVolumesCondition, status); status == metav1.ConditionFalse {
				inmemory.Expect(w, why, backend.ErrPrecondition, "no module")
			}
			for host, key := range map[string]string{node: v1beta1.CephFSVolumesKey, "new": v1beta1.RBDVolumesKey} {
				if err := w.Backend.CanUse(host, key); err != nil {
					w.Errorf("%s on %s: %v", key, host, err)
				}
			}
		}
	})
}
