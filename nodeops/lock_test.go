package nodeops

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestLock_FileIsOpenedForWritingOnlyWhereNoOtherLockIsHeld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	check.OK(t, os.WriteFile(path, nil, 0o600))
	for reading, want := range map[int][]int{
		os.O_RDONLY: {os.O_RDONLY},
		unix.O_PATH: {os.O_RDONLY, os.O_RDWR}, // flock fails with EBADF for it, as on NFS
	} {
		var asked []int
		open := func(flag int) (*os.File, error) {
			asked = append(asked, flag)
			if flag == os.O_RDONLY {
				flag = reading
			}
			return os.OpenFile(path, flag, 0)
		}
		f := check.Got(Lock(open, unix.LOCK_EX|unix.LOCK_NB))(t)
		if !slices.Equal(asked, want) {
			t.Errorf("it was opened as %v, want %v", asked, want)
		}
		if _, err := Lock(open, unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
			t.Errorf("a second lock beside the first: %v", err)
		}
		f.Close()
	}
}

func TestLock_EndsWhenItIsClosedThoughAStartingCommandHasACopyOfTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	check.OK(t, os.WriteFile(path, nil, 0o600))
	open := func(flag int) (*os.File, error) { return os.OpenFile(path, flag, 0) }
	first, err := Lock(open, unix.LOCK_EX)
	check.OK(t, err)
	inherited, err := unix.Dup(int(first.Fd()))
	check.OK(t, err)
	defer unix.Close(inherited)
	check.OK(t, first.Close())
	second, err := Lock(open, unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		t.Fatalf("the next lock: %v", err)
	}
	second.Close()
}
