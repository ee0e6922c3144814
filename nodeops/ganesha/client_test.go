package ganesha

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// requireClient skips a test if the kernel cannot mount NFS.
func requireClient(t *testing.T) {
	t.Helper()
	requireGanesha(t)
	if err := unix.Mount("", t.TempDir(), "nfs4", 0, ""); errors.Is(err, unix.ENODEV) {
		hostfs.Skip(t, "nfs", "this kernel has no NFS client")
	}
}

// mount mounts an export by its pseudo path.
func (r *running) mount(pseudo string) string {
	r.t.Helper()
	target, err := os.MkdirTemp("", "holdfast-client-")
	check.OK(r.t, errors.Join(err, os.Chmod(target, 0o755)))
	r.t.Cleanup(func() { os.Remove(target) })
	r.t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_FORCE|unix.MNT_DETACH) }) // it may be unmounted already
	if err := r.tryMount(pseudo, target); err != nil {
		r.t.Fatalf("mounting %s: %v", pseudo, err)
	}
	return target
}

func (r *running) tryMount(pseudo, target string) error {
	options := fmt.Sprintf("vers=4.2,proto=tcp,port=%d,addr=127.0.0.1,clientaddr=127.0.0.1,sec=sys,hard,timeo=20,retrans=1", r.config.Port)
	return unix.Mount("127.0.0.1:"+pseudo, target, "nfs4", 0, options)
}

// holder is a client that has written and locked a file. It is a process of its own: a process with an open file of a
// dead server cannot start another.
type holder struct {
	r        *running
	commands io.WriteCloser
	answers  chan string
	target   string // of the mount
	file     string // as the client names it
	served   string // path of the file on the server
	want     string // its expected content
	release  func()
}

const holderVariable = "HOLDFAST_TEST_HOLDS"

// hold runs in the client: it appends each line of its input to the file, and prints the result.
func hold(name string) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	}
	all := ""
	for lines := bufio.NewScanner(os.Stdin); err == nil && lines.Scan(); {
		all += lines.Text() + "\n"
		_, err := f.WriteString(lines.Text() + "\n")
		content := make([]byte, len(all))
		if err = errors.Join(err, f.Sync()); err == nil {
			_, err = f.ReadAt(content, 0)
		}
		switch {
		case errors.Is(err, unix.ESTALE):
			fmt.Println("ESTALE")
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Printf("%q\n", content)
		}
	}
	if err != nil {
		fmt.Println(err)
	}
	os.Exit(0)
}

// holder mounts an export and starts a client that uses it.
func (r *running) holder(e Export) *holder {
	r.t.Helper()
	target := r.mount(e.Pseudo)
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestMain$")
	cmd.Env = append(os.Environ(), holderVariable+"="+filepath.Join(target, "file"))
	commands := check.Got(cmd.StdinPipe())(r.t)
	stdout := check.Got(cmd.StdoutPipe())(r.t)
	check.OK(r.t, cmd.Start())
	h := &holder{
		r: r, commands: commands, answers: make(chan string), target: target, file: filepath.Join(target, "file"), served: filepath.Join(e.Path, "file"),
	}
	gone, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			select {
			case h.answers <- lines.Text():
			case <-gone:
			}
		}
		_ = cmd.Wait() // perhaps it was killed
	}()
	h.release = sync.OnceFunc(func() {
		close(gone)
		commands.Close()
		cmd.Process.Kill()
		select {
		case <-over:
		case <-time.After(patient):
			r.t.Error("the client cannot be killed")
		}
	})
	r.t.Cleanup(h.release)
	h.goesOn("at first")
	return h
}

// end ends the client, and unmounts.
func (h *holder) end() {
	h.r.t.Helper()
	h.release()
	unmount(h.r.t, h.target)
}

// write makes the client append a line, and returns what it prints.
func (h *holder) write(line string) string {
	h.r.t.Helper()
	check.Got(io.WriteString(h.commands, line+"\n"))(h.r.t)
	select {
	case answer := <-h.answers:
		return answer
	case <-time.After(patient):
		h.r.t.Fatalf("the client hangs: %s", line)
		return ""
	}
}

// goesOn makes the client append a line, which must arrive on the server's disk, with the lock still held, and which another process
// of the client must be able to read.
func (h *holder) goesOn(after string) {
	h.r.t.Helper()
	h.want += after + "\n"
	if answer := h.write(after); answer != strconv.Quote(h.want) {
		h.r.t.Fatalf("%s the client reads %s, want %q", after, answer, h.want)
	}
	if got, err := os.ReadFile(h.served); err != nil || string(got) != h.want {
		h.r.t.Errorf("%s the server has %q, %v, want %q", after, got, err, h.want)
	}
	ctx, cancel := context.WithTimeout(h.r.t.Context(), patient)
	defer cancel()
	if got, err := exec.CommandContext(ctx, "cat", h.file).CombinedOutput(); err != nil || string(got) != h.want {
		h.r.t.Errorf("%s another process reads %q, %v, want %q", after, got, err, h.want)
	}
	f := check.Got(os.OpenFile(h.served, os.O_RDWR, 0))(h.r.t)
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock); err != nil || lock.Type != unix.F_WRLCK {
		h.r.t.Errorf("%s the lock is of type %d, %v: the client has lost it", after, lock.Type, err)
	}
}

func TestClients_KeepFilesAndLocksOverFaultsOfTheServer(t *testing.T) {
	requireClient(t)
	one := exportOf(1, hostfs.New(t, hostfs.Ext4, 64<<20))
	c := testConfig(t)
	c.Patience = 3 * time.Second
	r := runWith(t, c, one)
	r.up()
	h := r.holder(one)
	if clients, err := r.Clients(t.Context()); err != nil || !slices.Equal(clients, []string{"127.0.0.1"}) {
		t.Errorf("the clients are %v, %v", clients, err)
	}
	for _, harm := range []struct {
		after string
		to    func(*process) *child
		with  unix.Signal
	}{
		{"after the death of Ganesha", func(l *process) *child { return l.ganesha }, unix.SIGKILL},
		{"after Ganesha hung", func(l *process) *child { return l.ganesha }, unix.SIGSTOP},
		{"after the death of the bus", func(l *process) *child { return l.bus }, unix.SIGKILL},
	} {
		l := r.up()
		signal(t, harm.to(l), harm.with)
		h.goesOn(harm.after)
		<-l.ganesha.done
		h.goesOn(harm.after + " at the latest")
	}
	anybody := uint32(4242)
	one.AnonUID = &anybody
	r.put(one)
	h.goesOn("after a change of the export")
	r.stop()
	runWith(t, c, one)
	h.goesOn("after the server's stop")
	h.end()
}

// unmount is for mounts of a server that answers; otherwise it takes long.
func unmount(t *testing.T, target string) {
	t.Helper()
	if err := unix.Unmount(target, 0); err != nil {
		t.Errorf("unmounting %s: %v", target, err)
	}
}

func TestClients_OfARemovedExportGetESTALEAndNoForeignData(t *testing.T) {
	requireClient(t)
	one, other := exportOf(1, hostfs.New(t, hostfs.Ext4, 64<<20)), hostfs.New(t, hostfs.Ext4, 64<<20)
	r := run(t, one, newExport(t, 2))
	r.up()
	h := r.holder(one)
	check.OK(t, os.WriteFile(filepath.Join(other, "file"), []byte("another's\n"), 0o600))
	check.OK(t, r.Remove(r.within(), 1))
	stale := func(when string) {
		t.Helper()
		if answer := h.write(when); answer != "ESTALE" {
			t.Errorf("%s the client is answered %s, want ESTALE", when, answer)
		}
		if names, err := os.ReadDir(h.target); !errors.Is(err, unix.ESTALE) {
			t.Errorf("%s the client lists %v, %v, want ESTALE", when, names, err)
		}
	}
	stale("after its removal")
	check.Report(t, unix.Unmount(one.Path, 0)) // with a client that had a file open
	r.put(exportOf(1, other))                  // the same id
	stale("when its ID is another's")
	holds(t, filepath.Join(other, "file"), "another's\n")
}

func TestClients_SeeNoForbiddenExport(t *testing.T) {
	requireClient(t)
	one, hidden, readOnly := newExport(t, 1), newExport(t, 2), newExport(t, 3)
	hidden.Clients = []string{"10.9.9.9", "fd00::/8"}
	readOnly.Clients, readOnly.ReadOnly = []string{"127.0.0.0/8"}, true
	for _, e := range []Export{one, hidden, readOnly} {
		check.OK(t, os.WriteFile(filepath.Join(e.Path, "secret"), []byte(e.Path), 0o644))
	}
	r := run(t, one, hidden, readOnly)
	r.up()
	root := r.mount("/")
	entries, err := os.ReadDir(root)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if err != nil || !slices.Equal(names, []string{"volume-1", "volume-3"}) {
		t.Errorf("the root shows %v, %v", names, err)
	}
	check.Fails(t, check.ErrorOf(os.ReadFile(filepath.Join(root, "volume-2", "secret"))), unix.ENOENT)
	check.OK(t, os.Symlink(filepath.Join("..", filepath.Base(hidden.Path)), filepath.Join(one.Path, "out")))
	for _, pseudo := range []string{hidden.Pseudo, hidden.Path, "/volume-1/../volume-2", "/volume-1/..", "/volume-1/out", filepath.Dir(one.Path)} {
		target := t.TempDir()
		if r.tryMount(pseudo, target) != nil {
			continue
		}
		if got, err := os.ReadFile(filepath.Join(target, "secret")); err == nil {
			t.Errorf("%s can be mounted and shows %s", pseudo, got)
		}
		unmount(t, target)
	}
	check.Fails(t, os.WriteFile(filepath.Join(root, "file"), nil, 0o600), nil)
	target := r.mount(readOnly.Pseudo)
	holds(t, filepath.Join(target, "secret"), readOnly.Path)
	check.Fails(t, os.WriteFile(filepath.Join(target, "file"), nil, 0o600), unix.EROFS)
}

func TestClients_IdentityFollowsTheSquash(t *testing.T) {
	requireClient(t)
	id := uint32(4242)
	for squash, want := range map[Squash][2]uint32{NoRootSquash: {0, 1000}, RootSquash: {id, 1000}, AllSquash: {id, id}} {
		e := newExport(t, 1)
		e.Squash, e.AnonUID, e.AnonGID = squash, &id, &id
		check.OK(t, os.Chmod(e.Path, 0o777))
		r := run(t, e)
		r.up()
		target := r.mount(e.Pseudo)
		for i, uid := range []int{0, 1000} {
			file := fmt.Sprintf("of-%d", uid)
			command(t, "setpriv", fmt.Sprintf("--reuid=%d", uid), "--clear-groups", "touch", filepath.Join(target, file))
			var st unix.Stat_t
			if err := unix.Stat(filepath.Join(e.Path, file), &st); err != nil || st.Uid != want[i] {
				t.Errorf("%s: what %d makes belongs to %d, %v, want %d", squash, uid, st.Uid, err, want[i])
			}
		}
		unmount(t, target)
		r.stop()
	}
}
