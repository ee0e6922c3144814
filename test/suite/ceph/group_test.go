//go:build ceph

package ceph

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph/rbd"
	"github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/uml"
)

const (
	writing = "WRITING"
	stop    = "stop" // a file that ends what writes
	block   = 4096
)

// sources are the volumes of the groups.
var sources = []backend.ID{"first", "then"}

// groupOfMapped takes group snapshots of two images that the second kernel has mapped. It writes a number to one and then to
// the other, again and again: at any instant the first is the same or one ahead.
func groupOfMapped(t *testing.T, c *ceph.Cluster, work string) {
	b := openRBD(t, readWorld(t, work))
	for _, id := range sources {
		if _, err := b.Create(t.Context(), backend.VolumeSpec{Name: string(id), Mode: backend.Block, Size: backend.Size{Required: mib}}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	begun, ended := make(chan struct{}), make(chan int, 1)
	said := &watched{word: writing, then: func() { close(begun) }}
	go func() {
		argv, env := guest("^TestGroupGuest_")
		status, err := uml.Run(ctx, machine(work), argv, env, io.MultiWriter(said, t.Output()))
		if err != nil {
			t.Error(err)
		}
		ended <- status
	}()
	select {
	case <-begun:
		for i := range 5 {
			numbers := groupNumbers(t, c, b, fmt.Sprintf("g%d", i))
			if len(numbers) < 2 || numbers[0] == 0 || numbers[0] != numbers[1] && numbers[0] != numbers[1]+1 {
				t.Errorf("group %d has %v, which never was", i, numbers)
			}
		}
		if v, err := b.Get(t.Context(), sources[0]); err != nil || v.Used != mib { // while the kernel has it mapped
			t.Errorf("it uses %+v, %v", v, err)
		}
		if err := os.WriteFile(filepath.Join(work, stop), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if status := <-ended; status != 0 {
			t.Errorf("what wrote ended with status %d; its log is above", status)
		}
	case status := <-ended:
		t.Errorf("what was to write ended with status %d; its log is above", status)
	}
}

// groupNumbers takes a group snapshot and reads what is in its members.
func groupNumbers(t *testing.T, c *ceph.Cluster, b *rbd.Backend, name string) (numbers []uint64) {
	t.Helper()
	g, err := b.SnapshotGroup(t.Context(), backend.GroupSpec{Name: name, Sources: sources})
	if err != nil {
		t.Error(err)
		return nil
	}
	for i, s := range g.Snapshots {
		v, err := b.Restore(t.Context(), s.ID, backend.VolumeSpec{Name: fmt.Sprintf("%s-%d", name, i)})
		if err != nil {
			t.Error(err)
			return nil
		}
		content := filepath.Join(t.TempDir(), "content")
		if _, err := c.Command(t.Context(), "rbd", "export", "--no-progress", pool+"/"+v.Access.RBD.Image, content); err != nil {
			t.Error(err)
			return nil
		}
		text, err := os.ReadFile(content)
		if err != nil {
			t.Error(err)
			return nil
		}
		numbers = append(numbers, binary.BigEndian.Uint64(text))
	}
	return numbers
}

func TestGroupGuest_WritesToTwoImagesWithoutAnError(t *testing.T) {
	ctx, w := onGuest(t)
	var files []*os.File
	for _, id := range sources {
		d := alsoMapped(ctx, t, w.image(t, id))
		f, err := os.OpenFile(d.Path, os.O_WRONLY|unix.O_DIRECT|unix.O_DSYNC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	content, err := unix.Mmap(-1, 0, block, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // as O_DIRECT needs it
	if err != nil {
		t.Fatal(err)
	}
	var longest time.Duration
	n := uint64(1)
	for ; ctx.Err() == nil; n++ {
		copy(content, binary.BigEndian.AppendUint64(nil, n))
		for _, f := range files {
			begin := time.Now()
			if _, err := f.WriteAt(content, 0); err != nil {
				t.Fatalf("write %d: %v", n, err)
			}
			longest = max(longest, time.Since(begin))
		}
		if n == 1 {
			fmt.Println(writing)
		}
		if _, err := os.Stat("/run/work/" + stop); err == nil {
			break
		}
	}
	t.Logf("%d writes to each, of which the longest took %s", n, longest)
}
