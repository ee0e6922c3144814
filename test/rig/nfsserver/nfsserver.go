// Package nfsserver runs an NFS server for tests, which can be stopped and go on.
package nfsserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/nodeops/child"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// Server serves directories on the loopback device until the test ends.
type Server struct {
	t      testing.TB
	server *exec.Cmd
}

// Address is where it serves.
const Address = "127.0.0.1"

const config = `
NFS_CORE_PARAM { Protocols = 4; NFS_Port = %d; Enable_UDP = false; Enable_NLM = false; Enable_RQUOTA = false; fsid_device = false; }
NFS_KRB5 { Active_krb5 = false; }
NFSV4 { Minor_Versions = 1,2; RecoveryBackend = fs; RecoveryRoot = %q; Graceless = true; Lease_Lifetime = 10; }
`

const export = `
EXPORT { Export_Id = %d; Filesystem_id = 7.%d; Path = %q; Pseudo = "/%s"; Protocols = 4; Transports = TCP; SecType = sys; Access_Type = RW; Squash = No_Root_Squash; FSAL { Name = VFS; } }
`

// Require skips a test whose kernel cannot mount NFS, and where there is no server to run.
func Require(t testing.TB) {
	t.Helper()
	hostfs.RequireRoot(t)
	if err := unix.Mount("", t.TempDir(), "nfs4", 0, ""); errors.Is(err, unix.ENODEV) {
		hostfs.Skip(t, "nfs", "this kernel has no NFS client")
	}
	if _, err := exec.LookPath("ganesha.nfsd"); err != nil {
		hostfs.Skip(t, "ganesha", "ganesha.nfsd is not installed; the Debian packages nfs-ganesha and nfs-ganesha-vfs bring it")
	}
}

// Start serves new directories under the names, at /NAME each, and returns where they are on this host.
func Start(t testing.TB, port uint16, names ...string) (s *Server, dirs []string) {
	t.Helper()
	Require(t)
	work := t.TempDir()
	var text strings.Builder
	fmt.Fprintf(&text, config, port, filepath.Join(work, "recovery"))
	err := os.Mkdir(filepath.Join(work, "recovery"), 0o700)
	for i, name := range names {
		dir := filepath.Join(work, name)
		err = errors.Join(err, os.Mkdir(dir, 0o755))
		fmt.Fprintf(&text, export, i+1, i+1, dir, name)
		dirs = append(dirs, dir)
	}
	file := filepath.Join(work, "ganesha.conf")
	check.OK(t, errors.Join(err, os.WriteFile(file, []byte(text.String()), 0o600)))
	s = &Server{t: t, server: exec.Command("ganesha.nfsd", "-F", "-L", "/dev/stdout", "-N", "NIV_EVENT", "-f", file, "-p", filepath.Join(work, "pid"))}
	s.server.Stdout, s.server.Stderr = t.Output(), t.Output()
	ended, err := child.Start(s.server)
	check.OK(t, err)
	t.Cleanup(func() {
		select {
		case err := <-ended:
			t.Errorf("the server ended before it was to: %v", err)
		default:
			_ = s.server.Process.Kill() // it may have died since
			if err := <-ended; err == nil {
				t.Error("the server ended by itself")
			}
		}
	})
	s.await(port)
	return s, dirs
}

// await waits until the server takes connections.
func (s *Server) await(port uint16) {
	s.t.Helper()
	dialer := net.Dialer{Timeout: time.Second}
	wait.For(s.t, "a server that takes connections", func() error {
		c, err := dialer.DialContext(s.t.Context(), "tcp", fmt.Sprintf("%s:%d", Address, port))
		if err == nil {
			c.Close()
		}
		return err
	})
}

// Stop makes the server as silent as one whose host has died, until it goes On.
func (s *Server) Stop() { s.signal(syscall.SIGSTOP) }

// On ends what Stop began.
func (s *Server) On() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	check.OK(s.t, s.server.Process.Signal(sig))
}
