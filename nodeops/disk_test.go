package nodeops

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

const someUUID = "0b3a2f3e-11aa-4b3a-8b3a-0123456789ab"

// inProgress is the offset of the byte in the superblock that mkfs.xfs sets while it runs.
const inProgress = 126

func newXFSDisk(t *testing.T) (device string) {
	t.Helper()
	device = hostfs.Disk(t, 320*mib)
	check.OK(t, MakeFS(t.Context(), device, MkfsSpec{FSType: "xfs", Options: []string{"-L", "hf-fast", "-m", "reflink=1"}, UUID: someUUID}))
	return device
}

func TestXFS_IsIdentifiedByItsUUIDAndLabel(t *testing.T) {
	device := newXFSDisk(t)
	head, err := ReadXFSHead(device)
	if err != nil || head == nil || head.UUID != someUUID || head.Label != "hf-fast" || head.Unfinished {
		t.Fatalf("read %+v, %v", head, err)
	}
	if out := command(t, "blkid", "-p", "-o", "value", "-s", "UUID", device); strings.TrimSpace(out) != someUUID {
		t.Errorf("blkid knows it as %s", out)
	}
}

func TestXFS_OtherContentHasNoHeader(t *testing.T) {
	empty := hostfs.Disk(t, 64*mib)
	ext4 := hostfs.Disk(t, 64*mib)
	check.OK(t, MakeFS(t.Context(), ext4, MkfsSpec{FSType: "ext4"}))
	short := write(t, filepath.Join(t.TempDir(), "short"), "XFSB")
	for _, device := range []string{empty, ext4, short} {
		if head, err := ReadXFSHead(device); err != nil || head != nil {
			t.Errorf("%s: %+v, %v", device, head, err)
		}
	}
	if _, err := ReadXFSHead("/dev/nowhere"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no device: %v", err)
	}
}

func TestXFS_UUIDMustBeWellFormed(t *testing.T) {
	for _, spec := range []MkfsSpec{{FSType: "ext4", UUID: someUUID}, {FSType: "xfs", UUID: "generate"}, {FSType: "xfs", UUID: strings.ToUpper(someUUID)}} {
		if err := CheckMkfs(spec); err == nil || !strings.Contains(err.Error(), spec.UUID) {
			t.Errorf("%+v: %v", spec, err)
		}
	}
}

func TestXFS_OnlyTheUnfinishedOneOfThatUUIDIsErased(t *testing.T) {
	device := newXFSDisk(t)
	before := firstMiB(t, device)
	if err := EraseUnfinishedXFS(device, someUUID); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("a finished one: %v", err)
	}
	hostfs.Overwrite(t, device, inProgress, 1)
	if err := EraseUnfinishedXFS(device, "00000000-11aa-4b3a-8b3a-0123456789ab"); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("another: %v", err)
	}
	hostfs.Overwrite(t, device, inProgress, 0)
	if !bytes.Equal(firstMiB(t, device), before) {
		t.Error("what is left alone has changed")
	}
	hostfs.Overwrite(t, device, inProgress, 1)
	hostfs.Overwrite(t, device, 320*mib-1, 1) // mkfs writes the end, too
	check.OK(t, EraseUnfinishedXFS(device, someUUID))
	if err := ProvenEmpty(t.Context(), device); err != nil {
		t.Errorf("erased, and still %v", err)
	}
}

func TestXFS_InUseIsNotErased(t *testing.T) {
	device := newXFSDisk(t)
	target := newTarget(t)
	check.Got(MountDisk(t.Context(), device, target))(t)
	hostfs.Overwrite(t, device, inProgress, 1)
	if err := EraseUnfinishedXFS(device, someUUID); !errors.Is(err, unix.EBUSY) {
		t.Errorf("it is mounted, and %v", err)
	}
	hostfs.Overwrite(t, device, inProgress, 0)
	if m, err := MountAt(target); err != nil || m == nil || m.FSType != "xfs" || m.Source != device {
		t.Errorf("mounted as %+v, %v", m, err)
	}
}

func TestDisk_IsMountedWithProjectQuotasWhereTheKernelHasThem(t *testing.T) {
	device := newXFSDisk(t)
	target := newTarget(t)
	quotas, err := MountDisk(t.Context(), device, target)
	check.OK(t, err)
	f, err := Probe(target)
	if err != nil || f.ProjectQuota != quotas || !f.Reflink {
		t.Errorf("it said quotas %t, found %+v, %v", quotas, f, err)
	}
	if table := read(t, "/proc/self/mounts"); !strings.Contains(table, target+" xfs rw,noatime") {
		t.Errorf("not mounted with noatime:\n%s", table)
	}
	if !quotas {
		hostfs.Skip(t, "prjquota", "this kernel has no project quotas on xfs")
	}
}

func TestDisk_KernelRefusesASecondOneOfTheSameUUID(t *testing.T) {
	device := newXFSDisk(t)
	check.Got(MountDisk(t.Context(), device, newTarget(t)))(t)
	if _, err := MountDisk(t.Context(), newXFSDisk(t), newTarget(t)); err == nil {
		t.Error("two disks of one identity are mounted")
	}
}

// newTarget is a directory from which everything is unmounted before its removal.
func newTarget(t *testing.T) string {
	t.Helper()
	target := t.TempDir()
	t.Cleanup(func() { unmountAll(t, target) })
	return target
}

func firstMiB(t *testing.T, device string) []byte {
	t.Helper()
	f := check.Got(os.Open(device))(t)
	defer f.Close()
	b := make([]byte, mib)
	check.Got(f.ReadAt(b, 0))(t)
	return b
}
