package admin

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// prints waits until there is a text in the output.
func (r *rig) prints(text string) {
	r.Helper()
	wait.For(r, text, func() error {
		if out := r.out.String(); !strings.Contains(out, text) {
			return fmt.Errorf("there is\n%s", out)
		}
		return nil
	})
}

func TestFollow_OutlivesWatchesThatBreak(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.node("a")
		r.volume("pvc-1", inPhase(v1beta1.PhasePending))
		done := make(chan error, 1)
		go func() {
			v, err := r.awaitReady(r.Context(), "pvc-1")
			if err == nil && v.Status.Phase != v1beta1.PhaseReady {
				err = fmt.Errorf("it ended with %s", v.Status.Phase)
			}
			done <- err
		}()
		wait.Until(r, "the watch", func() bool { return r.api.Requests()["watch volumes"] > 0 })
		r.api.BreakWatches()
		r.becomes("pvc-1", v1beta1.PhaseReady)
		r.must(<-done)
	})
}

func TestFollow_EndsAtOnceWhereNoWaitWouldHelp(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.door.refused["GET volumes"] = "you may not watch volumes" // a list or a watch
		ctx, cancel := r.limited(r.Context())
		defer cancel()
		_, err := r.awaitReady(ctx, "pvc-1")
		r.refuses(err, "may not watch")
		if errors.Is(err, errTimeout) {
			r.Error("it waited all the same")
		}
	})
}
