package nodeops

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOnlyAnAddressIsMounted(t *testing.T) {
	for name, n := range map[string]NFS{
		"a name":          {Server: "files", Address: "files", Path: "/v"},
		"no address":      {Server: "files", Path: "/v"},
		"no server":       {Address: "127.0.0.1", Path: "/v"},
		"a list":          {Server: "a,b", Address: "127.0.0.1", Path: "/v"},
		"two words":       {Server: "a b", Address: "127.0.0.1", Path: "/v"},
		"no path":         {Server: "a", Address: "127.0.0.1"},
		"a relative path": {Server: "a", Address: "127.0.0.1", Path: "v"},
		"up":              {Server: "a", Address: "127.0.0.1", Path: "/v/../w"},
		"another version": {Server: "a", Address: "127.0.0.1", Path: "/v", Options: []string{"vers=3"}},
		"another address": {Server: "a", Address: "127.0.0.1", Path: "/v", Options: []string{"addr=127.0.0.2"}},
		"another port":    {Server: "a", Address: "127.0.0.1", Path: "/v", Options: []string{"port=1"}},
		"two in one":      {Server: "a", Address: "127.0.0.1", Path: "/v", Options: []string{"soft,vers=3"}},
		"the program's":   {Server: "a", Address: "127.0.0.1", Path: "/v", Options: []string{"bg"}},
		"a remount":       {Server: "a", Address: "127.0.0.1", Path: "/v", Options: []string{"remount"}},
	} {
		dir := t.TempDir()
		if err := MountNFS(t.Context(), n, dir); err == nil {
			t.Errorf("%s was mounted", name)
		} else if errors.Is(err, unix.ENODEV) || strings.Contains(err.Error(), "fsopen") {
			t.Errorf("%s reached the kernel: %v", name, err)
		}
	}
	if err := CheckNFSOptions([]string{"softerr", "timeo=50", "nconnect=8", "noatime", "nosuid", "ro"}); err != nil {
		t.Error(err)
	}
}

func TestTheSourceIsAsTheMountTableShowsIt(t *testing.T) {
	for want, n := range map[string]NFS{
		"10.0.0.1:/v":  {Server: "10.0.0.1", Path: "/v"},
		"files:/v":     {Server: "files", Path: "/v"},
		"[fd00::7]:/v": {Server: "fd00::7", Path: "/v"},
	} {
		if got := n.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestAKernelWithoutNFSIsNamed(t *testing.T) {
	requireRoot(t)
	known, err := os.ReadFile("/proc/filesystems")
	if err != nil || strings.Contains(string(known), "nfs4") {
		t.Skipf("this kernel knows NFS, or does not say: %v", err)
	}
	err = MountNFS(t.Context(), NFS{Server: "a", Address: "127.0.0.1", Path: "/v"}, t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "nfsv4") {
		t.Errorf("got %v, want an error that names the module", err)
	}
}

func TestNamespacesThatAreNotThereAreAnError(t *testing.T) {
	err := MountNFS(t.Context(), NFS{Server: "a", Address: "127.0.0.1", Path: "/v", Namespaces: "/nowhere"}, t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "/nowhere/") {
		t.Errorf("got %v", err)
	}
}
