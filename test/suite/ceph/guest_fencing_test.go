//go:build ceph

package ceph

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// fence shuts a client out as the agent of the pool does.
func (w world) fence(t *testing.T, address string) {
	t.Helper()
	c := check.Got(ceph.New(ceph.Config{Monitors: []string{"v2:" + w.Monitor}, FSID: w.FSID, Pool: pool, User: "pool", Key: ceph.Key(w.Keys["pool"])}, slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(func() {
		if err := c.Close(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	check.OK(t, ceph.BlocklistOf(c).Fence(t.Context(), []string{address}))
}

// evict shuts out a client of CephFS, whose address a kernel without debugfs does not show: the metadata server knows it.
func (w world) evict(t *testing.T, client string) {
	t.Helper()
	request := check.Got(http.NewRequestWithContext(t.Context(), http.MethodPost, w.Evicts+strings.TrimPrefix(client, "client."), nil))(t)
	response := check.Got(http.DefaultClient.Do(request))(t)
	defer response.Body.Close()
	if said := check.Got(io.ReadAll(response.Body))(t); response.StatusCode != http.StatusOK {
		t.Fatalf("evicting %s: %s", client, said)
	}
}

func TestGuestFence_KernelThatIsShutOutWritesNothingMore(t *testing.T) {
	ctx, w := onGuest(t)
	for range 8 { // an OSD that does not know it yet is found only by chance
		w.shutOutAndRelease(ctx, t)
	}
}

// keepsWhatIsBound sees that a device whose node a pod has is not released: the pod would reach the next one of its number.
func (w world) keepsWhatIsBound(ctx context.Context, t *testing.T, d *nodeops.RBDDevice) {
	t.Helper()
	target := filepath.Join(t.TempDir(), "disk")
	check.OK(t, errors.Join(os.WriteFile(target, nil, 0o600), nodeops.Bind(ctx, d.Path, target, false, nil)))
	check.Report(t, nodeops.ReleaseCephClient(ctx, d.Client))
	if now, err := nodeops.RBDAt(d.Path); err != nil || now == nil {
		t.Errorf("the device was released while its node is bound: %v", err)
	}
	check.OK(t, nodeops.Unmount(ctx, target))
}

func (w world) shutOutAndRelease(ctx context.Context, t *testing.T) {
	t.Helper()
	r := w.image(t, "fenced")
	d := check.Got(nodeops.MapRBD(ctx, r))(t)
	put(t, d.Path, 0, []byte("before"))
	f := check.Got(os.OpenFile(d.Path, os.O_RDWR, 0))(t)
	defer f.Close()
	check.Got(f.WriteAt([]byte("not yet written"), mib))(t)
	w.fence(t, d.Client.Address)
	if err := f.Sync(); err == nil {
		t.Error("what was in its cache was written after it was shut out")
	}
	if _, err := f.WriteAt([]byte("too late"), 0); err == nil && f.Sync() == nil {
		t.Error("it wrote after it was shut out")
	}
	if gone, err := nodeops.IsCephClientGone(d.Client); err != nil || gone {
		t.Errorf("its client is gone while it is mapped: %v", err)
	}
	if err := nodeops.UnmapRBD(ctx, d); !errors.Is(err, unix.EBUSY) { // it is open
		t.Errorf("unmapping without force: %v", err)
	}
	w.keepsWhatIsBound(ctx, t, d)
	for range 2 {
		check.OK(t, nodeops.ReleaseCephClient(ctx, d.Client))
	}
	f.Close()
	nothingMapped(t)
	if gone, err := nodeops.IsCephClientGone(d.Client); err != nil || !gone {
		t.Errorf("its client is there when it is unmapped: %v", err)
	}
	again := check.Got(nodeops.MapRBD(ctx, r))(t)
	if again.Client.Address == d.Client.Address || again.Client.ID == d.Client.ID {
		t.Errorf("the next client is the one that is shut out: %+v", again.Client)
	}
	if got := get(t, again.Path, 0, 6); string(got) != "before" {
		t.Errorf("there is %q", got)
	}
	if got := get(t, again.Path, mib, 15); string(got) != string(make([]byte, 15)) {
		t.Errorf("after what was never written, there is %q", got)
	}
	check.Report(t, nodeops.UnmapRBD(ctx, again))
}

// TestGuestFence_StagedVolumeIsStagedAgainForTheNextPod has the pods of a node follow each other as the kubelet has them: it stages
// a volume once, and publishes it for each. The node is shut out between two of them.
func TestGuestFence_StagedVolumeIsStagedAgainForTheNextPod(t *testing.T) {
	for name, l := range lives {
		t.Run(name, func(t *testing.T) {
			ctx, w := onGuest(t)
			n := newNode(ctx, t, w)
			l.add(n, w, backend.ID(l.id))
			check.OK(t, n.stage(l.id, l.capability))
			n.volumes.set(func() { n.clients[backend.ID(l.id)] = nodeops.CephClient{} }) // the record may have been lost since
			check.OK(t, n.publish(l.id, l.capability))
			before := n.clients[backend.ID(l.id)]
			if before.ID == "" {
				t.Fatal("a pod has it through a client that is not recorded")
			}
			n.write(l, "before")
			n.shutOut(w, l, before)

			next := filepath.Join(n.dir, "next")
			n.refused("while the pod before has it", n.publishAt(next, l.id, l.capability), n.target(l.id))
			n.refused("once more to the pod that has it", n.publish(l.id, l.capability), n.target(l.id))
			if gone, err := nodeops.IsCephClientGone(before); err != nil || gone {
				t.Errorf("what a pod has was taken from it: %v", err)
			}
			check.OK(t, n.unpublish(l.id))
			for range 2 {
				n.refused("while the node is shut out", n.publishAt(next, l.id, l.capability), "is shut out")
			}
			nothingMapped(t)
			if gone, err := nodeops.IsCephClientGone(before); err != nil || !gone {
				t.Errorf("the client that keeps the node from being let in is there: %v", err)
			}

			n.volumes.set(func() {
				n.fenced = nil
				delete(n.clients, backend.ID(l.id))
			})
			n.twice("publishing", func() error { return n.publish(l.id, l.capability) })
			if now := n.clients[backend.ID(l.id)]; now.ID == "" || now.ID == before.ID {
				t.Errorf("it is used as client %q, recorded is %q", now.ID, before.ID)
			}
			if got := n.read(l, len("before")); got != "before" {
				t.Errorf("there is %q", got)
			}
			n.write(l, "behind")
			check.OK(t, errors.Join(n.unpublish(l.id), n.unstage(l.id)))
			nothingMapped(t)
		})
	}
}

// file is what the pod reads and writes: the device, or a file.
func (n *node) file(l life) string {
	if l.capability.GetBlock() != nil {
		return n.target(l.id)
	}
	return filepath.Join(n.target(l.id), "file")
}

func (n *node) write(l life, content string) {
	n.Helper()
	if l.capability.GetBlock() == nil {
		check.OK(n, os.WriteFile(n.file(l), nil, 0o600))
	}
	put(n.T, n.file(l), 0, []byte(content))
}

func (n *node) read(l life, length int) string {
	n.Helper()
	return string(get(n.T, n.file(l), 0, length))
}

// shutOut shuts the node out, and returns when the pod that has the volume cannot use it.
func (n *node) shutOut(w world, l life, c nodeops.CephClient) {
	n.Helper()
	n.volumes.set(func() { n.fenced = fmt.Errorf("%w: the node is shut out", backend.ErrUnavailable) })
	if n.volumes.all[backend.ID(l.id)].Access.CephFS == nil {
		w.fence(n.T, c.Address)
		return
	}
	w.evict(n.T, c.ID)
	dead := filepath.Join(n.target(l.id), "dead")
	for tick := time.NewTicker(time.Second); os.Mkdir(dead, 0o700) == nil; <-tick.C {
		check.OK(n, os.Remove(dead))
	}
}

func (n *node) refused(when string, err error, want string) {
	n.Helper()
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), want) {
		n.Errorf("%s, it is published: %v, want %q", when, err, want)
	}
}
