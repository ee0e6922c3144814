package main

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestMain(m *testing.M) {
	silenceLibraries() // before there is a second goroutine: a test's own client has the same logger
	os.Exit(hostfs.Main(m))
}

// call runs the program and returns what it printed.
func call(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	err := run(t.Context(), args, &out)
	return out.String(), err
}

func TestHelp_NamesEveryCommandAndFlag(t *testing.T) {
	out := check.Got(call(t, "--help"))(t)
	for _, c := range newRoot().Commands() {
		if shown := strings.Contains(out, "  "+c.Name()+" ") && strings.Contains(out, c.Short); shown != (c.GroupID != forPods) {
			t.Errorf("that %s is shown is %t:\n%s", c.Name(), shown, out)
		}
	}
	out = check.Got(call(t, "standalone", "--help"))(t)
	for _, want := range []string{
		"--endpoint SOCKET", "--node-id NAME", "--pool POOL", "--metrics-address ADDRESS", "--max-volumes NUMBER", "--stop-timeout DURATION",
		"--log-level LEVEL", "--log-format FORMAT", "--driver-name NAME", "unix:///run/holdfast/csi.sock", "engine=directory", "trashRetention",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
}

func TestUsage_ErrorNamesTheAllowedValues(t *testing.T) {
	pool := "name=fast,path=" + t.TempDir()
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"nothing":             {nil, []string{"no command"}},
		"unknown command":     {[]string{"statsu"}, []string{`"statsu"`, "did you mean status?", "doctor, "}},
		"unknown flag":        {[]string{"standalone", "--poool", pool}, []string{"--poool", "did you mean --pool?"}},
		"a flag of one dash":  {[]string{"volumes", "adopt", "v", "-calim=shop/x"}, []string{"-calim", "did you mean --claim?"}},
		"a cluster for none":  {[]string{"--context", "x", "standalone"}, []string{"standalone", "is about this host"}},
		"unknown shell":       {[]string{"completion", "tcsh"}, []string{`"tcsh"`, "bash, fish, powershell, zsh"}},
		"unknown help":        {[]string{"help", "volumes", "restroe"}, []string{`"restroe"`, "did you mean restore?"}},
		"an argument":         {[]string{"standalone", "fast"}, []string{`"fast"`, "not a flag"}},
		"no pool":             {[]string{"standalone", "--node-id", "n"}, []string{"--pool is missing", "name=fast"}},
		"unknown pool key":    {[]string{"standalone", "--pool", pool + ",size=1Gi"}, []string{`"size"`, "name, engine, path, overcommit, reserved, trashRetention"}},
		"pool without equals": {[]string{"standalone", "--pool", "fast"}, []string{`"fast"`, "key=value"}},
		"unknown log level":   {[]string{"standalone", "--log-level", "loud"}, []string{"loud"}},
		"unknown log format":  {[]string{"standalone", "--pool", pool, "--log-format", "xml"}, []string{`"xml"`, "text or json"}},
		"trash and restore":   {[]string{"volumes", "--pool", pool, "--trash", "--restore", "v"}, []string{"--trash", "--restore"}},
		"trash of no pool":    {[]string{"volumes", "--trash"}, []string{"--pool is missing", "holdfast volumes trash"}},
		"a pool and a claim":  {[]string{"volumes", "restore", "v", "--pool", pool, "--claim", "shop/x"}, []string{"--pool", "--claim"}},
		"restore of no pool":  {[]string{"volumes", "--restore", "v"}, []string{"--pool is missing", "holdfast volumes restore NAME"}},
		"unknown verb":        {[]string{"volumes", "undelete", "v"}, []string{`"undelete"`, "adopt, delete, describe, list, restore, trash"}},
		"a verb's flag":       {[]string{"volumes", "delete", "v", "--yess"}, []string{"volumes delete", "--yess", "did you mean --yes?"}},
		"no name":             {[]string{"volumes", "restore", "--node", "n"}, []string{"volumes restore", "NAME is missing"}},
		"two names":           {[]string{"snapshots", "delete", "a", "--yes", "b"}, []string{"one NAME", `"b"`}},
		"a name too many":     {[]string{"volumes", "list", "v"}, []string{`"v"`, "not a flag"}},
		"no claim":            {[]string{"volumes", "adopt", "v"}, []string{"--claim is missing"}},
		"an odd claim":        {[]string{"volumes", "adopt", "v", "--claim", "orders"}, []string{`"orders"`, "NAMESPACE/NAME"}},
		"odd claim restored":  {[]string{"volumes", "restore", "v", "--claim", "orders"}, []string{`"orders"`, "NAMESPACE/NAME"}},
		"unknown output":      {[]string{"snapshots", "-o", "xml"}, []string{`"xml"`, "table, wide, json, yaml or name"}},
		"no time to wait":     {[]string{"volumes", "restore", "v", "--timeout", "0s"}, []string{"--timeout 0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := call(t, test.args...)
			if !errors.Is(err, errUsage) {
				t.Fatalf("got %v, want an error of usage", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not name %s", err, want)
				}
			}
		})
	}
}

func TestConfig_InvalidEndsTheProgram(t *testing.T) {
	pool := "name=fast,path=" + t.TempDir()
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no node":          {[]string{"--pool", pool}, "node id"},
		"a tcp endpoint":   {[]string{"--pool", pool, "--node-id", "n", "--endpoint", "tcp://0.0.0.0:1"}, "tcp://0.0.0.0:1"},
		"a pool not there": {[]string{"--pool", "name=fast,path=/nowhere/fast", "--node-id", "n"}, "/nowhere/fast"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := call(t, append([]string{"standalone"}, test.args...)...); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error that names %s", err, test.want)
			}
		})
	}
}

func TestVersion_NamesTheProgramAndItsCompiler(t *testing.T) {
	out, err := call(t, "version")
	if err != nil || !strings.HasPrefix(out, "holdfast "+version) || !strings.Contains(out, "go1.") {
		t.Errorf("got %q, %v", out, err)
	}
}
