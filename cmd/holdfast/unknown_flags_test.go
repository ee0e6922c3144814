package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/holdfast-storage/holdfast/operator/render"
)

func TestUnknownFlags_AreIgnoredByTheProcessesOfAClusterWhereTheirPodSaysSo(t *testing.T) {
	args := []string{"node", "--from-later=1", "--node-name=n", "--from-later-too"}
	if _, err := call(t, args...); !errors.Is(err, errUsage) || !strings.Contains(err.Error(), "--from-later") {
		t.Errorf("a mistyped flag: %v", err)
	}
	t.Setenv(unknownFlags, "ignore")
	var log strings.Builder
	if got := knownFlags(newRoot(), args, &log); !slices.Equal(got, []string{"node", "--node-name=n"}) || strings.Count(log.String(), "has no flag --from-later") != 2 {
		t.Errorf("left are %q, and it says\n%s", got, &log)
	}
	if _, err := call(t, args...); err == nil || strings.Contains(err.Error(), "unknown flag") {
		t.Errorf("with unknown flags it ends with %v", err)
	}
	for _, args := range [][]string{{"volumes", "list", "--unhealthx"}, {"cleanup", "--pth=x"}} { // no process of a cluster
		if _, err := call(t, args...); !errors.Is(err, errUsage) || !strings.Contains(err.Error(), "unknown flag") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// The operator refuses others, which the process would ignore.
func TestExtraArgs_AreTheFlagsOfTheController(t *testing.T) {
	var flags []string
	newControllerCommand().Flags().VisitAll(func(f *pflag.Flag) { flags = append(flags, f.Name) })
	for _, name := range render.ExtraArgs {
		if !slices.Contains(flags, name) {
			t.Errorf("holdfast controller has no flag --%s", name)
		}
	}
	for _, name := range flags {
		if !slices.Contains(render.ExtraArgs, name) && !render.IsOwnArg(name) {
			t.Errorf("--%s is neither allowed in spec.controller.extraArgs nor refused with a reason", name)
		}
	}
}
