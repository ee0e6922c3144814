package nodejob

import (
	"math"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/hostile"
)

// FuzzNodeJob lets any job run to its end, in a cluster of which some nodes refuse it.
func FuzzNodeJob(f *testing.F) {
	for _, seed := range hostile.Seeds(400) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		s := anyJob(t, choices)
		for i := range 100 {
			s.step()
			s.shaped()
			if s.plan.finished || hasEnded(s.job) {
				return
			}
			s.goOn(i > 30)
		}
		t.Errorf("it does not end: %+v\nof %s", s.job.Status, hostile.Text(s.job.Spec))
	})
}

func anyJob(t *testing.T, choices []byte) *scene {
	t.Helper()
	s := newScene(t, "a", "b")
	s.nodes = append(s.nodes, node("c", core.Taint{Key: "zone", Value: "1", Effect: core.TaintEffectNoSchedule}))
	s.nodes[0].Labels["zone"] = "1"
	s.job.Spec = v1beta1.NodeJobSpec{Image: "image:1"}
	hostile.Fill(choices, &s.job.Spec)
	if s.job.Spec.Task == "" { // the schema has nothing else
		s.job.Spec.Image, s.job.Spec.HostPath, s.job.Spec.MountPath = "image:1", "", ""
		if len(choices)%2 == 0 {
			s.job.Spec.HostPath, s.job.Spec.MountPath = "/srv", "/mnt"
		}
	}
	if s.job.Spec.Pool != path.Base(path.Clean("/"+s.job.Spec.Pool)) {
		s.job.Spec.Pool = "fast"
	}
	if len(choices)%3 == 1 {
		s.refusals["b"] = "it is in use"
	}
	return s
}

// goOn is what happens between two looks: pods run, end well or badly, all of them late, and time goes by.
func (s *scene) goOn(late bool) {
	s.now = s.now.Add(max(s.plan.again, time.Second))
	for i, p := range s.pods {
		switch {
		case over(p):
		case late || i%2 == 0:
			s.exits(p.Annotations[nodeAnnotation], int32(i%3), s.job.Spec.CompletionWord)
		default:
			s.running(p.Annotations[nodeAnnotation])
		}
	}
}

// shaped wants that the API server would take all that a plan makes, and that it says something.
func (s *scene) shaped() {
	s.Helper()
	for _, wrong := range hostile.WrongConditions(s.job.Status.Conditions) {
		s.Errorf("%s\nof %s", wrong, hostile.Text(s.job.Spec))
	}
	if len(s.job.Status.Conditions) == 0 {
		s.Error("it says nothing")
	}
	for _, p := range s.plan.create {
		for _, wrong := range slices.Concat(hostile.WrongMeta(p), hostile.WrongPod(&p.Spec), validation.IsDNS1123Label(p.Name)) {
			s.Errorf("pod %s: %s\nof %s", p.Name, wrong, hostile.Text(s.job.Spec))
		}
		terms := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		if len(terms) != 1 || !slices.Equal(terms[0].MatchFields[0].Values, []string{p.Annotations[nodeAnnotation]}) {
			s.Errorf("pod %s goes to %v", p.Name, terms)
		}
		if p.Labels[JobLabel] != string(s.job.UID) {
			s.Errorf("pod %s is that of job %q", p.Name, p.Labels[JobLabel])
		}
	}
}

func TestFuzz_SeedsRunAndAreRefused(t *testing.T) {
	reasons, pods := map[string]int{}, 0
	for _, seed := range hostile.Seeds(400) {
		s := anyJob(t, seed)
		s.step().step()
		pods += len(s.pods)
		for _, c := range s.job.Status.Conditions {
			reasons[c.Reason]++
		}
	}
	if pods < 100 || reasons["InvalidSelector"] == 0 || reasons["NoNodes"] == 0 || reasons["InvalidTask"] == 0 {
		t.Errorf("%d pods, %v: too few to show anything", pods, reasons)
	}
}

// What the fuzzer has found.

func TestTimeout_TheLongestGivesAPodThatKubernetesTakesAndALongerOneIsRefused(t *testing.T) {
	for timeout, least := range map[v1beta1.Duration]int64{"1d12h": 36 * 3600, *v1beta1.DurationOf(10 * 365 * 24 * time.Hour): 3600} {
		s := newScene(t, "a")
		s.job.Spec.Timeout = &timeout
		if deadline := *s.step().step().pod("a").Spec.ActiveDeadlineSeconds; deadline < least || deadline > math.MaxInt32 {
			t.Errorf("%s: its pod ends after %d s", timeout, deadline)
		}
	}
	for _, timeout := range []time.Duration{math.MaxInt64, 1 << 62, 100 * 365 * 24 * time.Hour} {
		s := newScene(t, "a")
		s.job.Spec.Timeout = v1beta1.DurationOf(timeout)
		s.step()
		s.wantJob(v1beta1.JobFailed, "", "timeout")
	}
}

func TestSelector_OfManyLongWordsIsRefusedBriefly(t *testing.T) {
	s := newScene(t, "a")
	for range 32 {
		s.job.Spec.NodeSelectorTerms = append(s.job.Spec.NodeSelectorTerms, core.NodeSelectorTerm{
			MatchExpressions: []core.NodeSelectorRequirement{{Key: strings.Repeat("x", 5000), Operator: "Near"}},
		})
	}
	s.step().shaped()
	s.wantJob(v1beta1.JobFailed, "", "nodeSelectorTerms")
}
