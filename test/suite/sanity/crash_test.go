package sanity

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/standalone"
)

func crashingBinary(t *testing.T) string {
	t.Helper()
	return check.Got(standalone.CrashingBinary(t.Context(), t.TempDir()))(t)
}

// dying starts the process so that it kills itself at a step, runs call, and starts an ordinary one. It says whether
// the step was reached.
func (w *world) dying(step crashpoint.Step, call func() error) bool {
	w.Helper()
	w.must(w.Stop())
	w.options.Env = []string{"HOLDFAST_CRASH_AT=" + string(step)}
	w.start()
	err := call()
	reached := status.Code(err) == codes.Unavailable
	if reached && !w.Killed() {
		w.Fatalf("%s: %v, but the process lives", step, err)
	}
	w.options.Env = nil
	w.restart()
	return reached
}

func TestInlineVolume_SurvivesAKillAtEveryStep(t *testing.T) {
	hostfs.RequireRoot(t)
	binary := crashingBinary(t)
	for _, s := range []setting{imageOnXFS, {"directory", hostfs.Btrfs}} {
		t.Run(s.engine, func(t *testing.T) {
			w := newWorld(t, s, "")
			w.options.Binary = binary
			var reached []string
			for _, step := range crashpoint.Steps {
				if w.dying(step, func() error { return w.inline(handle, "target", w.attributes(), false) }) {
					reached = append(reached, "publish:"+string(step))
				}
				w.must(w.inline(handle, "target", w.attributes(), false))
				if n := w.mountedAt("target"); n != 1 {
					t.Errorf("%s: %d mounts", step, n)
				}
				w.write("target", "file", "kept")
				if w.dying(step, func() error { return w.unpublish(handle, "target") }) {
					reached = append(reached, "unpublish:"+string(step))
				}
				w.must(w.unpublish(handle, "target"))
				w.expectGone("target")
				w.nothingLeft()
			}
			got := strings.Join(reached, " ")
			for _, want := range []crashpoint.Step{crashpoint.BuildBegun, crashpoint.BuildCommitted, crashpoint.StageMounted, crashpoint.PublishBound} {
				if !strings.Contains(got, "publish:"+string(want)) {
					t.Errorf("publish never reached %s: %s", want, got)
				}
			}
			for _, want := range []crashpoint.Step{crashpoint.UnpublishDone, crashpoint.DeleteTrashed, crashpoint.DeletePartly} {
				if !strings.Contains(got, "unpublish:"+string(want)) {
					t.Errorf("unpublish never reached %s: %s", want, got)
				}
			}
		})
	}
}
