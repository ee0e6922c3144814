package volume

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

func TestPlan_OfWhatIsOnASilentNode(t *testing.T) {
	down, gone := plight{v1beta1.ReasonNodeDown, "silent"}, plight{v1beta1.ReasonNodeGone, "deleted"}
	made := func(v *v1beta1.Volume) {
		v.Status.CreationTime, v.Status.Phase = new(metav1.NowMicro()), v1beta1.PhaseReady
	}
	deleted := func(v *v1beta1.Volume) { v.DeletionTimestamp = new(metav1.Now()) }
	requested := func(v *v1beta1.Volume) { v.UID, v.Spec.Deletion = "a", v1beta1.NewDeletionRequest("a", "a test", "") }
	goesWithNode := func(v *v1beta1.Volume) { v.Spec.OnNodeLoss = v1beta1.DeleteOnNodeLoss }
	marked := func(p plight) func(*v1beta1.Volume) {
		return func(v *v1beta1.Volume) { p.mark(&v.Status.Conditions, 1) }
	}
	phase := func(p v1beta1.Phase) func(*v1beta1.Volume) { return func(v *v1beta1.Volume) { v.Status.Phase = p } }
	unreadable := func(v *v1beta1.Volume) {
		if err := json.Unmarshal([]byte(`{"spec":{"shared":"x"}}`), v); err != nil || v.Unreadable() == nil {
			t.Fatalf("it can be read: %v", err)
		}
	}
	type change = func(*v1beta1.Volume)
	for name, test := range map[string]struct {
		changes          []change
		plight           plight
		home             string
		volume, snapshot action
	}{
		"down":                             {[]change{made}, down, "", mark, mark},
		"down, marked":                     {[]change{made, marked(down)}, down, "", leave, leave},
		"down, and then gone":              {[]change{made, marked(down)}, gone, "", mark, mark},
		"gone, marked, still said ready":   {[]change{made, marked(gone)}, gone, "", mark, mark},
		"gone, marked and unreachable":     {[]change{made, marked(gone), phase(v1beta1.PhaseUnreachable)}, gone, "", leave, leave},
		"gone, marked and lost before":     {[]change{made, marked(gone), phase(v1beta1.PhaseLost)}, gone, "", leave, leave},
		"gone, goes with its node":         {[]change{made, goesWithNode}, gone, "", giveUp, mark},
		"down, goes with its node":         {[]change{made, goesWithNode}, down, "", mark, mark},
		"gone, never made":                 {[]change{goesWithNode}, gone, "", mark, mark},
		"gone, deleted on request":         {[]change{made, deleted, requested}, gone, "", giveUp, giveUp},
		"gone, deleted without a request":  {[]change{made, deleted}, gone, "", mark, mark},
		"gone, deleted before it was made": {[]change{deleted}, gone, "", giveUp, giveUp},
		"down, deleted on request":         {[]change{made, deleted, requested}, down, "", mark, mark},
		"cannot be decoded":                {[]change{unreadable}, gone, "", report, report},
		"on another node now":              {[]change{made, goesWithNode}, gone, "node-b", handOver, handOver},
	} {
		v := &v1beta1.Volume{}
		for _, change := range test.changes {
			change(v)
		}
		if got := test.plight.planVolume(v, test.home); got != test.volume {
			t.Errorf("%s: the volume gets action %d, want %d", name, got, test.volume)
		}
		s := &v1beta1.Snapshot{ObjectMeta: v.ObjectMeta, DecodeError: v.DecodeError, Spec: v1beta1.SnapshotSpec{Deletion: v.Spec.Deletion}}
		s.Status.CreationTime, s.Status.Phase, s.Status.Conditions = v.Status.CreationTime, v.Status.Phase, v.Status.Conditions
		if got := test.plight.planSnapshot(s, test.home); got != test.snapshot {
			t.Errorf("%s: the snapshot gets action %d, want %d", name, got, test.snapshot)
		}
	}
}
