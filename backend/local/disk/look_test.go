package disk

import (
	"os"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// looked returns the states of disks, in the order in which they are shown.
func (f *fixture) looked(count int, which nodeops.DeviceSelector, of ...string) (states []State, why string) {
	f.Helper()
	for _, s := range check.Got(f.Look(f.Context(), which, count))(f.T) {
		for _, device := range of {
			if s.Path == device {
				states, why = append(states, s.State), why+s.Path+": "+s.Why+"\n"
			}
		}
	}
	return states, why
}

func (f *fixture) looks(count int, which nodeops.DeviceSelector, of []string, want ...State) (why string) {
	f.Helper()
	var states []State
	tick := 0
	for { // another program may have a disk open for a moment: mount and udev open all of them
		states, why = f.looked(count, which, of...)
		if tick++; tick == 1000 || !strings.Contains(why, "has it open") {
			break
		}
	}
	if len(states) != len(want) {
		f.Fatalf("seen %v, want %v: %s", states, want, why)
	}
	for i := range want {
		if states[i] != want[i] {
			f.Errorf("seen %v, want %v: %s", states, want, why)
		}
	}
	return why
}

func TestLook_SaysWhatANewPoolWouldTakeAndChangesNothing(t *testing.T) {
	f := newFixture(t)
	of, full, first, second := hostfs.Disk(t, size), hostfs.Disk(t, size), hostfs.Disk(t, size), hostfs.Disk(t, size)
	all := []string{of, full, first, second}
	shell(t, "mkfs.ext4", "-q", "-F", full)
	if why := f.looks(1, paths(all...), all, WouldTake, Refused, Free, Free); !strings.Contains(why, full+": ") || !strings.Contains(why, "ext4") {
		t.Errorf("it says %s", why)
	}
	if left, err := os.ReadDir(f.Dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
	f.mount(pool, of)
	if why := f.looks(1, paths(all...), all, OfPool, Refused, WouldTake, Free); !strings.Contains(why, of+": "+pool) {
		t.Errorf("it says %s", why)
	}
	f.looks(2, paths(all...), all, OfPool, Refused, WouldTake, WouldTake)
	f.looks(1, paths(second), []string{of, second}, WouldTake, OfPool)
	f.looks(1, anyDisk, all, OfPool) // loop devices are no disks, but for that of a pool
	f.unmount(pool)
	f.looks(1, paths(all...), all, OfPool, Refused, WouldTake, Free)
	f.mount("next", first) // what is said is what is done
	f.looks(1, paths(all...), all, OfPool, Refused, OfPool, WouldTake)
}
