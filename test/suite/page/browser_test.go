package page

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/nodeops/child"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// patience is how long anything may take. A machine that is busy with other tests is slow.
const patience = 3 * time.Minute

// chromium is one process for all tests of the package, to which DevTools messages go through a pipe: no port is opened,
// no library is needed, and the browser ends when the pipe does.
type chromium struct {
	cmd     *exec.Cmd
	ended   <-chan error
	profile string
	remove  func() error
	log     string

	mu       sync.Mutex
	in       *os.File
	last     int
	waiting  map[int]chan answer
	sessions map[string]func(method string, params json.RawMessage)
	broken   error
}

type answer struct {
	result json.RawMessage
	err    error
}

var (
	started   sync.Once
	shared    *chromium
	errShared error
)

// browser is the one of this package.
func browser(t *testing.T) *chromium {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		hostfs.Skip(t, "chromium", "needs Chromium: Debian's package chromium")
	}
	started.Do(func() { shared, errShared = startChromium(path) })
	check.OK(t, errShared)
	return shared
}

func startChromium(path string) (*chromium, error) {
	b := &chromium{waiting: map[int]chan answer{}, sessions: map[string]func(string, json.RawMessage){}}
	var err error
	if b.profile, b.remove, err = hostfs.Scratch(); err != nil {
		return nil, err
	}
	b.log = filepath.Join(b.profile, "log")
	log, err := os.Create(b.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	b.in = in
	flags := []string{
		"--headless=new", "--remote-debugging-pipe", "--user-data-dir=" + filepath.Join(b.profile, "profile"), "--disable-dev-shm-usage", "--disable-gpu",
		"--no-first-run", "--no-default-browser-check", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
		"--disable-breakpad", "--disable-crash-reporter", "--hide-scrollbars", "--force-color-profile=srgb", "--font-render-hinting=none", "--lang=en",
		"--ignore-certificate-errors", // the certificate of the API is tested with the API
		"--disable-renderer-backgrounding", "--disable-background-timer-throttling", "--disable-backgrounding-occluded-windows",
	}
	if os.Geteuid() == 0 {
		flags = append(flags, "--no-sandbox") // which Chromium has for other users only
	}
	b.cmd = exec.Command(path, append(flags, "about:blank")...)
	b.cmd.Env = append(os.Environ(), "HOME="+b.profile, "XDG_CONFIG_HOME="+b.profile, "XDG_CACHE_HOME="+b.profile, "DBUS_SESSION_BUS_ADDRESS=disabled:")
	b.cmd.Stdout, b.cmd.Stderr = log, log
	b.cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	b.ended, err = child.Start(b.cmd)
	theirIn.Close()
	theirOut.Close()
	if err != nil {
		return nil, err
	}
	go b.listen(out)
	return b, nil
}

// stop kills the browser with all processes of its group, and removes what it has written.
func (b *chromium) stop() error {
	b.in.Close()
	if err := unix.Kill(-b.cmd.Process.Pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	if err := <-b.ended; err == nil {
		return errors.New("Chromium ended by itself")
	}
	return b.remove()
}

func (b *chromium) listen(out *os.File) {
	defer out.Close()
	lines := bufio.NewReaderSize(out, 1<<20)
	for {
		text, err := lines.ReadBytes(0)
		if err != nil {
			log, _ := os.ReadFile(b.log)
			b.fail(fmt.Errorf("Chromium has ended: %w:\n%s", err, log))
			return
		}
		var m struct {
			ID        int
			SessionID string
			Method    string
			Params    json.RawMessage
			Result    json.RawMessage
			Error     *struct{ Message string }
		}
		if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
			b.fail(err)
			return
		}
		b.mu.Lock()
		if m.Method != "" {
			if listener := b.sessions[m.SessionID]; listener != nil {
				listener(m.Method, m.Params)
			}
		} else if waiting := b.waiting[m.ID]; waiting != nil {
			delete(b.waiting, m.ID)
			a := answer{result: m.Result}
			if m.Error != nil {
				a.err = errors.New(m.Error.Message)
			}
			waiting <- a
		}
		b.mu.Unlock()
	}
}

func (b *chromium) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken = err
	for id, waiting := range b.waiting {
		waiting <- answer{err: err}
		delete(b.waiting, id)
	}
}

// send writes a message without waiting for its answer.
func (b *chromium) send(session, method string, params any, reply chan answer) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken != nil {
		return b.broken
	}
	b.last++
	text, err := json.Marshal(struct {
		ID        int    `json:"id"`
		Method    string `json:"method"`
		Params    any    `json:"params,omitempty"`
		SessionID string `json:"sessionId,omitempty"`
	}{b.last, method, params, session})
	if err != nil {
		return err
	}
	if reply != nil {
		b.waiting[b.last] = reply
	}
	_, err = b.in.Write(append(text, 0))
	return err
}

// call waits for the answer, which it decodes into result unless that is nil.
func (b *chromium) call(ctx context.Context, session, method string, params, result any) error {
	reply := make(chan answer, 1)
	if err := b.send(session, method, params, reply); err != nil {
		return err
	}
	select {
	case a := <-reply:
		if a.err != nil || result == nil {
			return a.err
		}
		return json.Unmarshal(a.result, result)
	case <-ctx.Done():
		return fmt.Errorf("Chromium does not answer %s: %w", method, ctx.Err())
	}
}

func TestMain(m *testing.M) {
	os.Exit(hostfs.Inside(func() int {
		code := m.Run()
		if shared != nil {
			if err := shared.stop(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
		return code
	}))
}
