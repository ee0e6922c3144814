// Package sanity runs the real program on real file systems: csi-sanity, and what it does not ask.
package sanity

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/csisanity"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/standalone"
)

func TestMain(m *testing.M) {
	if code, requested := csisanity.Requested(); requested {
		os.Exit(code)
	}
	os.Exit(build(m))
}

func build(m *testing.M) int {
	if os.Geteuid() != 0 {
		return hostfs.Main(m) // without root all skip
	}
	dir, err := os.MkdirTemp("", "holdfast-sanity-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if binary, err = standalone.Binary(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := os.Setenv(standalone.BinaryVariable, binary); err != nil { // for the process that runs the tests
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return hostfs.Main(m)
}

func (w *world) sanity(accessType string) {
	r := csisanity.Request{Socket: w.options.Socket, Scratch: w.scratch, AccessType: accessType}
	if accessType == "mount" && w.engine == "image" {
		// The suite grows volumes in use, and without CAP_SYS_RESOURCE the kernel lets no process grow an ext4 in use.
		r.Parameters = map[string]string{"csi.storage.k8s.io/fstype": "xfs"}
	}
	csisanity.Run(w.T, r, csisanity.Reasons())
	w.nothingLeft()
	if strings.Contains(w.Output(), csisanity.Secret) {
		w.Errorf("a secret is in the log:\n%s", w.Output())
	}
	if strings.Contains(w.Output(), "msg=panic") || strings.Contains(w.Output(), "code=Internal") {
		w.Errorf("a defect is in the log:\n%s", w.Output())
	}
}
