package provisioner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/backendtest"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestClaim_ManyAtOnceAreBoundAndTheirDataIsDeletedWithThem(t *testing.T) {
	eachAPI(t, func(t *testing.T, a *api) {
		s := newServer(t, a.client)
		s.start()
		class := a.class(s.config.Name, nil)
		many := 100
		if a.config == nil {
			many = 20 // which takes as long as 100 on a real server
		}
		begun := time.Now()
		for i := range many {
			a.claim(fmt.Sprintf("data-%d", i), class, s.config.Name)
		}
		for i := range many {
			if pv := a.bound(fmt.Sprintf("data-%d", i)); pv.Spec.NFS == nil || len(pv.Finalizers) == 0 {
				t.Errorf("it is %+v", pv)
			}
		}
		t.Logf("%d claims were bound within %s", many, time.Since(begun))
		if n := len(s.disk.volumes()); n != many {
			t.Errorf("%d volumes were made", n)
		}
		wait.Until(t, "the journal is empty", func() bool { return len(s.running.journal.all()) == 0 })
		for i := range many {
			a.deleteClaim(fmt.Sprintf("data-%d", i))
		}
		a.nothingLeft(s)
	})
}

func TestClaim_DeletedDuringProvisioningLeaksNothing(t *testing.T) {
	for name, ends := range map[string]error{
		"and it is made": nil, "and it goes on": backend.ErrBusy,
		"with no answer": backend.ErrUnavailable, "and there is no room": backend.ErrExhausted,
	} {
		t.Run(name, func(t *testing.T) {
			eachAPI(t, func(t *testing.T, a *api) {
				s := newServer(t, a.client)
				class := a.class(s.config.Name, nil)
				reached, goOn := make(chan struct{}), make(chan struct{})
				var first atomic.Bool
				s.disk.hook(func(_ context.Context, call string) error {
					if call != "created" || !first.CompareAndSwap(false, true) {
						return nil
					}
					close(reached)
					<-goOn
					return ends
				})
				s.start()
				a.claim("data", class, s.config.Name)
				<-reached
				a.deleteClaim("data")
				a.claimGone("data")
				close(goOn)
				a.nothingLeft(s)
			})
		})
	}
}

func TestClaim_FailureIsRetriedUntilItSucceeds(t *testing.T) {
	a := inMemory(t)
	s := newServer(t, a.client)
	s.config.RetryFirst, s.config.RetryLast = time.Millisecond, 5*time.Millisecond
	var refused atomic.Int32
	s.config.Servers = servers{isDefault: true, refusal: func() error {
		if refused.Add(1) <= 3 {
			return backend.ErrUnavailable
		}
		return nil
	}}
	const often = 20 // the library gives up after 15 by default
	s.disk.hook(func(_ context.Context, call string) error {
		if n := s.disk.called(call); (call == "create" || call == "delete") && n <= often {
			return fmt.Errorf("%w: this was try %d", backend.ErrUnavailable, n)
		}
		return nil
	})
	s.start()
	class := a.class(s.config.Name, nil)
	a.claim("data", class, s.config.Name)
	a.bound("data")
	a.deleteClaim("data")
	a.nothingLeft(s)
	if made, gone := s.disk.called("create"), s.disk.called("delete"); made <= often || gone <= often {
		t.Errorf("it was made at try %d and deleted at try %d", made, gone)
	}
}

func TestClaim_WaitingForCapacityIsProvisionedWhenAVolumeIsDeletedUnlessItIsDeleted(t *testing.T) {
	a := inMemory(t)
	s := newServer(t, a.client)
	s.disk.Memory = backendtest.NewMemorySized(gib)
	s.config.RetryFirst, s.config.RetryLast = patience, patience // it is not found by trying again
	s.start()
	class := a.class(s.config.Name, nil)
	a.claim("first", class, s.config.Name)
	a.bound("first")
	a.claim("second", class, s.config.Name)
	a.claim("third", class, s.config.Name)
	wait.Until(t, "both are refused", func() bool { return s.running.waiting.Len() == 2 })
	a.deleteClaim("third")
	a.claimGone("third")
	a.deleteClaim("first")
	a.bound("second")
}

func TestClaim_FaultyOnesGetEventsAndTheOthersAreServed(t *testing.T) {
	a := inMemory(t)
	s := newServer(t, a.client)
	s.start()
	bad, good := a.class(s.config.Name, map[string]string{"gid": "root"}), a.class(s.config.Name, nil)
	a.claim("bad", bad, s.config.Name)
	a.claim("good", good, s.config.Name)
	a.bound("good")
	wait.Until(a.t, "the fault is reported", func() bool { return strings.Contains(a.events("bad"), `gid="root"`) })
	if a.isBound("bad") || len(s.disk.volumes()) != 1 {
		t.Errorf("volumes %v", s.disk.volumes())
	}
}

// events are the messages about a claim.
func (a *api) events(claim string) string {
	all, err := a.client.CoreV1().Events(a.namespace).List(a.t.Context(), metav1.ListOptions{})
	if err != nil {
		return ""
	}
	var said strings.Builder
	for _, e := range all.Items {
		if e.InvolvedObject.Name == claim {
			said.WriteString(e.Message + "\n")
		}
	}
	return said.String()
}

func TestLease_TwoProcessesOfOneServerTakeTurns(t *testing.T) {
	hostfs.NotInGate(t, "has a Lease of a second in real time")
	eachAPI(t, func(t *testing.T, a *api) {
		s := newServer(t, a.client)
		twin := newServer(t, a.client)
		twin.config.Name, twin.config.StateDir = s.config.Name, t.TempDir()
		one := check.Got(New(s.config))(t)
		other := check.Got(New(twin.config))(t)
		s.run(one)
		wait.Until(a.t, "one has the Lease", one.gate.isOpen)
		twin.run(other)
		class := a.class(s.config.Name, nil)
		a.claim("first", class, s.config.Name)
		a.bound("first")
		if len(twin.disk.volumes()) != 0 {
			t.Error("both made it")
		}
		s.stop()
		a.claim("second", class, s.config.Name)
		a.bound("second")
		if len(s.disk.volumes()) != 1 || len(twin.disk.volumes()) != 1 {
			t.Errorf("they have %v and %v", s.disk.volumes(), twin.disk.volumes())
		}
		a.deleteClaim("first") // whose data the twin does not have
		wait.Until(a.t, "the volume is reported", func() bool { return len(twin.events.With("LeftAlone")) == 1 })
		if n := len(a.persistentVolumes(s.config.Name)); n != 2 || len(s.disk.volumes()) != 1 {
			t.Errorf("%d PersistentVolumes, volumes %v", n, s.disk.volumes())
		}
	})
}

func TestClaim_TakenByTwoServersLeavesOneVolume(t *testing.T) {
	eachAPI(t, func(t *testing.T, a *api) {
		s, rival := newServer(t, a.client), newServer(t, a.client)
		rival.config.Name, rival.config.Identity = s.config.Name, "storage/rival"
		both := make(chan struct{})
		var arrived atomic.Int32
		meet := func(_ context.Context, call string) error {
			if call == "created" {
				if arrived.Add(1) == 2 {
					close(both)
				}
				<-both
			}
			return nil
		}
		s.disk.hook(meet)
		rival.disk.hook(meet)
		one := check.Got(New(s.config))(t)
		other := check.Got(New(rival.config))(t)
		s.run(one)
		rival.run(other)
		wait.Until(a.t, "both have their Lease", func() bool { return one.gate.isOpen() && other.gate.isOpen() })
		class := a.class(s.config.Name, nil)
		a.claim("data", class, s.config.Name)
		a.bound("data")
		wait.Until(a.t, "one volume is left", func() bool { return len(s.disk.volumes())+len(rival.disk.volumes()) == 1 })
		pv := a.bound("data")
		owner := map[string]*server{"storage/main": s, "storage/rival": rival}[pv.Annotations[v1beta1.NFSServerAnnotation]]
		if len(owner.disk.volumes()) != 1 {
			t.Error("the volume that is left is the other one")
		}
		a.deleteClaim("data")
		a.nothingLeft(s)
		a.nothingLeft(rival)
	})
}

func TestLease_LossEndsTheTermAndNotTheProcess(t *testing.T) {
	hostfs.NotInGate(t, "has a Lease of a second in real time")
	a := realServer(t)
	s := newServer(t, a.client)
	p := s.start()
	wait.Until(a.t, "it has the Lease", p.gate.isOpen)
	class := a.class(s.config.Name, nil)
	leases := a.client.CoordinationV1().Leases(realapi.Namespace)
	thief := "another process"
	wait.Until(a.t, "it is taken", func() bool {
		lease, err := leases.Get(t.Context(), p.leaseName(), metav1.GetOptions{})
		if err != nil {
			return false
		}
		lease = lease.DeepCopy()
		now := metav1.NowMicro()
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = &thief, &now
		_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
		return err == nil
	})
	wait.Until(a.t, "it rests", func() bool { return !p.gate.isOpen() })
	a.claim("data", class, s.config.Name)
	a.bound("data") // when it has run out
	if !p.gate.isOpen() {
		t.Error("another process has the Lease")
	}
	a.deleteClaim("data")
	a.nothingLeft(s)
}

// nodeOf is where the pod of a claim is to run. A provisioner that cannot provision for that node clears the selection.
const nodeOf = "volume.kubernetes.io/selected-node"

// choose says what the scheduler says of the claim data, which waits for its pod.
func (a *api) choose(node string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, nodeOf, node)
	_, err := a.client.CoreV1().PersistentVolumeClaims(a.namespace).Patch(a.t.Context(), "data", types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// The scheduler may choose again before this process has its own answer.
func TestClaim_OfAPodIsProvisionedThoughItsNodeIsSelectedAgain(t *testing.T) {
	a := realServer(t)
	var p *Provisioner
	nodes := make(chan string, 1)
	again := func(what string) error {
		if !strings.HasPrefix(what, "after PUT ") || !strings.HasSuffix(what, "/persistentvolumeclaims/data") {
			return nil
		}
		node := <-nodes
		seen := func() bool {
			c, there, _ := p.claims.GetStore().GetByKey(a.namespace + "/data") // a cache has no errors
			return there && c.(*core.PersistentVolumeClaim).Annotations[nodeOf] == node
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := errors.Join(a.choose(node), realapi.Until(ctx, seen)); err != nil {
			t.Errorf("choosing again: %v", err)
		}
		return nil
	}
	s := newServer(t, a.tap(again))
	p = check.Got(New(s.config))(t)
	s.run(p)
	later := storage.VolumeBindingWaitForFirstConsumer
	class := a.class(s.config.Name, nil, func(c *storage.StorageClass) { c.VolumeBindingMode = &later })
	all, err := a.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(all.Items) == 0 {
		t.Fatalf("%d nodes, %v", len(all.Items), err)
	}
	a.claim("data", class, s.config.Name)
	check.OK(t, a.choose("gone")) // whose pod has no node
	nodes <- all.Items[0].Name
	a.bound("data")
	a.deleteClaim("data")
	a.nothingLeft(s)
}

func TestClaim_PolicyChangedToRetainKeepsVolumeAndData(t *testing.T) {
	a := realServer(t)
	s := newServer(t, a.client)
	s.start()
	class := a.class(s.config.Name, nil)
	a.claim("data", class, s.config.Name)
	pv := a.bound("data")
	retain := []byte(`{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`)
	check.Got(a.client.CoreV1().PersistentVolumes().Patch(t.Context(), pv.Name, types.MergePatchType, retain, metav1.PatchOptions{}))(t)
	a.deleteClaim("data")
	wait.Until(a.t, "it may be deleted", func() bool {
		v, err := a.client.CoreV1().PersistentVolumes().Get(t.Context(), pv.Name, metav1.GetOptions{})
		return err == nil && v.Status.Phase == core.VolumeReleased && len(v.Finalizers) <= 1
	})
	check.OK(t, a.client.CoreV1().PersistentVolumes().Delete(t.Context(), pv.Name, metav1.DeleteOptions{}))
	wait.Until(a.t, "it is gone", func() bool { return len(a.persistentVolumes(s.config.Name)) == 0 })
	s.stop()
	again := s.start()
	wait.Until(a.t, "it works again", again.gate.isOpen)
	if len(s.disk.volumes()) != 1 {
		t.Error("its data is gone")
	}
}

// TestProvision_ContinuesWhenTheAPIServerReturns restarts it in the midst of claims that come and go.
func TestProvision_ContinuesWhenTheAPIServerReturns(t *testing.T) {
	a := realServer(t)
	s := newServer(t, a.client)
	p := s.start()
	class := a.class(s.config.Name, nil)
	const many = 20
	for i := range many {
		a.claim(fmt.Sprintf("before-%d", i), class, s.config.Name)
	}
	restart := exec.CommandContext(t.Context(), "go", "run", ".", "-name", os.Getenv(realapi.Variable), "restart", "kube-apiserver")
	restart.Dir = "../test/cluster"
	if out, err := restart.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	wait.Until(a.t, "it has the Lease", p.gate.isOpen)
	for i := range many {
		a.claim(fmt.Sprintf("after-%d", i), class, s.config.Name)
	}
	for i := range many {
		a.bound(fmt.Sprintf("before-%d", i))
		a.bound(fmt.Sprintf("after-%d", i))
	}
	for i := range many {
		a.deleteClaim(fmt.Sprintf("before-%d", i))
		a.deleteClaim(fmt.Sprintf("after-%d", i))
	}
	a.nothingLeft(s)
}
