package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-storage/holdfast/admin"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// changed runs a change of volume pvc-1 that says something, and returns what is on standard output and standard error.
func changed(t *testing.T, of object, flags []string, gone bool, failure error) (out, said string, err error) {
	t.Helper()
	cmd := &cobra.Command{}
	c := changeFlags(cmd)
	check.OK(t, cmd.ParseFlags(flags))
	var stdout, stderr strings.Builder
	cmd.SetContext(t.Context())
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	err = c.run(cmd, of, "pvc-1", gone, func(_ context.Context, a *admin.Admin) error {
		check.Got(a.Out.Write([]byte("done\n")))(t)
		return failure
	})
	return stdout.String(), stderr.String(), err
}

func TestChange_FormatForProgramsIsTheObjectAlone(t *testing.T) {
	flags := stored(t)
	for format, want := range map[string]string{"text": "done\n", "name": "volume.holdfast.dev/pvc-1\n"} {
		if out, _, err := changed(t, volumeObject, append(flags, "-o", format), false, nil); err != nil || out != want {
			t.Errorf("%s: %v: %q", format, err, out)
		}
	}
	for _, gone := range []bool{false, true} {
		out, said, err := changed(t, volumeObject, append(flags, "-ojson"), gone, nil)
		if err != nil || said != "done\n" {
			t.Errorf("%v, and on standard error %q", err, said)
		}
		for _, want := range []string{`"apiVersion": "holdfast.dev/v1beta1"`, `"kind": "Volume"`, `"name": "pvc-1"`, `"spec": {`} {
			if !strings.HasPrefix(out, "{") || !strings.Contains(out, want) || strings.Contains(out, "managedFields") {
				t.Errorf("%s is not in, or managedFields are:\n%s", want, out)
			}
		}
	}
	refused := errors.New("refused")
	if out, _, err := changed(t, volumeObject, append(flags, "-oyaml"), true, refused); !errors.Is(err, refused) || out != "" {
		t.Errorf("%v, and printed is %q", err, out)
	}
}

func TestChange_ObjectThatCannotBeReadFailsOnlyWhereItIsPrinted(t *testing.T) {
	flags, reads := stored(t), 0
	unreadable := object{"Volume", func(context.Context, *admin.Admin, string) (runtime.Object, error) {
		reads++
		return nil, errors.New("no answer")
	}}
	for _, gone := range []bool{false, true} {
		for _, format := range []string{"text", "name"} {
			if _, _, err := changed(t, unreadable, append(flags, "-o", format), gone, nil); err != nil || reads != 0 {
				t.Errorf("%s: %v after %d reads", format, err, reads)
			}
		}
		if out, said, err := changed(t, unreadable, append(flags, "-ojson"), gone, nil); err == nil || !strings.Contains(err.Error(), "it is done, but Volume pvc-1 could not be read: no answer") || out != "" || said != "done\n" {
			t.Errorf("%v: %q, %q", err, out, said)
		}
		reads = 0
	}
}
