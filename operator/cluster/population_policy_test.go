package cluster

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestPopulation_OnlyTheControllerAsksForACopyAndSaysHowFarItIs(t *testing.T) {
	const policy = "holdfast-population"
	r := newRig(t).start()
	r.create("holdfast", nil)
	r.reconciled("holdfast")
	create := func(user string, labels map[string]string) error {
		v := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: "stolen", Labels: labels}, Spec: v1beta1.VolumeSpec{
			Name: "stolen", Node: "node1", PopulatedBy: v1beta1.PopulatedByPod, SourceRef: &v1beta1.SourceReference{Kind: v1beta1.SourceVolume, Name: "another"},
		}}
		_, err := r.as(user).HoldfastV1beta1().Volumes().Create(t.Context(), v, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	wait.Until(r, "the rule being held", func() bool { return realapi.RefusedBy(policy, create("jane", nil)) })
	if err := create(agentUser, map[string]string{v1beta1.AdoptedLabel: "true"}); !realapi.RefusedBy(policy, err) {
		t.Errorf("by an agent that says that it is on its disk: %v", err)
	}
	if err := create(controllerUser, nil); err != nil {
		t.Errorf("by the controller: %v", err)
	}

	renew := func(user string, v *v1beta1.Volume, change func(*v1beta1.Volume)) error {
		change(v)
		dry, volumes := []string{metav1.DryRunAll}, r.as(user).HoldfastV1beta1().Volumes()
		if v.UID == "" {
			_, err := volumes.Create(t.Context(), v, metav1.CreateOptions{DryRun: dry})
			return err
		}
		_, err := volumes.Update(t.Context(), v, metav1.UpdateOptions{DryRun: dry})
		return err
	}
	annotate := func(v *v1beta1.Volume) { v.Annotations = map[string]string{"holdfast.dev/renew-claim": "{}"} }

	r.stored()
	volume := func() *v1beta1.Volume {
		return check.Got(r.ours.HoldfastV1beta1().Volumes().Get(t.Context(), "node1", metav1.GetOptions{}))(t)
	}
	for _, user := range []string{"jane", agentUser} {
		fresh := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: "forged", Labels: map[string]string{v1beta1.AdoptedLabel: "true"}}, Spec: v1beta1.VolumeSpec{Name: "forged", Node: "node1"}}
		for _, v := range []*v1beta1.Volume{fresh, volume()} {
			if err := renew(user, v, annotate); !realapi.RefusedBy(policy, err) && !realapi.RefusedBy(nodeAccount, err) {
				t.Errorf("a claim to recreate, of %s, by %s: %v", v.Name, user, err)
			}
		}
	}
	if err := renew(controllerUser, volume(), annotate); err != nil {
		t.Errorf("a claim to recreate by the controller: %v", err)
	}
	if err := renew(agentUser, volume(), func(v *v1beta1.Volume) { v.Finalizers = []string{v1beta1.AgentFinalizer} }); err != nil {
		t.Errorf("another change by an agent: %v", err)
	}
	status := func(user, status string) error {
		_, err := r.as(user).HoldfastV1beta1().Volumes().Patch(t.Context(), "node1", types.MergePatchType, []byte(`{"status":`+status+`}`), metav1.PatchOptions{}, "status")
		return err
	}
	const (
		copying   = `{"copy":{"phase":"Copying","bytesDone":1}}`
		populated = `{"conditions":[{"type":"Populated","status":"True","reason":"Populated","message":"","lastTransitionTime":"2026-11-26T00:00:00Z"}]}`
	)
	for _, s := range []string{copying, populated} {
		for _, user := range []string{"jane", agentUser} {
			if err := status(user, s); !realapi.RefusedBy(policy, err) {
				t.Errorf("%s by %s: %v", s, user, err)
			}
		}
		if err := status(controllerUser, s); err != nil {
			t.Errorf("%s by the controller: %v", s, err)
		}
	}
	for _, s := range []string{`{"copy":null}`, `{"copy":{"bytesDone":2}}`, `{"conditions":null}`} {
		if err := status(agentUser, s); !realapi.RefusedBy(policy, err) {
			t.Errorf("%s by an agent: %v", s, err)
		}
	}
	if err := status(agentUser, `{"phase":"Ready","fsType":"ext4"}`); err != nil {
		t.Errorf("what else the agent writes: %v", err)
	}
}
