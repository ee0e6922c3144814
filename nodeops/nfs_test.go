package nodeops

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestNFS_OnlyAnAddressIsMounted(t *testing.T) {
	for name, n := range map[string]NFS{
		"a name":          {Server: "files", Address: "files", Path: "/v"},
		"no address":      {Server: "files", Path: "/v"},
		"no server":       {Address: "127.0.0.1", Path: "/v"},
		"a list":          {Server: "a,b", Address: "127.0.0.1", Path: "/v"},
		"two words":       {Server: "a b", Address: "127.0.0.1", Path: "/v"},
		"no path":         {Server: "a", Address: "127.0.0.1"},
		"a relative path": {Server: "a", Address: "127.0.0.1", Path: "v"},
		"up":              {Server: "a", Address: "127.0.0.1", Path: "/v/../w"},
		"no option":       {Server: "a", Address: "127.0.0.1", Path: "/v", Options: []string{"addr=127.0.0.2"}},
	} {
		dir := t.TempDir()
		if err := MountNFS(t.Context(), n, dir); err == nil {
			t.Errorf("%s was mounted", name)
		} else if errors.Is(err, unix.ENODEV) || strings.Contains(err.Error(), "fsopen") {
			t.Errorf("%s reached the kernel: %v", name, err)
		}
	}
	for _, option := range []string{"vers=3", "addr=127.0.0.2", "port=1", "soft,vers=3", "bg", "remount"} {
		check.Fails(t, CheckNFSOptions([]string{option}), nil)
	}
	check.Report(t, CheckNFSOptions([]string{"softerr", "timeo=50", "nconnect=8", "noatime", "nosuid", "ro"}))
}

func TestNFS_SourceIsAsTheMountTableShowsIt(t *testing.T) {
	for want, n := range map[string]NFS{
		"10.0.0.1:/v":  {Server: "10.0.0.1", Path: "/v"},
		"files:/v":     {Server: "files", Path: "/v"},
		"[fd00::7]:/v": {Server: "fd00::7", Path: "/v"},
	} {
		check.Same(t, n.String(), want)
	}
}

func TestNFS_ReadAheadIsRaisedAndNeverLowered(t *testing.T) {
	dir := t.TempDir()
	check.Fails(t, raiseReadAhead(filepath.Join(dir, "0:50")), os.ErrNotExist, "0:50/read_ahead_kb")
	for set, want := range map[string]string{"128\n": "4096", "15360\n": "15360\n"} {
		file := write(t, filepath.Join(dir, "read_ahead_kb"), set)
		check.OK(t, raiseReadAhead(dir))
		holds(t, file, want)
	}
	check.Fails(t, RaiseReadAhead(dir), nil, "nothing is mounted")
}

func TestNFS_KernelWithoutItIsNamed(t *testing.T) {
	requireRoot(t)
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil || strings.Contains(string(known), "nfs4") {
		hostfs.Skip(t, "no-nfs", fmt.Sprintf("this kernel has an NFS client, or does not say: %v", err))
	}
	for what, err := range map[string]error{
		"a mount":         MountNFS(t.Context(), NFS{Server: "a", Address: "127.0.0.1", Path: "/v"}, t.TempDir()),
		"and a network":   MountNFS(t.Context(), NFS{Server: "a", Address: "127.0.0.1", Path: "/v", Namespaces: "/nowhere"}, t.TempDir()),
		"the check of it": CheckNFSClient(""),
	} {
		lack, is := errors.AsType[*NFSClientError](err)
		if !is || !lack.NoKernel || !strings.Contains(err.Error(), "modprobe nfsv4") || strings.Contains(err.Error(), "/nowhere") != (what == "and a network") {
			t.Errorf("%s: %v, want an error that names the module", what, err)
		}
	}
}

func TestNFS_ObstacleInTheHostsNetworkIsNamed(t *testing.T) {
	requireRoot(t)
	dir := t.TempDir()
	for _, name := range []string{"net", "uts"} {
		check.OK(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	for name, c := range map[string]struct {
		namespaces string
		as         func() error
		want       []string
	}{
		"none there":           {"/nowhere", nil, []string{"/nowhere/net", "--namespaces", "must be mounted"}},
		"not for this process": {dir, func() error { return unix.Setfsuid(65534) }, []string{dir + "/net", "SYS_PTRACE", "SYS_ADMIN", "privileged"}},
	} {
		failed := make(chan error, 1)
		go func() {
			runtime.LockOSThread() // never unlocked, so that the thread ends
			if c.as != nil {
				if err := c.as(); err != nil {
					failed <- err
					return
				}
			}
			failed <- enterNamespaces(c.namespaces, "net")
		}()
		err := <-failed
		for _, word := range c.want {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v, want %q in it", name, err, word)
			}
		}
	}
}

func TestNamespace_MissingIsAnError(t *testing.T) {
	err := MountNFS(t.Context(), NFS{Server: "a", Address: "127.0.0.1", Path: "/v", Namespaces: "/nowhere"}, t.TempDir())
	check.Fails(t, err, nil, "/nowhere/")
}
