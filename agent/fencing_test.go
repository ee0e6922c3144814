package agent

import (
	"context"
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
)

// kernel is that of a node, with its clients of Ceph clusters.
type kernel struct {
	mu    sync.Mutex
	has   []v1beta1.CephClient
	freed []string // the clients that it was to release
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

func cephClient(id string) v1beta1.CephClient {
	return v1beta1.CephClient{FSID: "f", ID: id, Address: "10.0.0.5:0/1" + v1beta1.CephAddress(strings.TrimPrefix(id, "client.")), BootID: "b"}
}

func (r *rig) patchNode(spec string, part ...string) {
	r.Helper()
	if _, err := r.nodes.Patch(r.Context(), node, types.MergePatchType, []byte(spec), metav1.PatchOptions{}, part...); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) status() v1beta1.StorageNodeStatus {
	n, err := r.nodes.Get(r.Context(), node, metav1.GetOptions{})
	if err != nil {
		return v1beta1.StorageNodeStatus{}
	}
	return n.Status
}

func (r *rig) recorded() (ids []string) {
	for _, c := range r.status().CephClients {
		ids = append(ids, c.ID)
	}
	return ids
}

func TestCephClients_AreRecordedUntilTheKernelHasThemNoMore(t *testing.T) {
	r, k := newRig(t), &kernel{}
	r.change = func(c *Config) { c.CephHost = k }
	r.begin()
	k.set(cephClient("client.1"), cephClient("client.2"))
	for _, id := range []string{"client.1", "client.2", "client.1"} {
		if err := r.agent.RecordCephClient(t.Context(), cephClient(id)); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.recorded(); !slices.Equal(got, []string{"client.1", "client.2"}) {
		t.Fatalf("recorded are %v", got)
	}
	r.ask("grown", func(*v1beta1.Volume) {})
	r.await("a report of another volume", func() bool { s := r.status(); return len(s.Pools) == 1 && s.Pools[0].Volumes == 1 })
	if got := r.recorded(); !slices.Equal(got, []string{"client.1", "client.2"}) {
		t.Errorf("after a report, recorded are %v", got)
	}
	r.restart()
	k.set(cephClient("client.2"))
	r.await("the end of one client in the record", func() bool { return slices.Equal(r.recorded(), []string{"client.2"}) })
	r.restart()
	if err := r.agent.RecordCephClient(t.Context(), cephClient("client.2")); err != nil {
		t.Fatal(err)
	}
	if err := r.nodes.Delete(t.Context(), node, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.await("the record in a StorageNode that was deleted", func() bool { return slices.Equal(r.recorded(), []string{"client.2"}) })
	if k.wasFreed("client.2") {
		t.Error("a client was freed without a fence")
	}
}

func TestCephClients_OfANodeThatIsShutOutAreNotUsed(t *testing.T) {
	r, k := newRig(t), &kernel{}
	r.change = func(c *Config) { c.CephHost = k }
	r.begin()
	k.set(cephClient("client.1"))
	if err := r.agent.RecordCephClient(t.Context(), cephClient("client.1")); err != nil {
		t.Fatal(err)
	}
	r.patchNode(`{"spec":{"fence":{"reason":"NodeGone","requestedAt":"2026-11-25T12:00:00.000000Z"}}}`)
	err := r.agent.RecordCephClient(t.Context(), cephClient("client.2"))
	if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "shut out of all Ceph clusters since 2026-11-25T12:00:00Z (NodeGone)") {
		t.Errorf("a new client: %v", err)
	}
	if got := r.recorded(); !slices.Equal(got, []string{"client.1"}) {
		t.Errorf("recorded are %v", got)
	}
	if k.wasFreed("client.1") {
		t.Error("it was freed before it was shut out")
	}
	r.patchNode(`{"status":{"conditions":[{"type":"Fenced","status":"True","reason":"Fenced","message":"","lastTransitionTime":"2026-11-25T12:00:01Z"}]}}`, "status")
	r.await("the release", func() bool { return k.wasFreed("client.1") })
	k.set()
	r.await("an empty record", func() bool { return len(r.recorded()) == 0 })
	r.patchNode(`{"spec":{"fence":null}}`)
	if err := r.agent.RecordCephClient(t.Context(), cephClient("client.2")); err != nil {
		t.Errorf("once it is let in again: %v", err)
	}
}

// fencing is a host whose cluster can shut out clients.
type fencing struct {
	*host
	mu      sync.Mutex
	blocked map[string]bool
	fails   error
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
	return f.edit(addresses, true)
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

func blocklist(entries ...string) string {
	return fmt.Sprintf(`{"spec":{"blocklist":[%s]}}`, strings.Join(entries, ","))
}

func entry(node string, addresses ...string) string {
	return fmt.Sprintf(`{"node":%q,"addresses":["%s"],"requestedAt":"2026-11-25T12:00:00.000000Z"}`, node, strings.Join(addresses, `","`))
}

func TestBlocklist_IsWhatTheSpecSaysAndOnlyWhatIsConfirmedIsReported(t *testing.T) {
	r := newRig(t)
	f := &fencing{host: r.host}
	f.set(errors.New("client.holdfast may not do this"), "10.9.9.9:0/9", "10.0.0.5:0/1") // one is listed, and not all OSDs know it
	r.change = func(c *Config) { c.Backend = f }
	r.begin()
	r.patchNode(blocklist(entry("a", "10.0.0.5:0/1", "10.0.0.5:0/2"), entry("b", "10.0.0.6:0/1")))
	r.await("the reason", func() bool {
		s := r.status()
		return len(s.Blocklist) == 2 && strings.Contains(s.Blocklist[0].Message, "may not do this")
	})
	if s := r.status(); len(s.Blocklist[0].Addresses) != 0 {
		t.Errorf("reported is %v", s.Blocklist)
	}
	f.set(nil, "10.9.9.9:0/9")
	confirmed := func() bool {
		s := r.status()
		e := s.BlocklistOf("a")
		return e != nil && len(e.Addresses) == 2 && e.Message == ""
	}
	r.await("the confirmation", confirmed)
	f.set(nil, "10.9.9.9:0/9") // an administrator has removed them
	r.await("the clients being shut out again", func() bool { return f.has() == 4 })
	r.stop()
	r.patchNode(blocklist(entry("b", "10.0.0.6:0/1")))
	r.begin()
	r.await("the clients of a being let in by the next agent", func() bool { s := r.status(); return f.has() == 2 && s.BlocklistOf("a") == nil })
	f.set(errors.New("no quorum"), "10.9.9.9:0/9", "10.0.0.6:0/1")
	r.patchNode(blocklist())
	r.await("the reason why b is not let in", func() bool {
		s := r.status()
		e := s.BlocklistOf("b")
		return e != nil && len(e.Addresses) == 1 && strings.Contains(e.Message, "not let in again: no quorum")
	})
	f.set(nil, "10.9.9.9:0/9", "10.0.0.6:0/1")
	r.await("the end of the report", func() bool { return len(r.status().Blocklist) == 0 && f.has() == 1 })
}
