package export

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops/ganesha"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/nfsclient"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// serve runs a real NFS-Ganesha until the test ends.
func serve(t *testing.T) (server *ganesha.Server, address string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "holdfast-nfs-") // the path of a socket must be short
	check.OK(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	port := hostfs.FreePort(t)
	server, err = ganesha.New(ganesha.Config{
		RunDir: filepath.Join(dir, "run"), RecoveryDir: filepath.Join(dir, "recovery"), Name: "nfs.test",
		Port: port, Grace: 10 * time.Second, Lease: 5 * time.Second,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	check.OK(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		check.Report(t, server.Run(ctx))
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return server, fmt.Sprintf("127.0.0.1:%d", port)
}

func TestGanesha_ServesAVolumeBesideItsCopiesAndReleasesEach(t *testing.T) {
	requireGanesha(t)
	for _, fsType := range []string{"ext4", "xfs"} {
		t.Run(fsType, func(t *testing.T) {
			s := onXFS(t)
			nfs, _ := serve(t)
			log := s.serveBy(nfs)
			v := s.create("a", func(spec *backend.VolumeSpec) { spec.FSType = fsType })
			s.write(v, []byte("one"))
			check.Got(s.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: v.ID}))(t)
			check.Got(s.Clone(t.Context(), v.ID, backend.VolumeSpec{Name: "b"}))(t)
			check.Got(s.Restore(t.Context(), "s", backend.VolumeSpec{Name: "c"}))(t)
			s.served("a", "b", "c")
			for _, id := range []backend.ID{"a", "b", "c"} {
				if got := s.read(s.get(id)); string(got) != "one" {
					t.Errorf("%s holds %q", id, got)
				}
				s.remove(id)
			}
			s.served()
			s.endWithNoneBusy(log)
		})
	}
}

func TestGanesha_ServesDirectoriesOfOneFileSystem(t *testing.T) {
	requireGanesha(t)
	for _, k := range []hostfs.Kind{hostfs.Btrfs, hostfs.XFSQuota, hostfs.Ext4Quota} {
		t.Run(k.Name, func(t *testing.T) {
			s := newServer(t, "directory", k, 4<<30)
			nfs, _ := serve(t)
			log := s.serveBy(nfs)
			a, b := s.create("a"), s.create("b")
			s.write(a, []byte("one"))
			s.served(a.ID, b.ID)
			s.remove(a.ID)
			s.served(b.ID)
			s.remove(b.ID)
			s.endWithNoneBusy(log)
		})
	}
}

func TestGanesha_ServesEachVolumeAsItsLabelsSay(t *testing.T) {
	requireGanesha(t)
	s := onXFS(t)
	nfs, address := serve(t)
	s.serveBy(nfs)
	for name, c := range map[string]struct {
		labels map[string]string
		answer uint32 // to root from 127.0.0.1, who creates something
		owner  [2]uint32
	}{
		"plain":         {nil, nfsclient.StatusOK, [2]uint32{0, 0}},
		"read-only":     {map[string]string{LabelReadOnly: "true"}, nfsclient.StatusReadOnly, [2]uint32{}},
		"not-read-only": {map[string]string{LabelReadOnly: "false"}, nfsclient.StatusOK, [2]uint32{0, 0}},
		"root-squash":   {map[string]string{LabelSquash: "root_squash"}, nfsclient.StatusOK, [2]uint32{65534, 65534}},
		"squash-to": {
			map[string]string{LabelSquash: "all_squash", LabelAnonUID: "4242", LabelAnonGID: "4343"}, nfsclient.StatusOK, [2]uint32{4242, 4343},
		},
		"for-this":   {map[string]string{LabelClients: "127.0.0.1,10.0.0.0/8"}, nfsclient.StatusOK, [2]uint32{0, 0}},
		"for-others": {map[string]string{LabelClients: "127.0.0.2"}, nfsclient.StatusNoEntry, [2]uint32{}},
		"read-only-for-this": {
			map[string]string{LabelClients: "127.0.0.1", LabelReadOnly: "true", LabelSquash: "root_squash"}, nfsclient.StatusReadOnly, [2]uint32{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := s.create(name, func(spec *backend.VolumeSpec) {
				spec.FSType, spec.Size.Required = "ext4", 16*mib
				spec.Labels = map[string]string{LabelMode: "777"}
				maps.Copy(spec.Labels, c.labels)
			})
			s.write(v, []byte("one"))
			client := nfsclient.NewFrom(t, address, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
			check.Same(t, client.Ask(nfsclient.PutRoot(), nfsclient.LookUp(name), nfsclient.MakeDir("made")), c.answer)
			var st unix.Stat_t
			made := unix.Stat(s.inside(v, "made"), &st)
			if c.answer == nfsclient.StatusOK && (made != nil || st.Uid != c.owner[0] || st.Gid != c.owner[1]) {
				t.Errorf("what was made belongs to %d:%d, %v, want %v", st.Uid, st.Gid, made, c.owner)
			}
			if c.answer != nfsclient.StatusOK && !errors.Is(made, unix.ENOENT) {
				t.Errorf("what may not be made is there: %v", made)
			}
			answer, content := c.answer, "one"
			switch {
			case c.owner != [2]uint32{}:
				answer = nfsclient.StatusAccess // the file is root's
			case answer == nfsclient.StatusOK:
				content = "two"
			}
			check.Same(t, client.Ask(nfsclient.PutRoot(), nfsclient.LookUp(name), nfsclient.LookUp("file"), nfsclient.WriteFile("two")), answer)
			check.Same(t, string(s.read(v)), content)
		})
	}
}

func TestGanesha_ClientCreatesWritesAndReadsFiles(t *testing.T) {
	requireGanesha(t)
	s := onXFS(t)
	nfs, address := serve(t)
	log := s.serveBy(nfs)
	v := s.create("a")
	client := nfsclient.New(t, address)
	root, inner := []string{"a"}, []string{"a", "inner"}
	client.Write(root, "file", "one")
	check.Same(t, string(s.read(v)), "one")
	client.Write(root, "file", "two")
	client.Must(client.Ask(nfsclient.PutRoot(), nfsclient.LookUp("a"), nfsclient.MakeDir("inner")))
	client.Write(inner, "file", "three")
	client.Write(inner, "empty", "")
	check.Same(t, client.Read(root, "file"), "two")
	check.Same(t, client.Read(inner, "file"), "three")
	check.Same(t, client.Read(inner, "empty"), "")
	s.remove(v.ID)
	s.endWithNoneBusy(log)
}

func requireGanesha(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs NFS-Ganesha, which takes seconds to start")
	}
	for _, name := range []string{"ganesha.nfsd", "dbus-daemon"} {
		if _, err := exec.LookPath(name); err != nil {
			hostfs.Skip(t, "ganesha", name+" is not installed")
		}
	}
}

// serveBy restarts the server with an NFS server, which the test stops first, and returns the log.
func (s *server) serveBy(nfs *ganesha.Server) *strings.Builder {
	s.Helper()
	s.end()
	log := &strings.Builder{}
	s.change = func(c *Config) {
		c.Exporter = both{nfs, s.record}
		c.Log = slog.New(slog.NewTextHandler(log, nil))
	}
	s.begin()
	wait.Until(s.T, "answer of Ganesha", nfs.Ready)
	return log
}

// endWithNoneBusy stops the server, and fails if a volume was busy when its export had ended.
func (s *server) endWithNoneBusy(log *strings.Builder) {
	s.Helper()
	s.end()
	if strings.Contains(log.String(), "keeps busy") {
		s.Errorf("a volume was kept busy after its export: %s", log)
	}
}

// both calls two exporters in turn.
type both [2]Exporter

func (b both) Put(ctx context.Context, e ganesha.Export) error {
	if err := b[0].Put(ctx, e); err != nil {
		return err
	}
	return b[1].Put(ctx, e)
}

func (b both) Remove(ctx context.Context, id uint16) error {
	if err := b[0].Remove(ctx, id); err != nil {
		return err
	}
	return b[1].Remove(ctx, id)
}
