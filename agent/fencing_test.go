package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// kernel is that of a node, with its clients of Ceph clusters.
type kernel struct {
	mu     sync.Mutex
	has    []v1beta1.CephClient
	images []string // the volumes that it has a device of
	mounts []string // those that it has a mount of
	freed  []string // the clients that it was to release
	fails  error    // of InUse
}

func (k *kernel) Gone(_ context.Context, c v1beta1.CephClient) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !slices.Contains(k.has, c), nil
}

func (k *kernel) Release(_ context.Context, c v1beta1.CephClient) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.freed = append(k.freed, c.ID)
	return nil
}

func (k *kernel) InUse(_ context.Context, recorded []string) (has []string, clients []v1beta1.CephClient, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fails != nil {
		return nil, nil, k.fails
	}
	has = slices.Concat(k.images, k.mounts)
	if slices.ContainsFunc(has, func(v string) bool { return !slices.Contains(recorded, v) }) {
		clients = k.has
	}
	return has, clients, nil
}

func (k *kernel) answer(fails error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fails = fails
}

func (k *kernel) use(images, mounts []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.images, k.mounts = images, mounts
}

func (k *kernel) set(has ...v1beta1.CephClient) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.has = has
}

func (k *kernel) wasFreed(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Contains(k.freed, id)
}

// withKernel runs a test with an agent of a node with such a kernel.
func withKernel(t *testing.T, test func(*rig, *kernel)) {
	inBubble(t, func(r *rig) {
		k := &kernel{}
		r.change = func(c *Config) { c.CephHost = k }
		test(r.begin(), k)
	})
}

func cephClient(id string) v1beta1.CephClient {
	return v1beta1.CephClient{FSID: "f", ID: id, Address: "10.0.0.5:0/1" + v1beta1.CephAddress(strings.TrimPrefix(id, "client.")), BootID: "b"}
}

func (r *rig) patchNode(spec string, part ...string) {
	r.Helper()
	check.Got(r.nodes.Patch(r.Context(), node, types.MergePatchType, []byte(spec), metav1.PatchOptions{}, part...))(r)
}

func (r *rig) status() v1beta1.StorageNodeStatus {
	n, err := r.nodes.Get(r.Context(), node, metav1.GetOptions{})
	if err != nil {
		return v1beta1.StorageNodeStatus{}
	}
	return n.Status
}

// blocklistOf is what is reported of the clients of a node, or nil.
func (r *rig) blocklistOf(name string) *v1beta1.BlocklistEntry {
	s := r.status()
	return s.BlocklistOf(name)
}

func (r *rig) recorded() (ids []string) {
	for _, c := range r.status().CephClients {
		ids = append(ids, c.ID)
	}
	return ids
}

func TestCephClients_AreRecordedUntilTheKernelHasThemNoMore(t *testing.T) {
	withKernel(t, func(r *rig, k *kernel) {
		k.set(cephClient("client.1"), cephClient("client.2"))
		for _, id := range []string{"client.1", "client.2", "client.1"} {
			check.OK(r, r.agent.RecordCephClient(r.Context(), "v", cephClient(id)))
		}
		if got := r.recorded(); !slices.Equal(got, []string{"client.1", "client.2"}) {
			r.Fatalf("recorded are %v", got)
		}
		r.ask("grown", func(*v1beta1.Volume) {})
		wait.Until(r, "a report of another volume", func() bool { s := r.status(); return len(s.Pools) == 1 && s.Pools[0].Volumes == 1 })
		if got := r.recorded(); !slices.Equal(got, []string{"client.1", "client.2"}) {
			r.Errorf("after a report, recorded are %v", got)
		}
		r.restart()
		k.set(cephClient("client.2"))
		wait.Until(r, "the end of one client in the record", func() bool { return slices.Equal(r.recorded(), []string{"client.2"}) })
		r.restart()
		check.OK(r, r.agent.RecordCephClient(r.Context(), "v", cephClient("client.2")))
		check.OK(r, r.nodes.Delete(r.Context(), node, metav1.DeleteOptions{}))
		wait.Until(r, "the record in a StorageNode that was deleted", func() bool { return slices.Equal(r.recorded(), []string{"client.2"}) })
		if k.wasFreed("client.2") {
			r.Error("a client was freed without a fence")
		}
	})
}

func TestCephVolumes_AreRecordedUntilTheKernelHasThemNoMore(t *testing.T) {
	withKernel(t, func(r *rig, k *kernel) {
		k.set(cephClient("client.1"))
		k.use([]string{"image"}, []string{"files"})
		for _, id := range []backend.ID{"image", "files", "image"} {
			check.OK(r, r.agent.RecordCephClient(r.Context(), id, cephClient("client.1")))
		}
		recorded := func(volumes ...string) func() bool {
			return func() bool {
				got := r.status().CephVolumes
				slices.Sort(got)
				return slices.Equal(got, volumes)
			}
		}
		if !recorded("files", "image")() {
			r.Fatalf("recorded are %v", r.status().CephVolumes)
		}
		k.use([]string{"image"}, nil)
		r.agent.Released("files")
		wait.Until(r, "the end of one that was unmounted", recorded("image"))
		k.use(nil, []string{"files"})
		check.OK(r, r.agent.RecordCephClient(r.Context(), "files", cephClient("client.1")))
		r.agent.Released("image")
		wait.Until(r, "the end of one that was unmapped", recorded("files"))

		// What no process has reported is found by the next survey.
		k.set(cephClient("client.1"), cephClient("client.3"))
		k.use(nil, []string{"files", "found"})
		wait.Until(r, "the record of a mount that was found", func() bool {
			return recorded("files", "found")() && slices.Equal(r.recorded(), []string{"client.1", "client.3"})
		})
		k.set(cephClient("client.1"))
		k.use(nil, []string{"files"})
		wait.Until(r, "its end", func() bool { return recorded("files")() && slices.Equal(r.recorded(), []string{"client.1"}) })

		// The object goes while no agent runs that would know.
		r.stop()
		check.OK(r, r.nodes.Delete(r.Context(), node, metav1.DeleteOptions{}))
		k.answer(errors.New("the cluster of a mount does not answer"))
		r.begin()
		err := r.agent.RecordCephClient(r.Context(), "image", cephClient("client.2"))
		if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "does not answer") || len(r.recorded()) > 0 {
			r.Errorf("a client beside those that are not known: %v, recorded are %v", err, r.recorded())
		}
		k.answer(nil)
		wait.Until(r, "the record of what the kernel has, in an object that was made again", func() bool {
			return recorded("files")() && slices.Equal(r.recorded(), []string{"client.1"})
		})
		// An older state of the object is put back, in which another client had the volume.
		r.stop()
		older, err := json.Marshal(map[string]any{"status": map[string]any{"cephClients": []v1beta1.CephClient{cephClient("client.0")}, "cephVolumes": []string{"files"}}})
		check.OK(r, err)
		r.patchOther(node, string(older), "status")
		r.begin()
		wait.Until(r, "the record of the client that the kernel has in truth", func() bool { return slices.Equal(r.recorded(), []string{"client.1"}) })
		k.use(nil, nil)
		k.set()
		r.agent.Released("files")
		wait.Until(r, "the end of the record", func() bool { return recorded()() && len(r.recorded()) == 0 })
	})
}

func TestCephClients_OfANodeThatIsShutOutAreNotUsed(t *testing.T) {
	withKernel(t, func(r *rig, k *kernel) {
		k.set(cephClient("client.1"))
		check.OK(r, r.agent.RecordCephClient(r.Context(), "v", cephClient("client.1")))
		isOut := func(dead, fails bool) {
			r.Helper()
			if is, err := r.agent.CephShutOut(r.Context()); is != dead || (err != nil) != fails || fails && !errors.Is(err, backend.ErrUnavailable) {
				r.Errorf("it is shut out: %t, %v, want %t and an error %t", is, err, dead, fails)
			}
		}
		isOut(false, false)
		r.patchNode(`{"spec":{"fence":{"reason":"NodeGone","requestedAt":"2026-11-25T12:00:00.000000Z"}}}`)
		isOut(false, true) // at once, whatever the cache has
		err := r.agent.RecordCephClient(r.Context(), "v", cephClient("client.2"))
		if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "shut out of all Ceph clusters since 2026-11-25T12:00:00Z (NodeGone)") {
			r.Errorf("a new client: %v", err)
		}
		if got := r.recorded(); !slices.Equal(got, []string{"client.1"}) {
			r.Errorf("recorded are %v", got)
		}
		k.set(cephClient("client.1"), cephClient("client.2"))
		k.use(nil, []string{"v", "refused"}) // and not unmounted yet
		check.OK(r, r.agent.pruneCephClients(r.Context()))
		if got := r.recorded(); !slices.Equal(got, []string{"client.1"}) {
			r.Errorf("with a refused client that is still there, recorded are %v", got)
		}
		k.set(cephClient("client.1"))
		k.use(nil, nil)
		if k.wasFreed("client.1") {
			r.Error("it was freed before it was shut out")
		}
		r.patchNode(`{"status":{"conditions":[{"type":"Fenced","status":"True","reason":"Fenced","message":"","lastTransitionTime":"2026-11-25T12:00:01Z"}]}}`, "status")
		isOut(true, true)
		wait.Until(r, "the release", func() bool { return k.wasFreed("client.1") })
		k.set()
		wait.Until(r, "an empty record", func() bool { return len(r.recorded()) == 0 })
		r.patchNode(`{"spec":{"fence":null}}`)
		isOut(false, false)
		check.Report(r, r.agent.RecordCephClient(r.Context(), "v", cephClient("client.2"))) // once it is let in again
	})
}

// fencing is a host whose cluster can shut out clients.
type fencing struct {
	*host
	mu      sync.Mutex
	blocked map[string]bool
	fails   error
	late    error  // of Fence, when it has shut them out and not all OSDs know that
	before  func() // Fence does anything
}

func (f *fencing) edit(addresses []string, blocked bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails != nil {
		return f.fails
	}
	for _, a := range addresses {
		if blocked {
			f.blocked[a] = true
		} else {
			delete(f.blocked, a)
		}
	}
	return nil
}

func (f *fencing) Fence(_ context.Context, addresses []string) error {
	if f.before != nil {
		f.before()
	}
	if err := f.edit(addresses, true); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.late
}

func (f *fencing) Unfence(_ context.Context, addresses []string) error {
	return f.edit(addresses, false)
}

func (f *fencing) Fenced(context.Context) (all []string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for a := range f.blocked {
		all = append(all, a)
	}
	return all, nil
}

func (f *fencing) set(fails error, blocked ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fails, f.blocked = fails, map[string]bool{}
	for _, a := range blocked {
		f.blocked[a] = true
	}
}

func (f *fencing) has() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.blocked)
}

// fencing has the agent's pool in a Ceph cluster that answers, and shuts none out.
func (r *rig) fencing() *fencing {
	f := &fencing{host: r.host, blocked: map[string]bool{}}
	r.change = func(c *Config) { c.Backend = f }
	return f
}

func blocklist(entries ...string) string {
	return fmt.Sprintf(`{"spec":{"blocklist":[%s]}}`, strings.Join(entries, ","))
}

func entry(node string, addresses ...string) string {
	return fmt.Sprintf(`{"node":%q,"addresses":["%s"],"requestedAt":"2026-11-25T12:00:00.000000Z"}`, node, strings.Join(addresses, `","`))
}

func TestBlocklist_IsWhatTheSpecSaysAndOnlyWhatIsConfirmedIsReported(t *testing.T) {
	inBubble(t, func(r *rig) {
		f := r.fencing()
		f.set(errors.New("client.holdfast may not do this"), "10.9.9.9:0/9", "10.0.0.5:0/1") // one is listed, and not all OSDs know it
		r.begin()
		r.patchNode(blocklist(entry("a", "10.0.0.5:0/1", "10.0.0.5:0/2"), entry("b", "10.0.0.6:0/1")))
		wait.Until(r, "the reason", func() bool {
			s := r.status()
			return len(s.Blocklist) == 2 && strings.Contains(s.Blocklist[0].Message, "may not do this")
		})
		if s := r.status(); len(s.Blocklist[0].Addresses) != 0 {
			r.Errorf("reported is %v", s.Blocklist)
		}
		f.set(nil, "10.9.9.9:0/9")
		at := "12:00"
		confirmed := func() bool {
			e := r.blocklistOf("a")
			return e != nil && len(e.Addresses) == 2 && e.Message == "" && e.RequestedAt != nil && e.RequestedAt.UTC().Format("15:04") == at
		}
		wait.Until(r, "the confirmation", confirmed)
		at = "13:00"
		r.patchNode(blocklist(strings.Replace(entry("a", "10.0.0.5:0/1", "10.0.0.5:0/2"), "12:00", at, 1), entry("b", "10.0.0.6:0/1")))
		wait.Until(r, "an answer to the request of "+at, confirmed)
		r.expectEvent("ClientsShutOut", "2 clients of node a ")
		f.set(nil, "10.9.9.9:0/9") // an administrator has removed them
		wait.Until(r, "the clients being shut out again", func() bool { return f.has() == 4 })
		r.stop()
		r.patchNode(blocklist(entry("b", "10.0.0.6:0/1")))
		r.begin()
		wait.Until(r, "the clients of a being let in by the next agent", func() bool { return f.has() == 2 && r.blocklistOf("a") == nil })
		r.expectEvent("ClientsLetIn", "2 clients of node a ")
		f.set(errors.New("no quorum"), "10.9.9.9:0/9", "10.0.0.6:0/1")
		r.patchNode(blocklist())
		wait.Until(r, "the reason why b is not let in", func() bool {
			e := r.blocklistOf("b")
			return e != nil && len(e.Addresses) == 1 && strings.Contains(e.Message, "not let in again: no quorum")
		})
		f.set(nil, "10.9.9.9:0/9", "10.0.0.6:0/1")
		wait.Until(r, "the end of the report", func() bool { return len(r.status().Blocklist) == 0 && f.has() == 1 })
		r.expectEvent("ClientsLetIn", "1 clients of node b ")
	})
}

func TestBlocklist_WhatWasNeverConfirmedIsLetInAgain(t *testing.T) {
	inBubble(t, func(r *rig) {
		f := r.fencing()
		f.late = errors.New("placement group 1.7 does not answer")
		f.before = func() { // a process that is killed from here on has reported it
			if e := r.blocklistOf("a"); e == nil || len(e.Unconfirmed) != 1 {
				r.Errorf("when a client is shut out, reported is %+v", e)
			}
		}
		r.begin()
		r.patchNode(blocklist(entry("a", "10.0.0.5:0/1")))
		wait.Until(r, "the reason", func() bool {
			e := r.blocklistOf("a")
			return f.has() == 1 && e != nil && len(e.Addresses) == 0 && strings.Contains(e.Message, "1.7 does not answer")
		})
		r.stop()
		r.patchNode(blocklist())
		r.begin()
		wait.Until(r, "the client being let in by the next agent", func() bool { return f.has() == 0 && len(r.status().Blocklist) == 0 })
	})
}

func TestBlocklist_WhatIsToExpireStaysInTheClusterAndIsReportedNoMore(t *testing.T) {
	inBubble(t, func(r *rig) {
		f := r.fencing()
		r.begin()
		r.patchNode(blocklist(entry("gone", "10.0.0.5:0/1"), entry("b", "10.0.0.6:0/1")))
		wait.Until(r, "the confirmation", func() bool { return f.has() == 2 && len(r.status().Blocklist) == 2 })
		r.patchNode(blocklist(strings.Replace(entry("gone", "10.0.0.5:0/1"), "{", `{"expire":true,`, 1), entry("b", "10.0.0.6:0/1")))
		wait.Until(r, "the end of the report", func() bool { return r.blocklistOf("gone") == nil })
		r.patchNode(blocklist(entry("c", "10.0.0.7:0/1")))
		wait.Until(r, "the other being let in", func() bool { return r.blocklistOf("b") == nil && r.blocklistOf("c") != nil })
		if listed, err := f.Fenced(r.Context()); err != nil || !slices.Contains(listed, "10.0.0.5:0/1") || slices.Contains(listed, "10.0.0.6:0/1") {
			r.Errorf("shut out are %v, %v", listed, err)
		}
	})
}
