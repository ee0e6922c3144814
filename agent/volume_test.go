package agent

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// Their syncs share commits of the file system that their pool is on.
func TestVolumes_OfABurstAreMadeAtOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.change = func(c *Config) { c.SlowAfter = time.Hour }
		var running atomic.Int32
		proceed := make(chan struct{})
		r.host.enter = func(call string) {
			if strings.HasPrefix(call, "create ") {
				running.Add(1)
				<-proceed
			}
		}
		r.begin()
		for i := range 40 {
			r.ask(fmt.Sprintf("v%d", i))
		}
		<-time.After(time.Minute)
		if n := running.Load(); n != 32 {
			r.Errorf("%d of 40 volumes are being made", n)
		}
		close(proceed)
		for i := range 40 {
			r.phase(fmt.Sprintf("v%d", i), v1beta1.PhaseReady)
		}
	})
}

func TestVolume_IsCreatedAndReported(t *testing.T) {
	withAgent(t, func(r *rig) {
		var early atomic.Bool
		r.host.set(func() {
			r.host.enter = func(call string) {
				if v := r.volume("a"); call == "create a" && !slices.Contains(v.Finalizers, v1beta1.AgentFinalizer) {
					early.Store(true)
				}
			}
		})
		r.ask("a", func(v *v1beta1.Volume) {
			v.Finalizers = []string{"example.com/other"}
			v.Spec.Mode, v.Spec.FSType, v.Spec.Labels = v1beta1.ModeFilesystem, v1beta1.XFS, map[string]string{"any/thing/at all": "ü"}
		})
		v := r.phase("a", v1beta1.PhaseReady)
		if early.Load() || !slices.Equal(v.Finalizers, []string{"example.com/other", v1beta1.AgentFinalizer}) {
			r.Errorf("made without our finalizer: %t; finalizers now %v", early.Load(), v.Finalizers)
		}
		s := v.Status
		if s.Size.Value() != 16*mib || s.Pool != "memory" || s.FSType != "xfs" || s.Mode != v1beta1.ModeFilesystem || s.Provisioning != v1beta1.Thin ||
			s.CreationTime == nil || s.Error != nil || s.ObservedGeneration != v.Generation || s.Columns.Size != "16Mi" {
			r.Errorf("reported %+v", s)
		}
		expectCondition(r, s.Conditions, v1beta1.ReadyCondition, metav1.ConditionTrue, v1beta1.ReasonReady)
		expectCondition(r, s.Conditions, v1beta1.HealthyCondition, metav1.ConditionTrue, v1beta1.ReasonHealthy)
		made, err := r.host.Get(r.Context(), "a")
		if err != nil || made.Labels["any/thing/at all"] != "ü" {
			r.Errorf("on the host it is %+v, %v", made, err)
		}
	})
}

func TestVolume_RestoreAndCloneReportTheirSource(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.withVolumes("a")
		r.withSnapshot("s", "a")
		for name, source := range map[string]v1beta1.SourceReference{"clone": {Kind: v1beta1.SourceVolume, Name: "a"}, "restored": {Kind: v1beta1.SourceSnapshot, Name: "s"}} {
			r.ask(name, func(v *v1beta1.Volume) { v.Spec.SourceRef = &source })
			if v := r.phase(name, v1beta1.PhaseReady); v.Status.SourceRef == nil || *v.Status.SourceRef != source {
				r.Errorf("%s was made from %+v", name, v.Status.SourceRef)
			}
		}
	})
}

func TestVolume_FromASourceOfAnUnknownKindIsRefused(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.withVolumes("a")
		r.ask("odd", func(v *v1beta1.Volume) { v.Spec.SourceRef = &v1beta1.SourceReference{Kind: "Disk", Name: "a"} })
		if e := r.phase("odd", v1beta1.PhaseFailed).Status.Error; e == nil || e.Code != v1beta1.ErrorInvalid || !strings.Contains(e.Message, "from a Disk") {
			r.Errorf("recorded %+v", e)
		}
	})
}

func TestVolume_PermanentErrorIsRecordedAndNotRetriedUntilTheSpecChanges(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.host.refuse["create a"] = fmt.Errorf("%w: 16777216 bytes requested, 5 left", backend.ErrExhausted)
		r.begin().ask("a")
		v := r.phase("a", v1beta1.PhaseFailed)
		if e := v.Status.Error; e == nil || e.Code != v1beta1.ErrorExhausted || !strings.Contains(e.Message, "5 left") {
			r.Errorf("recorded %+v", e)
		}
		expectCondition(r, v.Status.Conditions, v1beta1.ReadyCondition, metav1.ConditionFalse, string(v1beta1.ErrorExhausted))
		r.expectEvent(string(v1beta1.ErrorExhausted))
		r.restart()
		r.withVolumes("b") // so everything before it was worked on
		r.called("create a", 1)
		r.host.set(func() { delete(r.host.refuse, "create a") })
		r.grow("a", 32*mib)
		if v = r.phase("a", v1beta1.PhaseReady); v.Status.Error != nil || v.Status.ObservedGeneration != 2 {
			r.Errorf("after the change: %+v", v.Status)
		}
	})
}

func TestVolume_TransientErrorIsRecordedAndRetried(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.host.refuse["create a"] = errors.New("mkfs: input/output error\ngoroutine 7 [running]: main.main()")
		r.begin().ask("a")
		wait.Until(r, "the error", func() bool { v := r.volume("a"); return v.Status.Error != nil })
		v := r.volume("a")
		if e := v.Status.Error; e.Code != v1beta1.ErrorUnavailable || e.Message != "mkfs: input/output error" || v.Status.Phase != v1beta1.PhasePending {
			r.Errorf("recorded %+v in phase %s", e, v.Status.Phase)
		}
		r.host.set(func() { clear(r.host.refuse) })
		if v := r.phase("a", v1beta1.PhaseReady); v.Status.Error != nil {
			r.Errorf("it still says %+v", v.Status.Error)
		}
	})
}

func TestVolume_WithAWrongNameIsRefusedAndOneOfAnotherNodeLeftAlone(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.ask("other", func(v *v1beta1.Volume) { v.Spec.Node = "node-b" })
		r.ask("a", func(v *v1beta1.Volume) { v.Spec.Name = "b" })
		v := r.phase("a", v1beta1.PhaseFailed)
		if v.Status.Error.Code != v1beta1.ErrorInvalid || r.host.has("a") || r.host.has("b") {
			r.Errorf("recorded %+v", v.Status.Error)
		}
		r.withVolumes("own")
		if v := r.volume("other"); v.Status.Phase != "" || r.host.has("other") {
			r.Errorf("the other node's volume is %+v", v.Status)
		}
	})
}

func TestVolume_ThatVanishedIsLostAndNeverCreatedAgain(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.withVolumes("a")
		check.OK(r, r.host.Memory.Delete(r.Context(), "a")) // behind the agent's back
		v := r.phase("a", v1beta1.PhaseLost)
		c := expectCondition(r, v.Status.Conditions, v1beta1.ReadyCondition, metav1.ConditionFalse, v1beta1.ReasonMissing)
		if !strings.Contains(c.Message, node) {
			r.Errorf("it says %q", c.Message)
		}
		expectCondition(r, v.Status.Conditions, v1beta1.HealthyCondition, metav1.ConditionFalse, v1beta1.ReasonMissing)
		r.expectEvent("Lost")
		r.restart()
		r.grow("a", 32*mib) // not even when more is requested
		wait.Until(r, "an answer", func() bool { v = r.volume("a"); return v.Status.ObservedGeneration == 2 })
		if v.Status.Phase != v1beta1.PhaseLost || r.host.has("a") || r.host.count("create a") != 1 {
			r.Errorf("it is %s, made %d times", v.Status.Phase, r.host.count("create a"))
		}
		check.Got(r.host.Memory.Create(r.Context(), backend.VolumeSpec{Name: "a", Size: backend.Size{Required: 32 * mib}}))(r) // it returns
		r.phase("a", v1beta1.PhaseReady)
		r.expectEvent("Recovered")
	})
}

func TestVolume_GrowsOrReportsWhyItCannot(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.ask("a")
		grow := func(bytes int64) *v1beta1.Volume {
			r.phase("a", v1beta1.PhaseReady)
			v := r.grow("a", bytes)
			wait.Until(r, "an answer", func() bool { return r.volume("a").Status.ObservedGeneration == v.Generation })
			return r.volume("a")
		}
		if v := grow(32 * mib); v.Status.Size.Value() != 32*mib || v.Status.Error != nil {
			r.Fatalf("grown: %+v", v.Status)
		}
		v := grow(1 << 50)
		if v.Status.Size.Value() != 32*mib || v.Status.Error == nil || v.Status.Error.Code != v1beta1.ErrorExhausted || v.Status.Phase != v1beta1.PhaseReady {
			r.Errorf("refused: %+v", v.Status)
		}
		expectCondition(r, v.Status.Conditions, v1beta1.ReadyCondition, metav1.ConditionTrue, v1beta1.ReasonReady) // it can be used as it is
		if v = grow(32 * mib); v.Status.Error != nil {
			r.Errorf("taken back: %+v", v.Status.Error)
		}
		r.called("expand a", 2)
	})
}

func TestVolume_SeveralAreReconciledAtOnceAndEachOneAtATime(t *testing.T) {
	inBubble(t, func(r *rig) {
		const crowd = 4
		r.change = func(c *Config) { c.Workers = crowd }
		inside, all := make(chan string, 100), make(chan struct{})
		r.host.enter = func(call string) {
			if strings.HasPrefix(call, "create ") {
				inside <- call
				<-all
			}
		}
		r.begin()
		for i := range crowd {
			r.ask(fmt.Sprintf("v%d", i))
		}
		seen := map[string]bool{}
		for range crowd {
			call := <-inside // with fewer workers this would not end
			if seen[call] {
				r.Errorf("%s runs twice", call)
			}
			seen[call] = true
		}
		r.grow("v0", 32*mib) // an event for what is being worked on
		close(all)
		for i := range crowd {
			r.phase(fmt.Sprintf("v%d", i), v1beta1.PhaseReady)
		}
		wait.Until(r, "the larger size", func() bool { return r.volume("v0").Status.Size.Value() == 32*mib })
		r.called("create v0", 1)
	})
}

func TestVolume_PanicOfTheBackendIsAnErrorOfOneVolume(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.host.enter = func(call string) {
			if call == "create a" {
				panic("oops")
			}
		}
		r.begin().ask("a")
		r.withVolumes("b")
	})
}

func TestVolume_NothingIsRepeatedWhileTheWatchLags(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.change = func(c *Config) { c.SurveyEvery = time.Hour }
		release := func() {}
		r.host.enter = func(call string) {
			if call == "expand a" || call == "delete a" {
				release = r.api.HoldWatches() // the agent will not see that it has answered, or that the object has gone
			}
		}
		r.host.refuse["expand a"] = fmt.Errorf("%w: full", backend.ErrExhausted)
		r.begin().withVolumes("a")
		v := r.grow("a", 32*mib)
		wait.Until(r, "the answer", func() bool { return r.volume("a").Status.ObservedGeneration == v.Generation })
		once := func(call string) {
			r.Helper()
			for range 3 {
				r.agent.Released("a")
				wait.Never(r, "a second time", 2*watchDelay, func() bool { return r.host.count(call) > 1 })
			}
			release()
			r.withVolumes("after-" + strings.Fields(call)[0])
			r.called(call, 1)
		}
		once("expand a")
		r.remove("a")
		r.gone("a")
		once("delete a")
	})
}

func TestVolume_ThatAPodPopulatesIsMadeEmptyAndReadyWhenItIsComplete(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.change = func(c *Config) { c.SurveyEvery = time.Hour }
		r.begin()
		source := v1beta1.SourceReference{Kind: v1beta1.SourceSnapshot, Name: "of-another-pool"}
		r.ask("a", func(v *v1beta1.Volume) { v.Spec.SourceRef, v.Spec.PopulatedBy = &source, v1beta1.PopulatedByPod })
		wait.Until(r, "the volume", func() bool { return r.volume("a").Status.CreationTime != nil })
		v := r.volume("a")
		if v.Status.Phase != v1beta1.PhasePending || v.Status.SourceRef != nil || v.IsComplete() {
			r.Errorf("it is %+v", v.Status)
		}
		expectCondition(r, v.Status.Conditions, v1beta1.ReadyCondition, metav1.ConditionFalse, v1beta1.ReasonPopulating)
		if !r.onDisk("a").Incomplete {
			r.Error("the disk has it as complete")
		}
		copied := v1beta1.VolumeCopy{Phase: v1beta1.CopyCopying, BytesDone: 1, BytesTotal: 2}
		r.writeStatus("a", func(s *v1beta1.VolumeStatus) { s.Copy = &copied })
		r.restart()
		r.grow("a", 32*mib)
		wait.Until(r, "the larger volume", func() bool { return v1beta1.Bytes(r.volume("a").Status.Size) == 32*mib })
		if v = r.volume("a"); v.Status.Copy == nil || *v.Status.Copy != copied || v.Status.Phase != v1beta1.PhasePending {
			r.Errorf("after a write of the agent it is %+v", v.Status)
		}
		copied.Phase = v1beta1.CopyComplete
		r.writeStatus("a", func(s *v1beta1.VolumeStatus) { s.Copy = &copied })
		wait.Until(r, "the disk having it as complete", func() bool { return r.volume("a").HasContent() })
		if v = r.volume("a"); r.onDisk("a").Incomplete || v.IsComplete() || v.Status.Phase != v1beta1.PhasePending {
			r.Errorf("before the controller says that it is populated it is %+v", v.Status)
		}
		expectCondition(r, v.Status.Conditions, v1beta1.CompleteCondition, metav1.ConditionTrue, v1beta1.ReasonCopyVerified)
		r.writeStatus("a", func(s *v1beta1.VolumeStatus) {
			meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: v1beta1.PopulatedCondition, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonPopulated})
		})
		v = r.phase("a", v1beta1.PhaseReady)
		expectCondition(r, v.Status.Conditions, v1beta1.ReadyCondition, metav1.ConditionTrue, v1beta1.ReasonReady)
		expectCondition(r, v.Status.Conditions, v1beta1.PopulatedCondition, metav1.ConditionTrue, v1beta1.ReasonPopulated)
		before := time.Now()
		r.writeStatus("a", func(s *v1beta1.VolumeStatus) { // etcd is put back
			s.Copy.Phase = v1beta1.CopyCopying
			meta.RemoveStatusCondition(&s.Conditions, v1beta1.PopulatedCondition)
		})
		wait.Until(r, "the object being known as older than the content", func() bool { return r.volume("a").HasContent() })
		if took := time.Since(before); took > time.Minute { // of the virtual clock: in the meantime a pod may begin to copy
			r.Errorf("that is known after %s", took)
		}
		r.writeStatus("a", func(s *v1beta1.VolumeStatus) {
			meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: v1beta1.PopulatedCondition, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonPopulated})
		})
		wait.Until(r, "it being whole by both", func() bool { v := r.volume("a"); return !v.HasContent() && v.Status.Phase == v1beta1.PhaseReady })
	})
}

func TestVolumeSpec_OmitsTheServerAndKeepsNoTemporarySourceInTheTrash(t *testing.T) {
	o := &v1beta1.Volume{Spec: v1beta1.VolumeSpec{Name: "a", Node: "shop.files.nfs.holdfast.dev", Shared: true, ServerRef: v1beta1.ReferenceTo("shop/files")}}
	if spec := volumeSpec(o); spec.Shared || spec.Server != "" || spec.Ephemeral {
		t.Errorf("the requested volume of a user is %+v", spec)
	}
	check.Report(t, isOf(o, &backend.Volume{ID: "a", Name: "a"})) // what was made for it before a restart
	o.Spec.Labels = map[string]string{v1beta1.CopyLabel: "a"}
	if !volumeSpec(o).Ephemeral {
		t.Error("the temporary source of a copy is kept")
	}
}

func TestVolume_OperationsThatTakeLongDoNotHoldUpOthers(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.change = func(c *Config) { c.Workers, c.SlowAfter = 2, 10*time.Millisecond }
		finish := make(chan struct{})
		end := sync.OnceFunc(func() { close(finish) })
		r.host.refuse["create slow-c"] = fmt.Errorf("%w: no such engine", backend.ErrInvalid)
		r.host.enter = func(call string) {
			if strings.HasPrefix(call, "create slow-") {
				<-finish
			}
		}
		r.begin()
		r.Cleanup(end)
		slow := []string{"slow-a", "slow-b", "slow-c"} // more than there are workers
		for _, name := range slow {
			r.ask(name)
		}
		for _, name := range slow {
			wait.Until(r, "the start of "+name, func() bool { return r.host.count("create "+name) > 0 })
		}
		r.withVolumes("quick")
		for _, name := range slow {
			if s := r.volume(name).Status; s.Phase != "" || s.Error != nil {
				r.Errorf("while it is created, the status of %s is %+v", name, s)
			}
		}
		end()
		r.phase("slow-a", v1beta1.PhaseReady)
		r.phase("slow-b", v1beta1.PhaseReady)
		r.phase("slow-c", v1beta1.PhaseFailed) // how it ended is still recorded
		r.called("create slow-a", 1)
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }

func TestVolume_ConflictsThatDoNotEndAreRetriedWithBackoff(t *testing.T) {
	inBubble(t, func(r *rig) {
		var writes atomic.Int32
		config := rest.CopyConfig(r.api.Config())
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTrip(func(q *http.Request) (*http.Response, error) {
				if q.Method != http.MethodPut || !strings.HasSuffix(q.URL.Path, "/volumes/a/status") {
					return next.RoundTrip(q)
				}
				writes.Add(1)
				body := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`
				return &http.Response{StatusCode: http.StatusConflict, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: q}, nil
			})
		})
		r.change = func(c *Config) {
			c.Client = client.NewForConfigOrDie(config)
			c.RetryFirst, c.RetryLast, c.SurveyEvery = time.Hour, time.Hour, time.Hour
		}
		r.begin().ask("a")
		const quick = 1 + quickRetries
		wait.Until(r, "the quick retries", func() bool { return writes.Load() == quick })
		wait.Never(r, "another retry without back-off", 5*watchDelay, func() bool { return writes.Load() > quick })
	})
}
