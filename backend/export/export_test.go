package export

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/nodeops/ganesha"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func onXFS(t *testing.T) *server { return newServer(t, "image", hostfs.XFS, 8<<30) }

func TestVolume_IsExportedWithItsLabelsBeforeItIsReturned(t *testing.T) {
	s := onXFS(t)
	v := s.create("Data of Team A", func(spec *backend.VolumeSpec) {
		spec.Labels = map[string]string{LabelSquash: "root_squash", LabelClients: "10.0.0.0/8", LabelGID: "2000", LabelAnonUID: "5"}
	})
	s.served(v.ID)
	e := s.record.exports(t)[v.Access.NFS.Path]
	if e.ID != 1 || e.Squash != ganesha.RootSquash || !slices.Equal(e.Clients, []string{"10.0.0.0/8"}) || *e.AnonUID != 5 || e.Pseudo != "/"+string(v.ID) || e.ReadOnly {
		t.Errorf("exported is %+v", e)
	}
	if v.Access.Image != "" || v.Access.Directory != "" || v.Access.NFS.Server != "" {
		t.Errorf("its access is %+v", v.Access)
	}
	info := check.Got(os.Stat(e.Path))(t)
	if st := info.Sys().(*syscall.Stat_t); st.Gid != 2000 || st.Mode&0o7777 != 0o2770 {
		t.Errorf("its top directory has group %d and mode %o", st.Gid, st.Mode)
	}
}

func TestVolume_TopDirectoryIsCreatedOnceAndThenTheUsers(t *testing.T) {
	s := onXFS(t)
	v := s.create("a", func(spec *backend.VolumeSpec) { spec.Labels = map[string]string{LabelMode: "2775"} })
	check.OK(t, os.Chmod(s.target(v.ID), 0o711))
	s.create("a")
	s.restart()
	if info, err := os.Stat(s.target(v.ID)); err != nil || info.Mode().Perm() != 0o711 {
		t.Errorf("it is %v, %v", info.Mode(), err)
	}
}

func TestVolume_ThatCannotBeExportedIsNotCreated(t *testing.T) {
	s := onXFS(t)
	for what, change := range map[string]func(*backend.VolumeSpec){
		"block":     func(spec *backend.VolumeSpec) { spec.Mode, spec.FSType = backend.Block, "" },
		"bad label": func(spec *backend.VolumeSpec) { spec.Labels = map[string]string{LabelSquash: "odd"} },
		"unknown":   func(spec *backend.VolumeSpec) { spec.Labels = map[string]string{labelPrefix + "odd": ""} },
	} {
		spec := s.spec("a")
		change(&spec)
		for name, ask := range map[string]func() error{
			"create":  func() error { _, err := s.Create(t.Context(), spec); return err },
			"clone":   func() error { _, err := s.Clone(t.Context(), "b", spec); return err },
			"restore": func() error { _, err := s.Restore(t.Context(), "s", spec); return err },
		} {
			if err := ask(); !errors.Is(err, backend.ErrInvalid) {
				t.Errorf("%s, %s: %v", what, name, err)
			}
		}
	}
	s.served()
	if all, err := s.List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("there is %v, %v", all, err)
	}
}

func TestCopy_OfABlockVolumeIsRefused(t *testing.T) {
	s := onXFS(t)
	check.Got(s.local.Create(t.Context(), backend.VolumeSpec{Name: "raw", Mode: backend.Block}))(t)
	check.Got(s.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "raw"}))(t)
	_, err := s.Clone(t.Context(), "raw", backend.VolumeSpec{Name: "a"})
	s.want(err, backend.ErrInvalid, "Block")
	_, err = s.Restore(t.Context(), "s", backend.VolumeSpec{Name: "a"})
	s.want(err, backend.ErrInvalid, "Block")
	v := s.get("raw")
	if !v.Condition.Abnormal || v.Access != (backend.Access{}) {
		t.Errorf("the block volume on disk is %+v", v)
	}
	s.remove("raw")
}

func TestDelete_UnexportsTheVolumeFirst(t *testing.T) {
	s := onXFS(t)
	v := s.create("a")
	s.record.refuses(func(uint16) error { return errors.New("the server does not answer") })
	err := s.Delete(t.Context(), v.ID)
	s.want(err, backend.ErrUnavailable, "a", "export 1", "does not answer")
	if _, err := os.Stat(filepath.Join(s.pool.Path, "volumes/a/image")); err != nil {
		t.Errorf("its data was deleted while it is exported: %v", err)
	}
	if now := s.get(v.ID); !now.Condition.Abnormal {
		t.Errorf("it is %+v", now)
	}
	s.record.refuses(nil)
	s.remove(v.ID)
	s.remove(v.ID)
	s.served()
	if _, known := s.ledger.find(v.ID); known {
		t.Error("its export ID is still taken")
	}
	if again := s.create("a"); s.record.exports(t)["/a"].ID != 2 {
		t.Errorf("its successor %+v has its ID", again)
	}
}

func TestDelete_VolumeInUseIsDeletedWhenItsLastFileIsClosed(t *testing.T) {
	s := onXFS(t)
	v := s.create("a")
	s.write(v, []byte("x"))
	f := check.Got(os.Open(s.inside(v, "file")))(t)
	defer f.Close()
	s.want(s.Delete(t.Context(), v.ID), backend.ErrBusy, "a", "/dev/loop")
	s.unexported()
	if len(s.mounts()) > 0 {
		t.Errorf("still in sight: %v", s.mounts())
	}
	f.Close()
	s.remove(v.ID)
	s.served()
	if got := s.loops(); len(got) > 0 {
		t.Errorf("still attached: %v", got)
	}
}

// unexported fails if anything is exported.
func (s *server) unexported() {
	s.Helper()
	if got := s.record.exports(s.T); len(got) > 0 {
		s.Errorf("still exported: %v", got)
	}
}

func TestRestart_RestoresAllExportsAsClientsKnowThem(t *testing.T) {
	s := onXFS(t)
	a, b := s.create("a"), s.create("b")
	s.write(a, []byte("one"))
	before := s.record.exports(t)
	s.remove(s.create("c").ID)
	s.end()
	if err := os.RemoveAll(filepath.Join(s.work, "exporter")); err != nil { // a pod that moved has none of it
		t.Fatal(err)
	}
	s.makeDirs()
	s.begin()
	s.served(a.ID, b.ID)
	for path, e := range s.record.exports(t) {
		if e.ID != before[path].ID || e.Filesystem != before[path].Filesystem {
			t.Errorf("%s is %+v, was %+v", path, e, before[path])
		}
	}
	if got := s.read(s.get(a.ID)); string(got) != "one" {
		t.Errorf("it holds %q", got)
	}
}

func TestVolume_DamagedHidesNoOtherAndIsServedOnceRepaired(t *testing.T) {
	s := onXFS(t)
	a, b, c := s.create("a"), s.create("b"), s.create("c")
	s.write(b, []byte("kept"))
	s.end()
	image := filepath.Join(s.pool.Path, "volumes/b/image")
	whole := head(t, image)
	overwrite(t, image, make([]byte, len(whole)))
	metadata := filepath.Join(s.pool.Path, "volumes/c/meta.json")
	check.OK(t, os.Rename(metadata, metadata+".away"))
	s.begin()
	for id, word := range map[backend.ID]string{b.ID: "no file system is on it", c.ID: "meta.json"} {
		if v := s.get(id); !v.Condition.Abnormal || !strings.Contains(v.Condition.Message, word) || v.Access != (backend.Access{}) {
			t.Errorf("%s is %+v", id, v)
		}
	}
	if v := s.get(a.ID); v.Access.NFS == nil || v.Condition.Abnormal {
		t.Errorf("a is %+v", v)
	}
	if v := s.get(b.ID); !strings.Contains(v.Condition.Message, "xfs_repair") {
		t.Errorf("its message names no repair: %s", v.Condition.Message)
	}
	if is := head(t, image); !bytes.Equal(is, make([]byte, len(is))) {
		t.Error("the damaged image was written")
	}
	overwrite(t, image, whole)
	wait.Until(s.T, "volume b", func() bool { return !s.get(b.ID).Condition.Abnormal })
	if got := s.read(s.get(b.ID)); string(got) != "kept" {
		t.Errorf("it holds %q", got)
	}
	if e := s.record.exports(t)["/b"]; e.ID != 2 {
		t.Errorf("it is exported as %+v", e)
	}
	check.OK(t, os.Rename(metadata+".away", metadata))
	s.restart()
	s.served(a.ID, b.ID, c.ID)
}

func head(t *testing.T, path string) []byte {
	t.Helper()
	f := check.Got(os.Open(path))(t)
	defer f.Close()
	b := make([]byte, 4096)
	check.Got(f.Read(b))(t)
	return b
}

func overwrite(t *testing.T, path string, content []byte) {
	t.Helper()
	f := check.Got(os.OpenFile(path, os.O_WRONLY, 0))(t)
	defer f.Close()
	check.Got(f.Write(content))(t)
}

func TestVolume_ThatHangsHidesNoOther(t *testing.T) {
	s := onXFS(t)
	for _, name := range []string{"a", "b", "c"} {
		s.create(name)
	}
	s.end()
	hangs := make(chan struct{})
	s.record.hangs = map[string]chan struct{}{"/b": hangs}
	s.change = func(c *Config) { c.Patience = 100 * time.Millisecond }
	s.begin()
	for _, id := range []backend.ID{"a", "c"} {
		wait.Until(s.T, "volume "+string(id), func() bool { return !s.get(id).Condition.Abnormal })
	}
	if v := s.get("b"); !v.Condition.Abnormal || v.Access != (backend.Access{}) {
		t.Errorf("b is %+v", v)
	}
	s.create("d")
	close(hangs)
	wait.Until(s.T, "volume b", func() bool { return !s.get("b").Condition.Abnormal })
	s.served("a", "b", "c", "d")
}

func TestVolume_ThatWasExportedIsAwaitedForLonger(t *testing.T) {
	s := onXFS(t)
	s.create("a")
	s.end()
	const patience = time.Second
	hangs := make(chan struct{})
	s.record.hangs = map[string]chan struct{}{"/a": hangs}
	s.change = func(c *Config) { c.Patience = patience }
	time.AfterFunc(2*patience, func() { close(hangs) })
	s.begin()
	if v := s.get("a"); v.Condition.Abnormal {
		t.Errorf("the exporter may start, and it is %+v", v)
	}
	s.served("a")
}

func TestVolume_RefusedByTheExporterIsExportedLater(t *testing.T) {
	s := onXFS(t)
	s.record.refuses(func(uint16) error { return errors.New("out of descriptors") })
	_, err := s.Create(t.Context(), s.spec("a"))
	s.want(err, backend.ErrUnavailable, "a", "export 1", "out of descriptors")
	if v := s.get("a"); !v.Condition.Abnormal || v.Access != (backend.Access{}) || !strings.Contains(v.Condition.Message, "out of descriptors") {
		t.Errorf("it is %+v", v)
	}
	s.record.refuses(nil)
	wait.Until(s.T, "export", func() bool { return !s.get("a").Condition.Abnormal })
	if again := s.create("a"); s.record.exports(t)["/a"].ID != 1 {
		t.Errorf("requested again it is %+v", again)
	}
}

func TestVolume_UnmountedByHandIsMountedAgain(t *testing.T) {
	s := onXFS(t)
	v := s.create("a")
	s.write(v, []byte("one"))
	s.unmountByHand(v.ID)
	wait.Until(s.T, "mount", func() bool { return len(s.mounts()) == 1 })
	s.calls("put /a", "remove 1", "put /a")
	s.served(v.ID)
	if got := s.read(v); string(got) != "one" {
		t.Errorf("it holds %q", got)
	}
}

func TestVolume_WithALostMountIsUnexported(t *testing.T) {
	s := onXFS(t)
	v := s.create("a")
	image := filepath.Join(s.pool.Path, "volumes/a/image")
	s.record.refuses(func(uint16) error { return errors.New("the server does not answer") })
	s.unmountByHand(v.ID)
	whole := head(t, image)
	overwrite(t, image, make([]byte, len(whole)))
	wait.Until(s.T, "failure", func() bool { return strings.Contains(s.get(v.ID).Condition.Message, "does not answer") })
	if got := s.mounts(); len(got) > 0 {
		t.Errorf("%v is mounted beneath the export of what was there", got)
	}
	s.record.refuses(nil)
	wait.Until(s.T, "end of the export", func() bool { return len(s.record.exports(t)) == 0 })
	overwrite(t, image, whole)
	wait.Until(s.T, "volume", func() bool { return !s.get(v.ID).Condition.Abnormal })
	s.served(v.ID)
}

func TestVolume_DeletedByAnotherProgramIsUnexported(t *testing.T) {
	s := onXFS(t)
	s.create("a")
	s.create("b")
	s.create("c")
	// What a program without knowledge of exports does.
	remove := func(name string) {
		check.OK(t, os.Rename(filepath.Join(s.pool.Path, "volumes", name), filepath.Join(s.pool.Path, ".trash", name+".gone")))
	}
	remove("a")
	wait.Until(s.T, "end of the export", func() bool { _, known := s.ledger.find("a"); return !known })
	s.served("b", "c")
	s.end()
	remove("b")
	s.begin()
	s.served("c")
}

func TestExpand_ReachesTheFileSystemThatClientsUse(t *testing.T) {
	s := onXFS(t)
	v := s.create("a")
	before := sizeOf(t, s.target(v.ID))
	grown, err := s.Expand(t.Context(), v.ID, backend.Size{Required: 2 * size})
	check.OK(t, err)
	if after := sizeOf(t, s.target(v.ID)); grown.Size != 2*size || after < before+size*9/10 {
		t.Errorf("it is %+v; the file system had %d bytes, has %d", grown, before, after)
	}
	// A volume that grew while it was not exported.
	s.end()
	if s.local, err = s.openLocal(); err != nil {
		t.Fatal(err)
	}
	check.Got(s.local.Expand(t.Context(), v.ID, backend.Size{Required: 3 * size}))(t)
	check.OK(t, s.local.Close(t.Context()))
	s.begin()
	if after := sizeOf(t, s.target(v.ID)); after < before+2*size*9/10 {
		t.Errorf("after a restart the file system has %d bytes, had %d at first", after, before)
	}
	s.served(v.ID)
}

func sizeOf(t *testing.T, dir string) int64 {
	t.Helper()
	usage := check.Got(nodeops.Statfs(t.Context(), dir))(t)
	return usage.Total
}

func TestMaxExports_IsNotExceeded(t *testing.T) {
	s := onXFS(t)
	s.end()
	s.change = func(c *Config) { c.MaxExports = 2 }
	s.begin()
	s.create("a")
	s.create("b")
	_, err := s.Create(t.Context(), s.spec("c"))
	s.want(err, backend.ErrExhausted, "c", "exports 2", "maxExports")
	c, err := s.Capacity(t.Context(), "")
	if err != nil || c.Available != 0 || c.Largest != 0 || c.Promised != 2*size {
		t.Errorf("the capacity is %+v, %v", c, err)
	}
	s.create("a") // it exists
	s.served("a", "b")
	s.remove("a")
	s.create("c")
	s.served("b", "c")
}

func TestVolume_WithoutAFreeLoopDeviceTakesNoCapacity(t *testing.T) {
	hostfs.RequireRoot(t)
	const first = nodeops.FirstReservedLoop + nodeops.ReservedLoops - 128
	devices, err := nodeops.AddLoops(first, 3)
	check.OK(t, err)
	t.Cleanup(func() { removeLoops(t, first, 3) })
	attachByHand(t, devices[2]) // another program has attached it
	held, err := os.Open(devices[2])
	check.OK(t, err)
	t.Cleanup(func() { held.Close() })
	s := onXFS(t)
	s.end()
	s.change = func(c *Config) { c.Loops = devices }
	s.begin()
	if s.MaxExports != 3 {
		t.Errorf("%d may be exported", s.MaxExports)
	}
	devices = devices[:2]
	s.create("a")
	s.create("b")
	_, err = s.Create(t.Context(), s.spec("c"))
	s.want(err, backend.ErrExhausted, "c", "all 3", "loop devices")
	s.served("a", "b")
	if _, err := s.Get(t.Context(), "c"); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("it is there: %v", err)
	}
	if got := slices.Sorted(slices.Values(s.loops())); !slices.Equal(got, devices) {
		t.Errorf("attached are %v, want %v", got, devices)
	}
	s.remove("a")
	s.create("c")
	s.restart()
	s.served("b", "c")
}

// attachByHand attaches a device to an empty file.
func attachByHand(t *testing.T, device string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "theirs")
	check.OK(t, os.WriteFile(path, make([]byte, mib), 0o600))
	if out, err := exec.Command("losetup", device, path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { hostfs.DetachAll(t, []string{device}) })
}

func removeLoops(t *testing.T, first, count int) {
	control := check.Got(os.OpenFile("/dev/loop-control", os.O_RDWR, 0))(t)
	defer control.Close()
	for i := range count {
		if err := unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_REMOVE, first+i); err != nil {
			t.Errorf("removing loop%d: %v", first+i, err)
		}
	}
}

func TestStart_ExportDirectoryWithOtherContentIsRefused(t *testing.T) {
	s := onXFS(t)
	s.create("a")
	s.end()
	odd := filepath.Join(s.work, "exports", "Not a volume")
	check.OK(t, os.Mkdir(odd, 0o700))
	err := s.tryBegin()
	s.Backend = nil
	s.want(err, backend.ErrInvalid, "Not a volume")
	check.OK(t, os.Remove(odd))
	s.begin()
	s.served("a")
}

func TestStart_MountOfNoVolumeIsRemoved(t *testing.T) {
	s := onXFS(t)
	s.write(s.create("a"), []byte("one"))
	s.end()
	left := filepath.Join(s.work, "exports", "left")
	check.OK(t, os.MkdirAll(left, 0o700))
	other := filepath.Join(s.work, "exports", "a")
	check.OK(t, os.MkdirAll(other, 0o700))
	for _, target := range []string{left, other} { // the second one in place of a volume
		check.OK(t, nodeops.Bind(t.Context(), t.TempDir(), target, false, nil))
	}
	s.begin()
	s.served("a")
	if got := s.read(s.get("a")); string(got) != "one" {
		t.Errorf("it holds %q", got)
	}
}

func TestStart_WithoutAListOfExportsIsRefusedWhereVolumesExist(t *testing.T) {
	s := onXFS(t)
	s.create("a")
	s.end()
	for _, path := range []string{s.files().main(), s.files().copy()} {
		check.OK(t, os.Remove(path))
	}
	err := s.tryBegin()
	s.Backend = nil
	s.want(err, backend.ErrUnavailable, s.files().main(), "start again")
	check.OK(t, os.WriteFile(s.files().main(), []byte(blank), 0o600))
	s.begin()
	s.served("a")
}

func (s *server) files() files { return files{s.stateDir()} }

func TestIDs_ThatWereNotParsedReachNoPath(t *testing.T) {
	s := onXFS(t)
	for _, id := range []backend.ID{"", ".", "..", "../state", "a/b", "A"} {
		s.want(s.Delete(t.Context(), id), backend.ErrInvalid)
	}
	if _, err := os.Stat(s.files().main()); err != nil {
		t.Error(err)
	}
}

func TestConfig_BadIsRefused(t *testing.T) {
	for name, c := range map[string]Config{
		"nothing":     {},
		"relative":    {Backend: struct{ Storage }{}, Exporter: &recorder{}, ExportsDir: "a", StateDir: "/b"},
		"too many":    {Backend: struct{ Storage }{}, Exporter: &recorder{}, ExportsDir: "/a", StateDir: "/b", MaxExports: mostIDs + 1},
		"no time":     {Backend: struct{ Storage }{}, Exporter: &recorder{}, ExportsDir: "/a", StateDir: "/b", RetryEvery: -1},
		"bad default": {Backend: struct{ Storage }{}, Exporter: &recorder{}, ExportsDir: "/a", StateDir: "/b", Defaults: Settings{Squash: "x"}},
	} {
		if _, err := Open(t.Context(), c); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCopy_IsAnotherFileSystemThanItsSource(t *testing.T) {
	for _, fsType := range []string{"xfs", "ext4"} {
		t.Run(fsType, func(t *testing.T) {
			s := onXFS(t)
			v := s.create("a", func(spec *backend.VolumeSpec) { spec.FSType = fsType })
			s.write(v, []byte("one"))
			check.Got(s.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: v.ID}))(t)
			check.Got(s.Clone(t.Context(), v.ID, backend.VolumeSpec{Name: "b"}))(t)
			check.Got(s.Restore(t.Context(), "s", backend.VolumeSpec{Name: "c"}))(t)
			uuids := map[string]backend.ID{}
			for _, id := range []backend.ID{"a", "b", "c"} {
				uuid := uuidOf(t, s.target(id))
				if other, taken := uuids[uuid]; taken {
					t.Errorf("%s and %s are both file system %s", id, other, uuid)
				}
				uuids[uuid] = id
			}
			s.restart()
			for uuid, id := range uuids {
				if now := uuidOf(t, s.target(id)); now != uuid {
					t.Errorf("%s was file system %s, is %s", id, uuid, now)
				}
				if got := s.read(s.get(id)); string(got) != "one" {
					t.Errorf("%s holds %q", id, got)
				}
			}
			s.served("a", "b", "c")
		})
	}
}

func TestSnapshot_HoldsOneInstantThoughClientsWrite(t *testing.T) {
	s := onXFS(t)
	v := s.create("a")
	s.write(v, []byte("one"))
	check.Got(s.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: v.ID}))(t)
	s.write(v, []byte("two"))
	back := check.Got(s.Restore(t.Context(), "s", backend.VolumeSpec{Name: "b"}))(t)
	s.served("a", "b")
	if got := fmt.Sprintf("%s %s", s.read(v), s.read(back)); got != "two one" {
		t.Errorf("they hold %s", got)
	}
	exports := s.record.exports(t)
	if exports["/a"].Filesystem == exports["/b"].Filesystem {
		t.Errorf("both are file system %s", exports["/a"].Filesystem)
	}
}

func TestImage_LargeEnoughHasAFileSystemThatGrowsWhileServed(t *testing.T) {
	s := onXFS(t)
	s.end()
	s.change = func(c *Config) { c.Images = true }
	s.begin()
	smallest := check.Got(nodeops.SmallestFS("xfs"))(t)
	for _, test := range []struct {
		spec backend.VolumeSpec
		want string
	}{
		{backend.VolumeSpec{Name: "large", Size: backend.Size{Required: smallest}}, "xfs"},
		{backend.VolumeSpec{Name: "small", Size: backend.Size{Required: 64 << 20}}, "ext4"},
		{backend.VolumeSpec{Name: "asked", FSType: "ext4", Size: backend.Size{Required: smallest}}, "ext4"},
		{backend.VolumeSpec{Name: "files", Inodes: 1000, Size: backend.Size{Required: smallest}}, "ext4"},
	} {
		for range 2 {
			v := check.Got(s.Create(t.Context(), test.spec))(t)
			if v.FSType != test.want {
				t.Errorf("%s is %s, not %s", v.ID, v.FSType, test.want)
			}
		}
	}
}

func TestExpand_FileSystemThatDoesNotGrowIsNotReportedGrown(t *testing.T) {
	s := onXFS(t)
	v := s.create("a")
	shutDown(t, s.target(v.ID))
	if _, err := s.Expand(t.Context(), v.ID, backend.Size{Required: 2 * size}); err == nil {
		t.Fatal("it has grown, and nothing can be written to it")
	}
	if got := s.get(v.ID); got.Size != size || !got.Condition.Abnormal {
		t.Errorf("it is said to have %d bytes of %d, its condition %+v", got.Size, size, got.Condition)
	}
	s.restart()
	if grown, err := s.Expand(t.Context(), v.ID, backend.Size{Required: 2 * size}); err != nil || grown.Size != 2*size {
		t.Errorf("asked again: %+v, %v", grown, err)
	}
}
