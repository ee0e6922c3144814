package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/standalone"
)

func TestStatus_FindsTheClusterAsKubectlDoesAndEndsAccordingly(t *testing.T) {
	kubeconfig := reachable(t, running(t, v1beta1.ClusterRunning).URL())
	out, err := call(t, "status", "--kubeconfig", kubeconfig, "--context", "here")
	if err != nil || !strings.Contains(out, "StorageCluster mine: Running") || !strings.Contains(out, "All is well.") {
		t.Errorf("%v\n%s", err, out)
	}
	t.Setenv("KUBECONFIG", kubeconfig)
	if out, err := call(t, "status", "--context", "here", "-o", "json"); err != nil || !strings.Contains(out, `"well": true`) {
		t.Errorf("by $KUBECONFIG: %v\n%s", err, out)
	}
	t.Setenv("KUBECONFIG", reachable(t, running(t, v1beta1.ClusterDegraded).URL()))
	var report struct {
		Well bool
		Why  []string
	}
	out, err = call(t, "status", "--context", "here", "--output", "json")
	if jsonErr := json.Unmarshal([]byte(out), &report); !errors.Is(err, errNotWell) || jsonErr != nil || report.Well || len(report.Why) != 1 {
		t.Errorf("of one that is not well: %v, %v: %s", err, jsonErr, out)
	}
}

func TestDoctor_PrintsItsFindingsAndSetsTheExitCode(t *testing.T) {
	flags := at(t, running(t, v1beta1.ClusterRunning).URL())
	out, err := callLine(t, "doctor", flags...)
	if !errors.Is(err, errIll) || !strings.Contains(out, "Does a controller run?\n  problem: there is no pod of the controller") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = callLine(t, "doctor -o json", flags...)
	var findings []struct{ Check, Level, What string }
	if jsonErr := json.Unmarshal([]byte(out), &findings); !errors.Is(err, errIll) || jsonErr != nil || len(findings) < 10 || findings[0].What == "" {
		t.Errorf("%v, %v\n%s", err, jsonErr, out)
	}
}

func TestDoctor_OfOneClaimSaysNothingElse(t *testing.T) {
	out, err := callLine(t, "doctor --claim shop/none", at(t, running(t, v1beta1.ClusterRunning).URL())...)
	if !errors.Is(err, errIll) || !strings.Contains(out, "claim shop/none: there is no such claim") || strings.Contains(out, "controller") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestOutput_WhatOthersWroteDoesNotMoveTheCursor(t *testing.T) {
	const message = "pool\x1b[2J\u009b2J\x7f is not mounted"
	for _, format := range []string{"json", "yaml"} {
		var out strings.Builder
		o := &output{&choice{value: format}}
		check.OK(t, o.print(&out, []string{message}, nil))
		var read []string
		if err := yaml.Unmarshal([]byte(out.String()), &read); err != nil || read[0] != message || strings.ContainsAny(out.String(), "\x1b\u009b\x7f") {
			t.Errorf("%s: %v: %q, read as %q", format, err, &out, read)
		}
	}
}

// As a file of this name the program is found by kubectl, which hands over the rest of its line.
func TestPlugin_ProgramIsAPluginOfKubectl(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the program; run without -short")
	}
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		hostfs.Skip(t, "kubectl", "kubectl is not installed")
	}
	dir := t.TempDir()
	binary := check.Got(standalone.Binary(t.Context(), t.TempDir()))(t)
	check.OK(t, os.Symlink(binary, filepath.Join(dir, "kubectl-holdfast")))
	kubeconfig := reachable(t, running(t, v1beta1.ClusterPending).URL())
	run := func(args ...string) ([]byte, error) {
		plugin := exec.CommandContext(t.Context(), kubectl, append([]string{"holdfast"}, args...)...)
		plugin.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		return plugin.CombinedOutput()
	}
	for _, args := range [][]string{
		{"status", "--kubeconfig", kubeconfig, "--context", "here"}, {"--context", "here", "--kubeconfig", kubeconfig, "status"},
	} {
		out, err := run(args...)
		failed, ok := errors.AsType[*exec.ExitError](err)
		if !ok || failed.ExitCode() != 1 || !strings.Contains(string(out), "StorageCluster mine: Pending") || !strings.Contains(string(out), "holdfast: not all is well") {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
	for _, args := range [][]string{{"--context", "here", "version"}, {"--context", "here", "completion", "bash"}} {
		if out, err := run(args...); err != nil || !strings.Contains(string(out), "holdfast") {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
}
