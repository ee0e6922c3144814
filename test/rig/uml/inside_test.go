package uml

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/standalone"
)

const module = "github.com/holdfast-storage/holdfast/"

// inside lists the tests that need project quotas, or a root that may grow a mounted ext4, and so run on the second
// kernel, those of quota groups, which its age makes differ, and those that need a client of NFS. None of them may be
// skipped there. Each has a kernel, which has one processor; the longest begin. In place of all of a package, a part may
// stand for it.
var inside = []struct{ pkg, run, part string }{
	{"test/suite/crash", "TestDirectoryOnXFS", "TestDirectoryOnXFS/^(create|expand|delete)_"},
	{"test/suite/crash", "TestDirectoryOnExt4|TestImageOnExt4_SurvivesAKillAtEveryStep/^expand_", ""},
	{"nodeops/ganesha", "TestClients", ""},
	{"backend/export", "TestExportedExt4|TestExportedDirectories|TestForgedHandlesReachOtherDirectories", ""},
	{"test/suite/sanity", "(XFS|Ext4)Quota|OfExt4Grows", "OfExt4Grows"},
	{"nodeops", nodeopsInside, nodeopsInside},
	{"nodeops", "NFSVolume", ""}, // apart, since a server that is silent on purpose may take a machine with it
	{"driver", "NFSVolume", "NFSVolume"},
	{"backend/local", localInside, localInside},
}

const (
	nodeopsInside = "Project|Quota|Qgroup|Subvolume|Grow|Resize"
	localInside   = "TestDirectoryOn(XFS|Ext4)|TestLimitOfDirectoryOn(XFS|Ext4)|TestProject"
)

// measures are tests that only print figures, and skip without HOLDFAST_TESTS=figures.
const measures = "CostLessThanOneWalk"

// runLimit bounds one package on one processor that the machines share.
const runLimit = 20 * time.Minute

func TestSecondKernel(t *testing.T) {
	requireMachine(t)
	work := t.TempDir()
	env := []string{"HOLDFAST_REQUIRE=root,prjquota,ext4-growth,nfs,ganesha", "HOLDFAST_TESTS=" + os.Getenv("HOLDFAST_TESTS")}
	for variable, get := range map[string]func(context.Context, string) (string, error){
		standalone.BinaryVariable: standalone.Binary, standalone.CrashingBinaryVariable: standalone.CrashingBinary,
	} {
		binary := check.Got(get(t.Context(), t.TempDir()))(t)
		// Of this machine's directories the other kernel sees only the one that it is given.
		if out, err := exec.CommandContext(t.Context(), "cp", binary, filepath.Join(work, variable)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		env = append(env, fmt.Sprintf("%s=/run/work/%s", variable, variable))
	}
	t.Run("inside", func(t *testing.T) { // returns when all of them have, and the directory can go
		for _, in := range inside {
			t.Run(in.pkg, func(t *testing.T) {
				t.Parallel()
				pattern := in.run
				if !hostfs.All() {
					pattern = in.part
				}
				if pattern == "" {
					hostfs.Long(t)
				}
				runInside(t, work, in.pkg, pattern, env)
			})
		}
	})
}

// runInside runs tests of a package and shows each of them as a test of its own here.
func runInside(t *testing.T, work, pkg, pattern string, env []string) {
	binary := filepath.Base(t.Name()) + ".test"
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-tags", "crashpoints", "-o", filepath.Join(work, binary), module+pkg)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("compiling the tests of %s: %v\n%s", pkg, err, out)
	}
	argv := []string{"/run/work/" + binary, "-test.v", "-test.run", pattern, "-test.skip", measures, fmt.Sprintf("-test.timeout=%s", runLimit)}
	patience := firstPatience
	log, status, err := onMachine(t, work, argv, env, patience)
	for i := 0; i < mostFaults && (errors.Is(err, ErrSilent) || status != 0 && Broke(log)); i++ {
		t.Logf("status %d, %v; another is booted", status, err)
		patience *= 2
		log, status, err = onMachine(t, work, argv, env, patience)
	}
	check.OK(t, err)
	results := Verdicts(log)
	for _, r := range results {
		t.Run(r.Test, func(t *testing.T) {
			if r.Result != "PASS" {
				t.Errorf("%s; the log is above", r.Result)
			}
		})
	}
	if status != 0 || len(results) == 0 {
		t.Errorf("%d tests ran and ended with status %d", len(results), status)
	}
}

// A test that hangs is ended by its own limit, and a machine by its silence. The next machine may be silent for twice
// as long, in case the first was only slow.
const (
	firstPatience = 2 * time.Minute
	mostFaults    = 3
)

// onMachine returns what the program printed and its status.
func onMachine(t *testing.T, work string, argv, env []string, patience time.Duration) (log string, status int, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), runLimit)
	defer cancel()
	var out bytes.Buffer
	machine := Machine{MemoryMiB: 2000, DiskBytes: 40 << 30, Work: work, Silence: patience}
	status, err = Run(ctx, machine, argv, env, io.MultiWriter(&out, t.Output()))
	return out.String(), status, err
}

func TestSecondKernel_FaultOfTheMachineIsNoneOfTheProgram(t *testing.T) {
	for output, want := range map[string]bool{
		"runtime: epollwait on fd 4 failed with 38\nfatal error: runtime: netpoll failed\n": true,
		"The futex facility returned an unexpected error code.\n":                           true,
		"--- FAIL: TestB (1.50s)\npanic: test timed out\n":                                  false,
	} {
		if Broke(output) != want {
			t.Errorf("%q: not %t", output, want)
		}
	}
}

func TestSecondKernel_SkippedPartOfAPassingTestIsSeen(t *testing.T) {
	const output = `=== RUN   TestA
=== RUN   TestA/xfs
    quota_test.go:30: needs prjquota
--- PASS: TestA (0.01s)
    --- SKIP: TestA/xfs (0.00s)
    --- PASS: TestA/ext4 (0.00s)
--- FAIL: TestB (1.50s)
FAIL
`
	want := []Verdict{{"TestA", "PASS"}, {"TestA/xfs", "SKIP"}, {"TestB", "FAIL"}}
	if got := Verdicts(output); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
