// Package pty is a terminal for tests: the kernel's own, on which a program writes, and of which a test sees what a user
// would.
package pty

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// Terminal is one of which the test is the screen and the keyboard.
type Terminal struct {
	t testing.TB
	// Program is the end on which a program reads and writes.
	Program *os.File
	user    *os.File

	mu      sync.Mutex
	written strings.Builder
}

// New makes a terminal of that size, as one that knows what xterm does.
func New(t testing.TB, width, height uint16) *Terminal {
	t.Helper()
	t.Setenv("TERM", "xterm")
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	check.OK(t, err)
	t.Cleanup(func() { user.Close() })
	raw, err := user.SyscallConn()
	check.OK(t, err)
	var number int
	var failed error
	err = raw.Control(func(fd uintptr) {
		if failed = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); failed == nil {
			number, failed = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	})
	if err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	o := &Terminal{t: t, user: user}
	if o.Program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	o.Resize(width, height)
	read := make(chan struct{})
	go func() {
		defer close(read)
		for buffer := make([]byte, 4096); ; {
			n, err := user.Read(buffer)
			o.mu.Lock()
			o.written.Write(buffer[:n])
			o.mu.Unlock()
			if err != nil { // all programs have closed it
				return
			}
		}
	}()
	t.Cleanup(func() {
		o.Program.Close()
		<-read
	})
	return o
}

// Resize gives it another size. The kernel notifies the programs that it controls.
func (o *Terminal) Resize(width, height uint16) {
	o.t.Helper()
	check.OK(o.t, unix.IoctlSetWinsize(int(o.Program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height}))
}

// Type is what a user types.
func (o *Terminal) Type(keys string) {
	o.t.Helper()
	check.Got(o.user.WriteString(keys))(o.t)
}

// Written is all that was written to it, with what moves the cursor, and lines that end as programs write them.
func (o *Terminal) Written() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.ReplaceAll(o.written.String(), "\r\n", "\n")
}

// patience is for a machine that is busy.
const patience = 2 * time.Minute

// Await waits until something is written, after what is at from, and returns where it ends.
func (o *Terminal) Await(from int, text string) (end int) {
	o.t.Helper()
	deadline := time.Now().Add(patience)
	for pause := time.NewTicker(10 * time.Millisecond); ; <-pause.C {
		written := o.Written()
		if i := strings.Index(written[min(from, len(written)):], text); i >= 0 {
			pause.Stop()
			return from + i + len(text)
		}
		if time.Now().After(deadline) {
			pause.Stop()
			o.t.Fatalf("%q was not written:\n%q", text, written)
		}
	}
}
