package hostfs

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// lingering makes the test below play the run that is killed.
const lingering = "HOLDFAST_TEST_LINGERS"

func TestRun_KilledLeavesNoMountAndTheNextNoLoopDevice(t *testing.T) {
	if os.Getenv(lingering) != "" {
		linger(t)
	}
	RequireRoot(t)
	cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), lingering+"=1", insideVariable+"=")
	stdout := check.Got(cmd.StdoutPipe())(t)
	check.OK(t, cmd.Start())
	ready := check.Got(bufio.NewReader(stdout).ReadString('\n'))(t)
	dir := strings.TrimSpace(ready)
	during := attachments(t, filepath.Join(filepath.Dir(dir), "disk"))
	if len(during) != 2 {
		t.Errorf("attached during the run: %v, want the disk and the file on it", during)
	}
	check.OK(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed on purpose
	// The kernel takes the namespace down after the process has ended, and does not report when.
	wait.Until(t, "the end of what was attached", func() bool { sweep(); return !slices.ContainsFunc(during, attachment.lasts) })
	if mounts, err := os.ReadFile("/proc/1/mounts"); err != nil || strings.Contains(string(mounts), dir) {
		t.Errorf("%s is still mounted, %v", dir, err)
	}
	if _, err := os.Stat(filepath.Dir(dir)); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}

func TestPowerCut_KeepsTheDiskAndLosesTheMemory(t *testing.T) {
	for _, k := range []Kind{XFS, Ext4, Btrfs} {
		t.Run(k.Name, func(t *testing.T) {
			dir := New(t, k, 512<<20)
			for _, name := range []string{"synced", "written"} {
				check.OK(t, os.WriteFile(filepath.Join(dir, name), []byte("content"), 0o600))
				if name == "synced" {
					run(t, "sync", "--file-system", dir)
				}
			}
			left := Cut(t, k, dir)
			if got, err := os.ReadFile(filepath.Join(left, "synced")); err != nil || string(got) != "content" {
				t.Errorf("of what was synced is left %q, %v", got, err)
			}
			if got, err := os.ReadFile(filepath.Join(left, "written")); !os.IsNotExist(err) {
				t.Errorf("of what was not synced is left %q, %v", got, err)
			}
		})
	}
}

// linger makes a file system with a file that is attached by hand, says where, and waits for its end.
func linger(t *testing.T) {
	dir := New(t, XFS, 1<<30)
	file := filepath.Join(dir, "image")
	check.OK(t, os.WriteFile(file, make([]byte, 1<<20), 0o600))
	run(t, "losetup", "--find", file)
	check.Got(os.Stdout.WriteString(dir + "\n"))(t)
	for {
		_ = unix.Pause() // until the kill
	}
}

// attachment is a file that a loop device is attached to; other tests attach others at the same time.
type attachment struct {
	device      string
	file, inode uint64
}

// attachments finds the device over a disk and those over files on it.
func attachments(t *testing.T, disk string) (found []attachment) {
	t.Helper()
	var file, device unix.Stat_t
	check.OK(t, unix.Stat(disk, &file))
	devices := check.Got(filepath.Glob("/dev/loop[0-9]*"))(t)
	for range 2 { // first the disk, then what is on it
		eachLoop(devices, func(f *os.File, info *unix.LoopInfo64) {
			a := attachment{f.Name(), info.Device, info.Inode}
			overDisk := info.Device == file.Dev && info.Inode == file.Ino
			if overDisk && unix.Fstat(int(f.Fd()), &device) != nil || slices.Contains(found, a) {
				return
			}
			if overDisk || device.Rdev != 0 && info.Device == device.Rdev {
				found = append(found, a)
			}
		})
	}
	return found
}

func (a attachment) lasts() (lasts bool) {
	eachLoop([]string{a.device}, func(_ *os.File, info *unix.LoopInfo64) {
		lasts = info.Device == a.file && info.Inode == a.inode
	})
	return lasts
}
