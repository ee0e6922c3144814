package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// withoutFiles creates files in a directory until the file system has no inodes left, and returns them.
func withoutFiles(t *testing.T, dir string) (made []string) {
	t.Helper()
	for i := 0; ; i++ {
		f, err := os.Create(filepath.Join(dir, fmt.Sprint(i)))
		if errors.Is(err, unix.ENOSPC) {
			return made
		}
		check.OK(t, err)
		f.Close()
		made = append(made, f.Name())
	}
}

// few is a pool on a file system with few inodes, beside a directory of other files.
func few(t *testing.T) (b *Backend, others string) {
	t.Helper()
	top := hostfs.New(t, hostfs.Ext4, 32<<20)
	c := PoolConfig{Name: "pool", Engine: "image", Path: filepath.Join(top, "pool"), Reserved: "0"}
	others = filepath.Join(top, "others")
	check.OK(t, errors.Join(os.Mkdir(c.Path, 0o755), os.Mkdir(others, 0o755)))
	return served(t, c), others
}

func TestTrash_GivesTheFilesThatAreNeededAndNoMore(t *testing.T) {
	b, others := few(t)
	for _, name := range []string{"a", "b", "c"} {
		made(t, b, block(name))
	}
	deleted(t, b, "b", "a", "c")
	withoutFiles(t, others)
	made(t, b, block("new")) // uses 4 inodes; each in the trash frees 3
	keeps(t, b, "c")
	deleted(t, b, "new")
	keeps(t, b, "new", "c")
}

func TestInodes_PoolWithoutFreeOnesRefusesAndReportsIt(t *testing.T) {
	b, others := few(t)
	made(t, b, block("a"))
	deleted(t, b, "a")
	made(t, b, block("stays"))
	taken := withoutFiles(t, others)
	fails(b.Create(t.Context(), block("b")))(t, backend.ErrExhausted, "b needs 4 inodes", "0 of")
	keeps(t, b, "a") // which would not have sufficed
	deleted(t, b, "stays")
	check.OK(t, errors.Join(os.Remove(taken[0]), os.Remove(taken[1])))
	made(t, b, block("b"))
}

func TestTrash_GivesWayWhenThereAreFewFilesLeft(t *testing.T) {
	b, others := few(t)
	made(t, b, block("a"))
	deleted(t, b, "a")
	p := b.pools()[0]
	check.OK(t, p.evictForReserve(t.Context()))
	keeps(t, b, "a")
	withoutFiles(t, others)
	check.OK(t, p.evictForReserve(t.Context()))
	keeps(t, b)
}
