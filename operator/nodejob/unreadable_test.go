package nodejob_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// unreadable waits until the status and an event report that a job cannot be decoded.
func (r *rig) unreadable(job *v1beta1.NodeJob) *v1beta1.NodeJob {
	r.Helper()
	var now *v1beta1.NodeJob
	wait.For(r, "the word that it cannot be read", func() error {
		now = r.get(job)
		c := meta.FindStatusCondition(now.Status.Conditions, v1beta1.CompleteCondition)
		if c == nil || c.Reason != v1beta1.ReasonUnreadable || !slices.Contains(r.reported(), "Warning Unreadable") {
			return fmt.Errorf("it is %+v, the events are %v", now.Status, r.reported())
		}
		return nil
	})
	return now
}

// spoil writes a value, in JSON, in place of the number of attempts.
func (r *rig) spoil(job *v1beta1.NodeJob, attempts string) {
	r.Helper()
	check.Got(r.client.HoldfastV1beta1().NodeJobs().Patch(r.Context(), job.Name, types.MergePatchType, []byte(`{"spec":{"backoffLimit":`+attempts+`}}`), metav1.PatchOptions{}))(r)
}

func TestUnreadable_JobIsNamedAndTheOthersRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, exitsWell, "a", "b")
		bad := r.job(v1beta1.NodeJobSpec{Image: "i"})
		r.spoil(bad, `"often"`)
		r.controller(r.api.Config())
		if now := r.end(r.named("other", v1beta1.NodeJobSpec{Image: "i"})); now.Status.Phase != v1beta1.JobCompleted {
			t.Errorf("the other ended as %+v", now.Status)
		}
		now := r.unreadable(bad)
		c := meta.FindStatusCondition(now.Status.Conditions, v1beta1.CompleteCondition)
		if c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, `spec.backoffLimit: "often"`) {
			t.Errorf("it says %+v", c)
		}
		if ready := meta.FindStatusCondition(now.Status.Conditions, v1beta1.ReadyCondition); ready == nil || ready.Status != c.Status || ready.Reason != c.Reason || ready.Message != c.Message {
			t.Errorf("Ready is %+v", ready)
		}
		if !meta.IsStatusConditionTrue(now.Status.Conditions, v1beta1.StalledCondition) {
			t.Error("it is not Stalled")
		}
		if len(now.Status.Nodes) > 0 || now.Status.Phase != "" || now.Status.ObservedGeneration != now.Generation || now.Unreadable() == nil {
			t.Errorf("it became %+v", now)
		}
		r.spoil(bad, "null")
		if now := r.end(bad); now.Status.Phase != v1beta1.JobCompleted || meta.IsStatusConditionTrue(now.Status.Conditions, v1beta1.StalledCondition) || !meta.IsStatusConditionTrue(now.Status.Conditions, v1beta1.ReadyCondition) {
			t.Errorf("once it could be read, it ended as %+v", now.Status)
		}
	})
}

func TestUnreadable_JobThatHasEndedKeepsItsResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, exitsWell, "a")
		r.controller(r.api.Config())
		job := r.end(r.job(v1beta1.NodeJobSpec{Image: "i"}))
		r.spoil(job, `"often"`)
		r.end(r.named("other", v1beta1.NodeJobSpec{Image: "i"})) // by then the change was seen
		now, err := r.client.HoldfastV1beta1().NodeJobs().Get(t.Context(), job.Name, metav1.GetOptions{})
		if err != nil || now.Unreadable() == nil || !equality.Semantic.DeepEqual(now.Status, job.Status) {
			t.Errorf("its status became %+v, %v", now.Status, err)
		}
	})
}
