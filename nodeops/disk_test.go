package nodeops

import (
	"bytes"
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
	check.Same(t, command(t, "blkid", "-p", "-o", "value", "-s", "UUID", device), someUUID+"\n")
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
	check.Fails(t, check.ErrorOf(ReadXFSHead("/dev/nowhere")), os.ErrNotExist) // no device
}

func TestXFS_OnlyTheUnfinishedOneOfThatUUIDIsErased(t *testing.T) {
	device := newXFSDisk(t)
	before := firstMiB(t, device)
	check.Fails(t, EraseUnfinishedXFS(device, someUUID), ErrNotEmpty) // a finished one
	hostfs.Overwrite(t, device, inProgress, 1)
	check.Fails(t, EraseUnfinishedXFS(device, "00000000-11aa-4b3a-8b3a-0123456789ab"), ErrNotEmpty) // another
	hostfs.Overwrite(t, device, inProgress, 0)
	if !bytes.Equal(firstMiB(t, device), before) {
		t.Error("what is left alone has changed")
	}
	hostfs.Overwrite(t, device, inProgress, 1)
	hostfs.Overwrite(t, device, 320*mib-1, 1) // mkfs writes the end, too
	check.OK(t, EraseUnfinishedXFS(device, someUUID))
	check.Report(t, ProvenEmpty(t.Context(), device))
}

func TestXFS_InUseIsNotErasedAndTheKernelRefusesASecondOneOfItsUUID(t *testing.T) {
	device, target := newXFSDisk(t), newTarget(t)
	check.Got(MountDisk(t.Context(), device, target))(t)
	check.Fails(t, check.ErrorOf(MountDisk(t.Context(), newXFSDisk(t), newTarget(t))), nil)
	hostfs.Overwrite(t, device, inProgress, 1)
	check.Fails(t, EraseUnfinishedXFS(device, someUUID), unix.EBUSY)
	hostfs.Overwrite(t, device, inProgress, 0)
	if m := mountedAt(t, target); m.FSType != "xfs" || m.Source != device {
		t.Errorf("mounted as %+v", m)
	}
}

func TestDisk_IsMountedWithProjectQuotasWhereTheKernelHasThem(t *testing.T) {
	device := newXFSDisk(t)
	target := newTarget(t)
	quotas := check.Got(MountDisk(t.Context(), device, target))(t)
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

func firstMiB(t *testing.T, device string) []byte {
	t.Helper()
	f := check.Got(os.Open(device))(t)
	defer f.Close()
	b := make([]byte, mib)
	check.Got(f.ReadAt(b, 0))(t)
	return b
}
