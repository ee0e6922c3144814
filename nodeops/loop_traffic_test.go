package nodeops

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// aligned is memory for direct I/O.
func aligned(size int) []byte {
	buffer := make([]byte, size+sectorSize)
	offset := -int(uintptr(unsafe.Pointer(&buffer[0]))) & (sectorSize - 1)
	return buffer[offset : offset+size]
}

// moved returns the I/O counters of what do does.
func moved(t *testing.T, device string, do func()) Traffic {
	t.Helper()
	before := check.Got(LoopTraffic(device))(t)
	do()
	after := check.Got(LoopTraffic(device))(t)
	return after.since(before)
}

func TestTraffic_OfALoopDeviceIsExactlyWhatWasWrittenAndRead(t *testing.T) {
	image := t.TempDir() + "/image"
	newSparse(t, image, 16*mib)
	l := attach(t, image, LoopOptions{Autoclear: true})
	f := check.Got(os.OpenFile(l.Path, os.O_RDWR|unix.O_DIRECT, 0))(t)
	defer f.Close() // udev, which waits for the last writer to close, then runs after the test
	const requests, size = 7, 64 << 10
	buffer := aligned(size)
	written := moved(t, l.Path, func() {
		for i := range requests {
			check.Got(f.WriteAt(buffer, int64(i*size)))(t)
		}
	})
	if written.WrittenBytes != requests*size || written.Writes != requests {
		t.Errorf("%d writes of %d bytes are counted as %+v", requests, size, written)
	}
	var read Traffic
	for range 10 { // udev may read too
		read = moved(t, l.Path, func() {
			check.Got(f.ReadAt(buffer, 0))(t)
		})
		if read == (Traffic{Reads: 1, ReadBytes: size}) {
			return
		}
	}
	t.Errorf("a read of %d bytes is counted as %+v", size, read)
}

func TestTraffic_OfAnotherFileOnTheSameDeviceIsNotCounted(t *testing.T) {
	requireRoot(t)
	image := t.TempDir() + "/image"
	newSparse(t, image, 16*mib)
	var device string
	for i := range 20 {
		l := attach(t, image, LoopOptions{Autoclear: true})
		check.OK(t, os.WriteFile(l.Path, make([]byte, mib), 0))
		check.OK(t, SyncDevice(l.Path))
		if got, err := LoopTraffic(l.Path); err != nil || got.WrittenBytes != uint64(mib) {
			t.Errorf("use %d of %s: %d bytes written are %+v, %v", i, l.Path, mib, got, err)
		}
		check.OK(t, l.Detach(t.Context()))
		if l.Path == device {
			return
		}
		device = l.Path
	}
	t.Skip("other processes took the device each time")
}

func TestTraffic_BeginsAgainWithAnotherAttachment(t *testing.T) {
	c := attachmentCounts{of: map[string]attachmentCount{}}
	at := func(n uint64) Traffic { return Traffic{n, n, n, n} }
	for i, step := range []struct {
		attachment string
		now, want  uint64
	}{{"1", 5, 5}, {"1", 9, 5}, {"2", 12, 12}, {"2", 13, 12}, {"2", 1, 1}, {"2", 2, 1}} {
		if got := c.begin("/dev/loop7", step.attachment, at(step.now)); got != at(step.want) {
			t.Errorf("%d: it begins with %+v", i, got)
		}
	}
}

func TestTraffic_OfWhatIsNoDeviceIsAnError(t *testing.T) {
	check.Fails(t, check.ErrorOf(LoopTraffic("/dev/nothing")), nil)
}
