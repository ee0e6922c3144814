package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
	"github.com/holdfast-storage/holdfast/test/rig/standalone"
)

// reachable returns a kubeconfig for a server, in which another context is the current one.
func reachable(t *testing.T, server string) string {
	t.Helper()
	return file(t, fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
  - {name: here, cluster: {server: '%s'}}
  - {name: nowhere, cluster: {server: 'http://127.0.0.1:1'}}
contexts:
  - {name: here, context: {cluster: here, user: u}}
  - {name: nowhere, context: {cluster: nowhere, user: u}}
users: [{name: u, user: {}}]
current-context: nowhere
`, server))
}

// running is an API with a cluster in some phase.
func running(t *testing.T, phase v1beta1.ClusterPhase) *miniapi.Server {
	t.Helper()
	api := miniapi.New(t)
	clusters := holdfast.NewForConfigOrDie(api.Config()).HoldfastV1beta1().StorageClusters()
	c := check.Got(clusters.Create(t.Context(), &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, metav1.CreateOptions{}))(t)
	c.Status.Phase, c.Status.ObservedGeneration = phase, c.Generation
	check.Got(clusters.UpdateStatus(t.Context(), c, metav1.UpdateOptions{}))(t)
	return api
}

func TestStatus_FindsTheClusterAsKubectlDoesAndEndsAccordingly(t *testing.T) {
	api := running(t, v1beta1.ClusterRunning)
	kubeconfig := reachable(t, api.URL())
	out, err := call(t, "status", "--kubeconfig", kubeconfig, "--context", "here")
	if err != nil || !strings.Contains(out, "StorageCluster mine: Running") || !strings.Contains(out, "All is well.") {
		t.Errorf("%v\n%s", err, out)
	}
	t.Setenv("KUBECONFIG", kubeconfig)
	if out, err := call(t, "status", "--context", "here", "-o", "json"); err != nil || !strings.Contains(out, `"well": true`) {
		t.Errorf("by $KUBECONFIG: %v\n%s", err, out)
	}
	if _, err := call(t, "status"); err == nil || errors.Is(err, errNotWell) {
		t.Errorf("in a context without a server: %v", err)
	}
}

func TestStatus_OfAnUnhealthyClusterIsAnErrorAfterTheOutput(t *testing.T) {
	kubeconfig := reachable(t, running(t, v1beta1.ClusterDegraded).URL())
	out, err := call(t, "status", "--kubeconfig", kubeconfig, "--context", "here", "--output", "json")
	if !errors.Is(err, errNotWell) {
		t.Errorf("got %v", err)
	}
	var report struct {
		Well bool
		Why  []string
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Well || len(report.Why) != 1 {
		t.Errorf("%v: %s", err, out)
	}
}

func TestDoctor_PrintsItsFindingsAndSetsTheExitCode(t *testing.T) {
	kubeconfig := reachable(t, running(t, v1beta1.ClusterRunning).URL())
	out, err := call(t, "doctor", "--kubeconfig", kubeconfig, "--context", "here")
	if !errors.Is(err, errIll) || !strings.Contains(out, "Does a controller run?\n  problem: there is no pod of the controller") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = call(t, "doctor", "--kubeconfig", kubeconfig, "--context", "here", "-o", "json")
	var findings []struct{ Check, Level, What string }
	if jsonErr := json.Unmarshal([]byte(out), &findings); !errors.Is(err, errIll) || jsonErr != nil || len(findings) < 10 || findings[0].What == "" {
		t.Errorf("%v, %v\n%s", err, jsonErr, out)
	}
	if _, err := call(t, "doctor", "--kubeconfig", kubeconfig); err == nil || errors.Is(err, errIll) {
		t.Errorf("without a server: %v", err)
	}
}

func TestOutput_UnknownFormatIsRefused(t *testing.T) {
	for _, command := range []string{"status", "doctor"} {
		if _, err := call(t, command, "-o", "xml"); !errors.Is(err, errUsage) || !strings.Contains(err.Error(), "table, wide, json or yaml") {
			t.Errorf("%s: %v", command, err)
		}
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

func TestHelp_OneLetterFlagHasOneDash(t *testing.T) {
	out, err := call(t, "status", "--help")
	if err != nil || !strings.Contains(out, "  -o, --output FORMAT\n") || !strings.Contains(out, "  -n, --namespace NAMESPACE\n") {
		t.Errorf("%v\n%s", err, out)
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
	binary, err := standalone.Binary(t.Context(), t.TempDir())
	check.OK(t, err)
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
