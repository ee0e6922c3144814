package ganesha

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestProcess_NoChildOutlivesAKilledServer(t *testing.T) {
	if os.Getenv("HOLDFAST_VICTIM") != "" {
		r := run(t, newExport(t, 1))
		l := r.up()
		fmt.Printf("%d %d\n", l.ganesha.pid, l.bus.pid)
		for {
			_ = unix.Pause() // until it is killed
		}
	}
	requireGanesha(t)
	dir := newExport(t, 1).Path // for its files
	victim := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	victim.Env = append(os.Environ(), "HOLDFAST_VICTIM=1", "TMPDIR="+dir)
	stdout := check.Got(victim.StdoutPipe())(t)
	check.OK(t, victim.Start())
	var pids [2]int
	check.Got(fmt.Fscanln(stdout, &pids[0], &pids[1]))(t)
	var fds []unix.PollFd
	for _, pid := range pids {
		fd := check.Got(unix.PidfdOpen(pid, 0))(t)
		defer unix.Close(fd)
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	check.OK(t, victim.Process.Kill())
	_ = victim.Wait() // it was killed
	for i := range fds {
		if n, err := poll(fds[i : i+1]); n != 1 || err != nil {
			t.Errorf("process %d still runs (%v)", pids[i], err)
			_ = unix.Kill(pids[i], unix.SIGKILL)
		}
	}
}

func poll(fds []unix.PollFd) (n int, err error) {
	for err = unix.EINTR; err == unix.EINTR; {
		n, err = unix.Poll(fds, int(patient.Milliseconds()))
	}
	return n, err
}

func TestProcess_HasOnlyThePortOfNFSAllFilesOfTheHostAndAGroupOfItsOwn(t *testing.T) {
	r := run(t, newExport(t, 1))
	l := r.up()
	for _, c := range []*child{l.ganesha, l.bus} {
		for socket, port := range listening(t, c.pid) {
			if port != int(r.config.Port) {
				t.Errorf("%s listens to port %d (%s)", c.name, port, socket)
			}
		}
		check.Same(t, check.Got(unix.Getpgid(c.pid))(t), c.pid) // a signal to our group reaches no child
	}
	check.Same(t, len(listening(t, l.ganesha.pid)), 1)
	var limit unix.Rlimit
	check.OK(t, unix.Prlimit(l.ganesha.pid, unix.RLIMIT_NOFILE, nil, &limit))
	if limit.Cur != limit.Max || limit.Max < 1024 {
		t.Errorf("it may open %d files, and could %d", limit.Cur, limit.Max)
	}
}

// listening returns the sockets on which a process listens, with their ports.
func listening(t *testing.T, pid int) map[string]int {
	t.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(fds) == 0 {
		t.Fatalf("process %d has the files %v, %v", pid, fds, err)
	}
	own := map[string]bool{}
	for _, fd := range fds {
		target, _ := os.Readlink(fd) // fails if it was closed in the meantime
		own[strings.Trim(strings.TrimPrefix(target, "socket:"), "[]")] = true
	}
	found := map[string]int{}
	for _, protocol := range []string{"tcp", "tcp6", "udp", "udp6"} {
		table := check.Got(os.ReadFile("/proc/net/" + protocol))(t)
		for line := range strings.Lines(string(table)) {
			f := strings.Fields(line)
			const listen, unconnected = "0A", "07"
			if len(f) < 10 || !own[f[9]] || f[3] != listen && f[3] != unconnected {
				continue
			}
			var port int
			check.Got(fmt.Sscanf(f[1][strings.LastIndex(f[1], ":"):], ":%X", &port))(t)
			found[protocol+" "+f[9]] = port
		}
	}
	return found
}

func TestProcess_WritesOnlyToItsOwnDirectories(t *testing.T) {
	requireGanesha(t)
	for _, dir := range []string{"/run", "/var/log"} { // in the mount namespace of the tests
		check.OK(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
		t.Cleanup(func() { check.Report(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	}
	e := exportOf(1, hostfs.New(t, hostfs.Ext4, 64<<20))
	r := run(t, e)
	r.up()
	r.stop()
	for _, dir := range []string{"/run", "/var/log", e.Path} {
		left, err := os.ReadDir(dir)
		for _, entry := range left {
			if entry.Name() != "lost+found" && entry.Name() != "mount" { // the latter belongs to mount
				t.Errorf("in %s lies %s", dir, entry.Name())
			}
		}
		check.Report(t, err)
	}
}
