package disk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/crash"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// killedOn makes the test below act as the process that is killed: it has the host's directory and the devices.
const killedOn = "HOLDFAST_TEST_DISK"

func TestKill_AtAnyStepIsContinued(t *testing.T) {
	if work := os.Getenv(killedOn); work != "" {
		dir, devices, _ := strings.Cut(work, "|")
		_ = newHost(t, dir).Mount(t.Context(), pool, paths(strings.Split(devices, ",")...), backend.PoolExpectation{})
		return
	}
	hostfs.RequireRoot(t)
	binary := crash.Binary(t)
	for _, step := range crashpoint.DiskSteps {
		for _, reboot := range []bool{false, true} {
			name := string(step)
			if reboot {
				name += " and a reboot"
			}
			t.Run(name, func(t *testing.T) { killAt(t, binary, step, reboot) })
		}
	}
}

func killAt(t *testing.T, binary string, step crashpoint.Step, reboot bool) {
	f := newFixture(t)
	device, other := hostfs.Disk(t, size), hostfs.Disk(t, size)
	crash.At(t, binary, "TestKill_AtAnyStepIsContinued", step, killedOn+"="+f.Dir+"|"+device+","+other)
	if reboot {
		f.unmount(pool)
	}
	f.mount(pool, device, other)
	f.isOn(pool, device)
	r, err := f.recorded(pool)
	if err != nil || r == nil || !r.Ready {
		t.Errorf("recorded is %+v, %v", r, err)
	}
	if m, err := readMark(f.Place(pool)); err != nil || m != r.mark {
		t.Errorf("marked as %v, %v; want %v", m, err, r.mark)
	}
	check.Report(t, nodeops.ProvenEmpty(t.Context(), other)) // the other disk
	f.put(pool, "data")
	f.unmount(pool)
	f.mount(pool, device, other)
	f.keeps(pool, "data")
}

// inProgress is the offset of the byte in the superblock that mkfs.xfs sets while it runs.
const inProgress = 126

func TestKill_MkfsIsRepeatedOnTheSameDisk(t *testing.T) {
	f := newFixture(t)
	device, other := hostfs.Disk(t, size), hostfs.Disk(t, size)
	f.mount(pool, device)
	r := f.pending()
	hostfs.Overwrite(t, device, inProgress, 1)
	f.mount(pool, device, other)
	f.isOn(pool, device)
	if now, err := f.recorded(pool); err != nil || now == nil || now.UUID != r.UUID || !now.Ready {
		t.Errorf("recorded is %+v, %v", now, err)
	}
}

// pending restores the record to its state before the disk was marked, and returns it.
func (f *fixture) pending() *record {
	f.Helper()
	f.unmount(pool)
	r := check.Got(f.recorded(pool))(f.T)
	r.Ready = false
	check.OK(f.T, f.save(r))
	return r
}

func TestKill_DiskWithForeignDataByThenIsLeftAlone(t *testing.T) {
	f, device := onDisk(t)
	f.put(pool, "theirs")
	check.OK(t, os.Remove(filepath.Join(f.Place(pool), markFile)))
	f.pending()
	f.refused(pool, paths(device), "theirs")
}

func TestKill_ReadyDiskIsNeverFormattedAgain(t *testing.T) {
	f, device := onDisk(t)
	f.put(pool, "data")
	f.unmount(pool)
	hostfs.Overwrite(t, device, inProgress, 1) // damage
	before := hostfs.Content(t, device)
	f.refused(pool, paths(device), "xfs_repair")
	if hostfs.Content(t, device) != before {
		t.Error("it was changed")
	}
}
