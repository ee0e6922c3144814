package export

import (
	"errors"
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
	"github.com/holdfast-storage/holdfast/backend/local"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/nodeops/ganesha"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func onXFS(t *testing.T) *server { return newServer(t, "image", hostfs.XFS, 8<<30) }

func TestVolume_IsExportedWithItsLabelsBeforeItIsReturned(t *testing.T) {
	s := onXFS(t)
	labels := func(spec *backend.VolumeSpec) {
		spec.Labels = map[string]string{LabelSquash: "root_squash", LabelClients: "10.0.0.0/8", LabelGID: "2000", LabelAnonUID: "5"}
	}
	v := s.create("Data of Team A", labels)
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
	check.OK(t, os.Chmod(s.target(v.ID), 0o711)) // it is the users' once it is made
	s.create("Data of Team A", labels)
	s.restart()
	check.Same(t, check.Got(os.Stat(s.target(v.ID)))(t).Mode().Perm(), 0o711)
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
		for name, err := range map[string]error{
			"create":  check.ErrorOf(s.Create(t.Context(), spec)),
			"clone":   check.ErrorOf(s.Clone(t.Context(), "b", spec)),
			"restore": check.ErrorOf(s.Restore(t.Context(), "s", spec)),
		} {
			if !errors.Is(err, backend.ErrInvalid) {
				t.Errorf("%s, %s: %v", what, name, err)
			}
		}
	}
	s.served()
	check.Same(t, len(check.Got(s.List(t.Context()))(t)), 0)
	for _, id := range []backend.ID{"", ".", "..", "../state", "a/b", "A"} { // which were not parsed, and reach no path
		check.Fails(t, s.Delete(t.Context(), id), backend.ErrInvalid)
	}
	check.Report(t, check.ErrorOf(os.Stat(s.files().main())))
}

func TestCopy_OfABlockVolumeIsRefused(t *testing.T) {
	s := onXFS(t)
	check.Got(s.local.Create(t.Context(), backend.VolumeSpec{Name: "raw", Mode: backend.Block}))(t)
	check.Got(s.Snapshot(t.Context(), backend.SnapshotSpec{Name: "s", Source: "raw"}))(t)
	check.Fails(t, check.ErrorOf(s.Clone(t.Context(), "raw", backend.VolumeSpec{Name: "a"})), backend.ErrInvalid, "Block")
	check.Fails(t, check.ErrorOf(s.Restore(t.Context(), "s", backend.VolumeSpec{Name: "a"})), backend.ErrInvalid, "Block")
	s.isNotServed("raw")
	s.remove("raw")
}

func TestDelete_UnexportsTheVolumeFirst(t *testing.T) {
	s := onXFS(t)
	v := s.create("a")
	s.record.refuses(func(uint16) error { return errors.New("the server does not answer") })
	check.Fails(t, s.Delete(t.Context(), v.ID), backend.ErrUnavailable, "a", "export 1", "does not answer")
	check.Report(t, check.ErrorOf(os.Stat(filepath.Join(s.pool.Path, "volumes/a/image"))))
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
	check.Fails(t, s.Delete(t.Context(), v.ID), backend.ErrBusy, "a", "/dev/loop")
	check.Same(t, len(s.record.exports(t)), 0)
	check.Same(t, s.mounts(), nil)
	f.Close()
	s.remove(v.ID)
	s.served()
	check.Same(t, s.loops(), nil)
}

func TestRestart_RestoresAllExportsAsClientsKnowThem(t *testing.T) {
	s := onXFS(t)
	a, b := s.create("a"), s.create("b")
	s.write(a, []byte("one"))
	before := s.record.exports(t)
	s.remove(s.create("c").ID)
	s.end()
	check.OK(t, os.RemoveAll(filepath.Join(s.work, "exporter"))) // a pod that moved has none of it
	s.makeDirs()
	s.begin()
	s.served(a.ID, b.ID)
	for path, e := range s.record.exports(t) {
		if e.ID != before[path].ID || e.Filesystem != before[path].Filesystem {
			t.Errorf("%s is %+v, was %+v", path, e, before[path])
		}
	}
	check.Same(t, string(s.read(s.get(a.ID))), "one")
}

func TestVolume_DamagedHidesNoOtherAndIsServedOnceRepaired(t *testing.T) {
	s := onXFS(t)
	a, b, c := s.create("a"), s.create("b"), s.create("c")
	s.write(b, []byte("kept"))
	s.end()
	image := filepath.Join(s.pool.Path, "volumes/b/image")
	whole := head(t, image)
	hostfs.Overwrite(t, image, 0, make([]byte, len(whole))...)
	metadata := filepath.Join(s.pool.Path, "volumes/c/meta.json")
	check.OK(t, os.Rename(metadata, metadata+".away"))
	s.begin()
	s.isNotServed(b.ID, "no file system is on it", "xfs_repair")
	s.isNotServed(c.ID, "meta.json")
	if v := s.get(a.ID); v.Access.NFS == nil || v.Condition.Abnormal {
		t.Errorf("a is %+v", v)
	}
	check.Same(t, head(t, image), make([]byte, len(whole))) // the damaged image was not written
	hostfs.Overwrite(t, image, 0, whole...)
	s.becomesHealthy(b.ID)
	check.Same(t, string(s.read(s.get(b.ID))), "kept")
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
		s.becomesHealthy(id)
	}
	s.isNotServed("b")
	s.create("d")
	close(hangs)
	s.becomesHealthy("b")
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
	check.Fails(t, check.ErrorOf(s.Create(t.Context(), s.spec("a"))), backend.ErrUnavailable, "a", "export 1", "out of descriptors")
	s.isNotServed("a", "out of descriptors")
	s.record.refuses(nil)
	s.becomesHealthy("a")
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
	check.Same(t, string(s.read(v)), "one")
}

func TestVolume_WithALostMountIsUnexported(t *testing.T) {
	s := onXFS(t)
	v := s.create("a")
	image := filepath.Join(s.pool.Path, "volumes/a/image")
	s.record.refuses(func(uint16) error { return errors.New("the server does not answer") })
	s.unmountByHand(v.ID)
	whole := head(t, image)
	hostfs.Overwrite(t, image, 0, make([]byte, len(whole))...)
	wait.Until(s.T, "failure", func() bool { return strings.Contains(s.get(v.ID).Condition.Message, "does not answer") })
	if got := s.mounts(); len(got) > 0 {
		t.Errorf("%v is mounted beneath the export of what was there", got)
	}
	s.record.refuses(nil)
	wait.Until(s.T, "end of the export", func() bool { return len(s.record.exports(t)) == 0 })
	hostfs.Overwrite(t, image, 0, whole...)
	s.becomesHealthy(v.ID)
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
	grown := check.Got(s.Expand(t.Context(), v.ID, backend.Size{Required: 2 * size}))(t)
	if after := sizeOf(t, s.target(v.ID)); grown.Size != 2*size || after < before+size*9/10 {
		t.Errorf("it is %+v; the file system had %d bytes, has %d", grown, before, after)
	}
	// A volume that grew while it was not exported.
	s.whileDown(func(pool *local.Backend) error {
		return check.ErrorOf(pool.Expand(t.Context(), v.ID, backend.Size{Required: 3 * size}))
	})
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
	s.restartWith(func(c *Config) { c.MaxExports = 2 })
	s.create("a")
	s.create("b")
	check.Fails(t, check.ErrorOf(s.Create(t.Context(), s.spec("c"))), backend.ErrExhausted, "c", "exports 2", "maxExports")
	c, err := s.Capacity(t.Context(), "")
	if err != nil || c.Available != 0 || c.Largest != 0 || c.Promised != 2*size {
		t.Errorf("the capacity is %+v, %v", c, err)
	}
	s.create("a") // it exists
	s.served("a", "b")
	s.remove("a")
	s.create("c")
	s.served("b", "c")
	check.Fails(t, check.ErrorOf(s.Undelete(t.Context(), "a")), backend.ErrExhausted, "a", "exports 2", "maxExports")
	check.Same(t, len(check.Got(s.Trash(t.Context()))(t)), 1)
	s.remove("b")
	check.Report(t, check.ErrorOf(s.Undelete(t.Context(), "a")))
	s.served("a", "c")
}

func TestVolume_WithoutAFreeLoopDeviceTakesNoCapacity(t *testing.T) {
	hostfs.RequireRoot(t)
	const first = nodeops.FirstReservedLoop + nodeops.ReservedLoops - 128
	devices := check.Got(nodeops.AddLoops(first, 3))(t)
	t.Cleanup(func() { removeLoops(t, first, 3) })
	attachByHand(t, devices[2]) // another program has attached it
	held := check.Got(os.Open(devices[2]))(t)
	t.Cleanup(func() { held.Close() })
	s := onXFS(t)
	s.restartWith(func(c *Config) { c.Loops = devices })
	check.Same(t, s.MaxExports, 3)
	devices = devices[:2]
	s.create("a")
	s.create("b")
	check.Fails(t, check.ErrorOf(s.Create(t.Context(), s.spec("c"))), backend.ErrExhausted, "c", "all 3", "loop devices")
	s.served("a", "b")
	check.Fails(t, check.ErrorOf(s.Get(t.Context(), "c")), backend.ErrNotFound)
	check.Same(t, slices.Sorted(slices.Values(s.loops())), devices)
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

func TestStart_IsRefusedOverOtherContentAndWithoutTheListOfVolumesThatExist(t *testing.T) {
	s := onXFS(t)
	s.create("a")
	s.end()
	odd := filepath.Join(s.work, "exports", "Not a volume")
	check.OK(t, os.Mkdir(odd, 0o700))
	s.startFails(backend.ErrInvalid, "Not a volume")
	check.OK(t, os.Remove(odd))
	check.OK(t, errors.Join(os.Remove(s.files().main()), os.Remove(s.files().copy())))
	s.startFails(backend.ErrUnavailable, s.files().main(), "start again")
	check.OK(t, os.WriteFile(s.files().main(), []byte(blank), 0o600))
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
	check.Same(t, string(s.read(s.get("a"))), "one")
}

func (s *server) files() files { return files{s.stateDir()} }

func TestConfig_BadIsRefused(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"nothing":     func(c *Config) { *c = Config{} },
		"relative":    func(c *Config) { c.ExportsDir = "a" },
		"too many":    func(c *Config) { c.MaxExports = mostIDs + 1 },
		"bad default": func(c *Config) { c.Defaults.Squash = "x" },
		"bad clients": func(c *Config) { c.Defaults.Clients = []string{"everybody"} },
	} {
		c := Config{ExportsDir: "/a", StateDir: "/b"}
		change(&c)
		if _, err := Open(t.Context(), c); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// uuidOf returns the UUID of a file system.
func uuidOf(t *testing.T, target string) string {
	t.Helper()
	m, err := nodeops.MountAt(target)
	if err != nil || m == nil {
		t.Fatalf("%s is not mounted: %v", target, err)
	}
	out, err := exec.Command("blkid", "-p", "-s", "UUID", "-o", "value", m.Source).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
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

func TestImage_LargeEnoughHasAFileSystemThatGrowsWhileServed(t *testing.T) {
	s := onXFS(t)
	s.restartWith(func(c *Config) { c.Images = true })
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
