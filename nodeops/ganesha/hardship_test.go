package ganesha

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// fillUp fills a file system.
func fillUp(t *testing.T, dir string) {
	t.Helper()
	f := check.Got(os.Create(filepath.Join(dir, "fill")))(t)
	defer f.Close()
	for _, size := range []int{1 << 20, 1 << 10} {
		var err error
		for err == nil {
			_, err = f.Write(make([]byte, size))
		}
		check.Fails(t, err, unix.ENOSPC)
	}
}

func TestClients_KeepFilesAndLocksOfAServerWhoseStorageIsFull(t *testing.T) {
	requireClient(t)
	c := testConfig(t)
	full, one := hostfs.New(t, hostfs.Ext4, 16<<20), exportOf(1, hostfs.New(t, hostfs.Ext4, 64<<20))
	c.RecoveryDir = filepath.Join(full, "recovery")
	r := runWith(t, c, one)
	r.up()
	h := r.holder(one)
	fillUp(t, full)
	for _, after := range []string{"after a death", "after another"} {
		r.kill()
		h.goesOn(after)
	}
	h.end()
}

func TestClients_ThatReadContinueWithAServerThatLostTheirState(t *testing.T) {
	requireClient(t)
	c, e := testConfig(t), newExport(t, 1)
	e.ReadOnly = true
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	check.OK(t, os.WriteFile(filepath.Join(e.Path, "file"), content, 0o644))
	r := runWith(t, c, e)
	r.up()
	target := r.mount(e.Pseudo)
	f := check.Got(os.OpenFile(filepath.Join(target, "file"), os.O_RDONLY|unix.O_DIRECT, 0))(t)
	defer f.Close()
	reads := func(when string) {
		t.Helper()
		done := make(chan error, 1)
		go func() {
			got := make([]byte, len(content))
			_, err := f.ReadAt(got, 0)
			if err == nil && !bytes.Equal(got, content) {
				err = errors.New("it is another's content")
			}
			done <- err
		}()
		select {
		case err := <-done:
			check.Report(t, err)
		case <-time.After(patient):
			t.Fatalf("%s the client hangs", when)
		}
	}
	reads("at first")
	r.stop()
	check.OK(t, os.RemoveAll(c.RecoveryDir)) // as with a pod without persistent storage
	runWith(t, c, e)
	reads("when the server has moved")
	f.Close()
	unmount(t, target)
}

func TestClients_UseEachOfAThousandExports(t *testing.T) {
	requireClient(t)
	exports := thousand(t)
	r := run(t, exports...)
	r.up()
	for _, e := range []Export{exports[0], exports[151], exports[999]} {
		target := r.mount(e.Pseudo)
		content := bytes.Repeat(fmt.Appendf(nil, "%16d", e.ID), 1<<16)
		check.Report(t, os.WriteFile(filepath.Join(target, "file"), content, 0o600))
		unmount(t, target)
		if got, err := os.ReadFile(filepath.Join(e.Path, "file")); err != nil || !bytes.Equal(got, content) {
			t.Errorf("export %d has %d bytes, %v", e.ID, len(got), err)
		}
	}
}

// openerVariable has the directory in which a child process opens many files.
const (
	openerVariable = "HOLDFAST_TEST_OPENS"
	manyFiles      = 200
)

// openMany runs in that process: it keeps all files open and prints a result for each.
func openMany(dir string) {
	for i := range manyFiles {
		f, err := os.OpenFile(filepath.Join(dir, "many-"+strconv.Itoa(i)), os.O_RDWR|os.O_CREATE, 0o600)
		if err == nil {
			_, err = f.WriteString("content")
			err = errors.Join(err, f.Sync())
		}
		if err != nil {
			fmt.Println(err)
		}
	}
	os.Exit(0)
}

// A client that opens one file too many gets an error at once; a client with an open file continues, and others do when
// files are closed.
func TestClients_OfAServerOutOfDescriptorsGetAnErrorAndNoneHangs(t *testing.T) {
	requireClient(t)
	c, e := testConfig(t), exportOf(1, hostfs.New(t, hostfs.Ext4, 64<<20))
	c.Patience = 3 * time.Second
	r := runWith(t, c, e)
	r.up()
	h := r.holder(e)
	before := r.up()
	open := check.Got(os.ReadDir(fmt.Sprintf("/proc/%d/fd", before.ganesha.pid)))(t)
	few := uint64(len(open) + 5)
	check.OK(t, unix.Prlimit(before.ganesha.pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: few, Max: few}, nil))
	opener := exec.CommandContext(r.within(), "/proc/self/exe", "-test.run=^TestMain$")
	opener.Env = append(os.Environ(), openerVariable+"="+h.target)
	said, err := opener.CombinedOutput()
	if err != nil || !strings.Contains(string(said), unix.EIO.Error()) {
		t.Errorf("opening %d files gave %v: %s", manyFiles, err, said)
	}
	h.goesOn("when it is over")
	check.Report(t, os.WriteFile(filepath.Join(h.target, "one-more"), nil, 0o600))
	h.end()
}

func thousand(t *testing.T) (exports []Export) {
	t.Helper()
	base := newExport(t, 1).Path
	for id := range uint16(1000) {
		e := exportOf(id+1, filepath.Join(base, fmt.Sprint(id)))
		check.OK(t, os.Mkdir(e.Path, 0o777))
		exports = append(exports, e)
	}
	return exports
}

func TestServer_ThousandExportsReturnAfterADeath(t *testing.T) {
	requireGanesha(t)
	exports := thousand(t)
	last := len(exports) - 1
	r := runWith(t, testConfig(t), exports[:last]...)
	l := r.up()
	signal(t, l.ganesha, unix.SIGKILL)
	r.put(exports[last])
	<-l.ganesha.done
	ids := check.Got(r.up().admin.exportIDs(r.within()))(t)
	slices.Sort(ids)
	for i, e := range exports {
		if i >= len(ids) || ids[i] != e.ID {
			t.Fatalf("of %d exports %d are served, and not number %d", len(exports), len(ids), e.ID)
		}
	}
}
