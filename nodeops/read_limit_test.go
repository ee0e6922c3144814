package nodeops

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// shareZeros makes a file that shares the same blocks of zeros, and returns its size.
func shareZeros(t testing.TB, path string, times int64) int64 {
	t.Helper()
	const length int64 = 16 * mib
	f := check.Got(os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600))(t)
	defer f.Close()
	check.Got(f.WriteAt(make([]byte, length), 0))(t)
	for i := int64(1); i < times; i++ {
		if err := unix.IoctlFileCloneRange(int(f.Fd()), &unix.FileCloneRange{Src_fd: int64(f.Fd()), Src_length: uint64(length), Dest_offset: uint64(i * length)}); err != nil { //nolint:gosec // small
			t.Fatal(err)
		}
	}
	return times * length
}

func TestSyncTree_ZerosInSharedBlocksAreNotReadForever(t *testing.T) {
	src := newFS(t, "btrfs", 128*mib)
	path := filepath.Join(src, "zeros")
	large := newFS(t, "ext4", 512*mib)
	shareZeros(t, path, 2)
	syncAndCompare(t, large, src)

	size := shareZeros(t, path, 16*128/16+1)
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, ErrTooMuch) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), fmt.Sprint(16*128*mib)) || !strings.Contains(err.Error(), "--dig-holes") {
			t.Errorf("%s: %v", what, err)
		}
	}
	small := newFS(t, "ext4", 16*mib)
	_, err := SyncTree(t.Context(), small, src, ignore)
	refused("the copy", err)
	syncAndCompare(t, large, src) // into which it would fit

	check.OK(t, errors.Join(os.RemoveAll(filepath.Join(small, "zeros")), os.Truncate(write(t, filepath.Join(small, "zeros"), ""), size)))
	for _, dir := range []string{src, small} {
		check.OK(t, errors.Join(os.Chmod(filepath.Join(dir, "zeros"), 0o600), os.Chtimes(filepath.Join(dir, "zeros"), time.Unix(1, 0), time.Unix(1, 0))))
	}
	if _, err := SyncTree(t.Context(), small, src, ignore); err != nil {
		t.Fatalf("what is copied already counts: %v", err)
	}
	_, err = CompareTrees(t.Context(), small, src, true, ignore)
	refused("the comparison", err)
}

func TestReadLimit_OfSizesThatAreHugeOrNotKnown(t *testing.T) {
	for _, l := range []*readLimit{nil, {}, {source: math.MaxInt64}, {source: 1, target: math.MaxInt64 / 2}} {
		check.Report(t, l.add(os.Stdin, math.MaxInt64/2))
	}
}
