package hostfs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// insideVariable says to the test binary that it runs in a mount namespace of its own.
const insideVariable = "HOLDFAST_TEST_INSIDE"

// Main runs a package's tests in a mount namespace of their own, so that a run that is killed leaves no mount: the
// kernel takes the namespace down with its last process. Loop devices that were kept by hand are detached afterwards,
// or by the next run. Without root there is nothing to keep apart.
func Main(m *testing.M) int { return Inside(m.Run) }

// Inside is Main for a package that has more to do around its tests.
func Inside(run func() int) int {
	if os.Geteuid() != 0 {
		return run()
	}
	if parent := os.Getenv(insideVariable); parent != "" {
		if parent == strconv.Itoa(os.Getppid()) {
			if err := followUnmounts(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
		return run()
	}
	sweep()
	defer sweep()
	// The inner process is killed when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), insideVariable+"="+strconv.Itoa(os.Getpid()))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT)
	defer signal.Stop(signals)
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s) // it may have ended
		}
	}()
	if err := cmd.Wait(); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() > 0 {
			return exit.ExitCode()
		}
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// followUnmounts keeps the mounts of this namespace out of the one it was copied from, but not the other way round: a
// volume of a node that runs beside the tests could not be detached from its device as long as they have it mounted.
func followUnmounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("mounts of their own for the tests: %w", err)
	}
	return nil
}

// scratchPrefix begins the directories of tests, before the id of the process that removes them.
const scratchPrefix = "holdfast-test-"

// scratch makes a directory that says whose it is.
func scratch() (string, error) {
	owner := os.Getenv(insideVariable)
	if owner == "" {
		owner = strconv.Itoa(os.Getpid())
	}
	return os.MkdirTemp("", scratchPrefix+owner+"-")
}

// scratchOf makes one that ends with the test.
func scratchOf(t testing.TB) string {
	t.Helper()
	dir := check.Got(scratch())(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Scratch makes a directory for a process that writes to it until it is killed. It is removed when the test ends, or by
// the next run of a package with Main if this one is killed.
func Scratch() (dir string, remove func() error, err error) {
	dir, err = scratch()
	return dir, func() error { return os.RemoveAll(dir) }, err
}

// sweep detaches the loop devices on disks of runs that are over, with those on files inside such disks, and removes
// the disks.
func sweep() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), scratchPrefix+"*-*")) // the pattern is well formed
	for _, dir := range dirs {
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), scratchPrefix), "-")
		pid, err := strconv.Atoi(owner)
		if err != nil || pid != os.Getpid() && !errors.Is(syscall.Kill(pid, 0), unix.ESRCH) {
			continue
		}
		detachOn(filepath.Join(dir, "disk"))
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// detachOn detaches the devices over a file, after those over files of the file systems on them.
func detachOn(path string) {
	var file unix.Stat_t
	if unix.Stat(path, &file) != nil {
		return
	}
	devices, _ := filepath.Glob("/dev/loop[0-9]*")
	eachLoop(devices, func(outer *os.File, o *unix.LoopInfo64) {
		if o.Device != file.Dev || o.Inode != file.Ino {
			return
		}
		var st unix.Stat_t
		if unix.Fstat(int(outer.Fd()), &st) != nil {
			return
		}
		eachLoop(devices, func(inner *os.File, i *unix.LoopInfo64) {
			if i.Device == st.Rdev {
				clearLoop(inner)
			}
		})
		clearLoop(outer)
	})
}

func eachLoop(devices []string, visit func(*os.File, *unix.LoopInfo64)) {
	for _, device := range devices {
		f, err := os.Open(device)
		if err != nil {
			continue
		}
		if info, err := unix.IoctlLoopGetStatus64(int(f.Fd())); err == nil {
			visit(f, info)
		}
		f.Close()
	}
}

func clearLoop(f *os.File) {
	if err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		fmt.Fprintf(os.Stderr, "detaching %s: %v\n", f.Name(), err)
	}
}
