//go:build ceph

package cephfs

import (
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-storage/holdfast/backend/ceph"
	rig "github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// sessions are the addresses of the clients of the file system, by their users.
func (w *world) sessions() (all map[string]string) {
	w.Helper()
	var clients []struct {
		Inst     string
		Metadata struct {
			User string `json:"entity_id"`
		} `json:"client_metadata"`
	}
	sockets, err := filepath.Glob(filepath.Join(w.cluster.Dir, "mds.*.asok"))
	if err != nil || len(sockets) != 1 {
		w.Fatalf("the metadata servers have the sockets %v, %v", sockets, err)
	}
	check.OK(w, json.Unmarshal([]byte(w.ceph("daemon", sockets[0], "session", "ls")), &clients))
	all = map[string]string{}
	for _, c := range clients {
		_, address, _ := strings.Cut(c.Inst, " ")
		for _, protocol := range []string{"v1:", "v2:"} {
			address = strings.TrimPrefix(address, protocol)
		}
		all[c.Metadata.User] = address
	}
	return all
}

func TestBlocklist_ClientOfAFileSystemWritesNothingAnyMore(t *testing.T) {
	w := newWorldIn(t, rig.Start(t, rig.Options{MDS: true}), 0) // no other test is shut out
	v := w.create("a", 16*mib)
	w.write(v, "file", []byte("before"))
	address := w.sessions()["admin"]
	key := check.Got(w.cluster.CreateUser(t.Context(), "fencing", "mon", `allow r, allow command "osd blocklist"`, "osd", "allow r tag cephfs data="+rig.FileSystem))(t)
	w.in.User, w.in.Key = "fencing", ceph.Key(key) // no other right is needed for it
	c := check.Got(ceph.New(w.in, slog.New(slog.DiscardHandler)))(t)
	w.connections = append(w.connections, c)
	b := ceph.BlocklistOf(c)
	check.OK(t, b.Fence(t.Context(), []string{address}))
	if err := w.tryWrite(v, "file", []byte("too late")); !hasErrno(err, syscall.ESHUTDOWN) {
		t.Errorf("the client that is shut out wrote: %v", err)
	}
	wait.For(w, "a new session", func() error {
		if got := w.sessions()["admin"]; got == address {
			return syscall.EAGAIN
		}
		return nil
	})
	if _, err := w.backend.Get(t.Context(), v.ID); err != nil {
		t.Errorf("the pool itself: %v", err)
	}
	check.Report(t, b.Unfence(t.Context(), []string{address}))
}
