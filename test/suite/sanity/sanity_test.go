// Package sanity runs the real program on real file systems: csi-sanity, and what it does not ask.
package sanity

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	conformance "github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"

	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/standalone"
)

// request asks a child of the test's own process to run csi-sanity: a process can run that suite once only.
type request struct {
	Socket, Scratch, AccessType, Skipped string
	Parameters                           map[string]string
}

const requestVariable = "HOLDFAST_SANITY_REQUEST"

func TestMain(m *testing.M) {
	if encoded := os.Getenv(requestVariable); encoded != "" {
		var r request
		if err := json.Unmarshal([]byte(encoded), &r); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(r.run())
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

type failure struct{ failed bool }

func (f *failure) Fail() { f.failed = true }

// run is csi-sanity as its makers ship it.
func (r *request) run() int {
	config := conformance.NewTestConfig()
	config.Address = "unix://" + r.Socket
	config.TargetPath = filepath.Join(r.Scratch, "target")
	config.StagingPath = filepath.Join(r.Scratch, "staging")
	config.SecretsFile = filepath.Join(r.Scratch, "secrets.yaml")
	config.TestVolumeSize, config.TestVolumeExpandSize = gib, 2*gib
	config.TestVolumeAccessType, config.TestVolumeParameters = r.AccessType, r.Parameters
	config.TestNodeVolumeAttachLimit = true
	config.IdempotentCount = 3

	flag.Parse()
	skipped := map[string]string{}
	ginkgo.ReportAfterSuite("skipped cases", func(report ginkgo.Report) {
		for _, spec := range report.SpecReports {
			if spec.LeafNodeType == types.NodeTypeIt && spec.State.Is(types.SpecStateSkipped|types.SpecStatePending) {
				skipped[spec.FullText()] = spec.Failure.Message
			}
		}
	})
	var f failure
	conformance.Test(&f, config)
	encoded, err := json.Marshal(skipped)
	if err == nil {
		err = os.WriteFile(r.Skipped, encoded, 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if f.failed || err != nil {
		return 1
	}
	return 0
}

// secret is the value of every secret that csi-sanity sends.
const secret = "s3cr3t-marker"

func secrets() string {
	var b strings.Builder
	for _, key := range []string{
		"CreateVolumeSecret", "DeleteVolumeSecret", "ControllerValidateVolumeCapabilitiesSecret", "NodeStageVolumeSecret",
		"NodePublishVolumeSecret", "CreateSnapshotSecret", "DeleteSnapshotSecret", "ControllerExpandVolumeSecret",
		"ListSnapshotsSecret", "GetSnapshotSecret", "ControllerModifyVolumeSecret",
	} {
		fmt.Fprintf(&b, "%s:\n  secret: %s\n", key, secret)
	}
	return b.String()
}

func (w *world) sanity(accessType string) {
	if err := os.WriteFile(filepath.Join(w.scratch, "secrets.yaml"), []byte(secrets()), 0o600); err != nil {
		w.Fatal(err)
	}
	r := request{Socket: w.options.Socket, Scratch: w.scratch, AccessType: accessType, Skipped: filepath.Join(w.scratch, "skipped.json")}
	if accessType == "mount" && w.engine == "image" {
		// The suite grows volumes in use, and without CAP_SYS_RESOURCE the kernel lets no process grow an ext4 in use.
		r.Parameters = map[string]string{"csi.storage.k8s.io/fstype": "xfs"}
	}
	encoded, err := json.Marshal(r)
	if err != nil {
		w.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-ginkgo.no-color", skipArgument())
	cmd.Env = append(os.Environ(), requestVariable+"="+string(encoded))
	if out, err := cmd.CombinedOutput(); err != nil {
		w.Errorf("csi-sanity: %v\n%s", err, out)
	}
	report, err := os.ReadFile(r.Skipped)
	skipped := map[string]string{}
	if err := errors.Join(err, json.Unmarshal(report, &skipped)); err != nil {
		w.Fatal(err)
	}
	checkSkipped(w.T, skipped)
	w.nothingLeft()
	if strings.Contains(w.Output(), secret) {
		w.Errorf("a secret is in the log:\n%s", w.Output())
	}
	if strings.Contains(w.Output(), "msg=panic") || strings.Contains(w.Output(), "code=Internal") {
		w.Errorf("a defect is in the log:\n%s", w.Output())
	}
}

// checkSkipped fails for a case that was skipped without a written reason, and for a reason that is out of date.
func checkSkipped(t *testing.T, skipped map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(skipped)) {
		if reasonFor(name) == "" {
			t.Errorf("skipped, and no reason is written in skipped_test.go: %q: %s", name, skipped[name])
		}
	}
	for pattern := range reasons {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(skipped)), func(name string) bool { return strings.Contains(name, pattern) }) {
			t.Errorf("no case that contains %q was skipped; take it out of skipped_test.go", pattern)
		}
	}
}
