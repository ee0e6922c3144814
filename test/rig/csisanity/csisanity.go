// Package csisanity runs csi-sanity, as its makers ship it, against the socket of a driver.
package csisanity

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	conformance "github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// Request says what to run.
type Request struct {
	Socket, Scratch string // Scratch is a directory for its mounts
	AccessType      string // of volumes: mount or block
	Parameters      map[string]string
}

// Secret is the value of every secret that csi-sanity sends.
const Secret = "s3cr3t-marker"

const variable = "HOLDFAST_SANITY_REQUEST"

// Requested runs the suite where the process was started by Run: a process can run the suite only once. TestMain calls it
// first and ends with its code.
func Requested() (code int, requested bool) {
	encoded := os.Getenv(variable)
	if encoded == "" {
		return 0, false
	}
	var r Request
	if err := json.Unmarshal([]byte(encoded), &r); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return r.run(), true
}

// Run runs the suite in a child. Cases may be skipped for the reasons alone, which are found by a part of their names.
func Run(t testing.TB, r Request, reasons map[string]string) {
	t.Helper()
	check.OK(t, os.WriteFile(r.file("secrets.yaml"), []byte(secrets()), 0o600))
	encoded, err := json.Marshal(r)
	check.OK(t, err)
	cmd := exec.Command("/proc/self/exe", "-ginkgo.no-color", "-ginkgo.skip="+regexp.QuoteMeta(brokenCase))
	cmd.Env = append(os.Environ(), variable+"="+string(encoded))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("csi-sanity: %v\n%s", err, out)
	}
	report, err := os.ReadFile(r.file("skipped.json"))
	skipped := map[string]string{}
	check.OK(t, errors.Join(err, json.Unmarshal(report, &skipped)))
	checkSkipped(t, skipped, reasons)
}

func (r *Request) file(name string) string { return filepath.Join(r.Scratch, name) }

type failure struct{ failed bool }

func (f *failure) Fail() { f.failed = true }

func (r *Request) run() int {
	const gib = 1 << 30
	config := conformance.NewTestConfig()
	config.Address = "unix://" + r.Socket
	config.TargetPath, config.StagingPath = r.file("target"), r.file("staging")
	config.SecretsFile = r.file("secrets.yaml")
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
		err = os.WriteFile(r.file("skipped.json"), encoded, 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if f.failed || err != nil {
		return 1
	}
	return 0
}

func secrets() string {
	var b strings.Builder
	for _, key := range []string{
		"CreateVolumeSecret", "DeleteVolumeSecret", "ControllerValidateVolumeCapabilitiesSecret", "NodeStageVolumeSecret",
		"NodePublishVolumeSecret", "CreateSnapshotSecret", "DeleteSnapshotSecret", "ControllerExpandVolumeSecret",
		"ListSnapshotsSecret", "GetSnapshotSecret", "ControllerModifyVolumeSecret",
	} {
		fmt.Fprintf(&b, "%s:\n  secret: %s\n", key, Secret)
	}
	return b.String()
}

// checkSkipped fails for a case that was skipped without a written reason, and for a reason that is out of date.
func checkSkipped(t testing.TB, skipped, reasons map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(skipped)) {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(reasons)), func(part string) bool { return strings.Contains(name, part) }) {
			t.Errorf("skipped, and no reason is written: %q: %s", name, skipped[name])
		}
	}
	for part := range reasons {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(skipped)), func(name string) bool { return strings.Contains(name, part) }) {
			t.Errorf("no case that contains %q was skipped; take it out of the reasons", part)
		}
	}
}
