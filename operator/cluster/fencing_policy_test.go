package cluster

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

const (
	aFence     = `{"fence":{"reason":"NodeGone","requestedAt":"2026-11-25T00:00:00.000000Z"}}`
	aBlocklist = `{"blocklist":[{"node":"b","addresses":["10.0.0.5:0/1"],"requestedAt":"2026-11-25T00:00:00.000000Z"}]}`
)

func TestFence_OnlyTheControllerShutsOutAndLetsIn(t *testing.T) {
	r := newRig(t).start()
	r.create("holdfast", nil)
	r.reconciled("holdfast")
	r.stored()
	one := nodeRequests{r, "node1"}
	wait.Until(r, "the rule being held", func() bool { return realapi.RefusedBy("holdfast-node-requests", one.patch(r.as("jane"), aFence)) })
	refused := func(what, spec string) {
		t.Helper()
		for _, user := range []string{"jane", agentUser} {
			if err := one.patch(r.as(user), spec); !realapi.RefusedBy("holdfast-node-requests", err) || !strings.Contains(err.Error(), "only the controller of Holdfast may") {
				t.Errorf("%s by %s: %v", what, user, err)
			}
		}
	}
	refused("a fence", aFence)
	refused("a blocklist", aBlocklist)
	for _, spec := range []string{aFence, aBlocklist} {
		if _, err := r.as(controllerUser).HoldfastV1beta1().StorageNodes().Patch(t.Context(), "node1", types.MergePatchType, []byte(`{"spec":`+spec+`}`), metav1.PatchOptions{}); err != nil {
			t.Fatalf("%s by the controller: %v", spec, err)
		}
	}
	refused("the end of a fence", `{"fence":null}`)
	refused("the end of a blocklist", `{"blocklist":null}`)
	refused("the end of all requests", `null`)
	refused("another address", strings.Replace(aBlocklist, "0/1", "0/2", 1))
	if err := one.patch(r.as(agentUser), `{"restore":null}`); err != nil {
		t.Errorf("what else the agent writes: %v", err)
	}
	for _, address := range []string{"10.0.0.5:0/0", "10.0.0.5:6800/1", "10.0.0.0/24", "mon:0/1", "10.0.0.5:0/1 x"} {
		if err := one.patch(r.as(controllerUser), strings.Replace(aBlocklist, "10.0.0.5:0/1", address, 1)); err == nil {
			t.Errorf("the address %s is taken", address)
		}
	}
}

func TestStorageNode_WithClientsOfCephStaysUntilItIsShutOut(t *testing.T) {
	r := newRig(t).start()
	r.create("holdfast", nil)
	r.reconciled("holdfast")
	r.stored()
	nodes := r.ours.HoldfastV1beta1().StorageNodes()
	status := func(body string) {
		t.Helper()
		check.Got(nodes.Patch(t.Context(), "node1", types.MergePatchType, []byte(`{"status":`+body+`}`), metav1.PatchOptions{}, "status"))(t)
	}
	remove := func() error {
		return nodes.Delete(t.Context(), "node1", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	}
	if err := remove(); err != nil {
		t.Errorf("without clients: %v", err)
	}
	status(`{"cephClients":[{"fsid":"` + cephFSID + `","id":"client.1","address":"10.0.0.5:0/1"}]}`)
	wait.Until(r, "the record being kept", func() bool {
		err := remove()
		return realapi.RefusedBy("holdfast-node-requests", err) && strings.Contains(err.Error(), "node.kubernetes.io/out-of-service")
	})
	if err := r.as(controllerUser).HoldfastV1beta1().StorageNodes().Delete(t.Context(), "node1", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("by the controller: %v", err)
	}
	status(`{"conditions":[{"type":"Fenced","status":"True","reason":"Fenced","message":"","lastTransitionTime":"2026-11-25T00:00:00Z"}]}`)
	if err := remove(); err != nil {
		t.Errorf("once it is shut out: %v", err)
	}
}

// lonely makes a pod on a node that is not there, and its end.
func (r *rig) lonely(name string, claim bool, labels map[string]string) {
	r.Helper()
	p := &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: core.PodSpec{
		SchedulerName: "none", Containers: []core.Container{{Name: "a", Image: "busybox:1"}}, AutomountServiceAccountToken: new(false),
	}}
	if claim {
		p.Spec.Volumes = []core.Volume{{Name: "v", VolumeSource: core.VolumeSource{PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: "a"}}}}
	}
	pods := r.theirs.CoreV1().Pods(metav1.NamespaceDefault)
	check.Got(pods.Create(r.Context(), p, metav1.CreateOptions{}))(r)
	r.Cleanup(func() { _ = pods.Delete(background, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}) })
}

func (r *rig) attached(name, attacher string) {
	r.Helper()
	attachments := r.theirs.StorageV1().VolumeAttachments()
	check.Got(attachments.Create(r.Context(), &storage.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storage.VolumeAttachmentSpec{
		Attacher: attacher, NodeName: "none", Source: storage.VolumeAttachmentSource{PersistentVolumeName: &name},
	}}, metav1.CreateOptions{}))(r)
	r.Cleanup(func() { _ = attachments.Delete(background, name, metav1.DeleteOptions{}) })
}

func TestFencingPolicy_ControllerMayDeleteOnlyWhatFencingChooses(t *testing.T) {
	r := newRig(t).start()
	r.create("holdfast", nil)
	r.reconciled("holdfast")
	label := map[string]string{v1beta1.FencedLabel: "true"}
	r.lonely("fencing-labelled", true, label)
	r.lonely("fencing-claim", true, nil)
	r.lonely("fencing-false", true, map[string]string{v1beta1.FencedLabel: "false"})
	r.lonely("fencing-bare", false, label)
	r.attached("fencing-ours", v1beta1.DriverName)
	r.attached("fencing-theirs", "csi.example.com")
	config := r.account(v1beta1.ControllerName)
	pod := func(name string) realapi.Attempt {
		return realapi.Attempt{Verb: "delete", What: "v1/pods", In: metav1.NamespaceDefault, Name: "fencing-" + name}
	}
	attachment := func(name string) realapi.Attempt {
		return realapi.Attempt{Verb: "delete", What: "storage.k8s.io/v1/volumeattachments", Name: "fencing-" + name}
	}
	wait.Until(r, "the rule being held", func() bool { return realapi.RefusedBy("holdfast-fencing", pod("bare").Try(t.Context(), config)) })
	expect := func(pods string, may ...string) {
		t.Helper()
		for _, name := range []string{"labelled", "claim", "false", "bare"} {
			err := pod(name).Try(t.Context(), config)
			if allowed := strings.Contains(fmt.Sprint(may), name); allowed && err != nil || !allowed && !realapi.RefusedBy("holdfast-fencing", err) {
				t.Errorf("with spec.fencing.pods %q, the deletion of pod %s: %v", pods, name, err)
			}
		}
	}
	expect("", "labelled")
	if err := attachment("ours").Try(t.Context(), config); err != nil {
		t.Errorf("an attachment of Holdfast: %v", err)
	}
	if err := attachment("theirs").Try(t.Context(), config); !realapi.RefusedBy("holdfast-fencing", err) {
		t.Errorf("an attachment of another driver: %v", err)
	}
	if err := pod("bare").Try(t.Context(), r.config); err != nil {
		t.Errorf("an administrator: %v", err)
	}
	for _, pods := range []v1beta1.FencedPods{v1beta1.FenceWithCephVolumes, v1beta1.FenceNone} {
		r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Fencing.Pods = pods })
		may := map[v1beta1.FencedPods][]string{v1beta1.FenceWithCephVolumes: {"labelled", "claim", "false"}}[pods]
		wait.Until(r, "the rule for "+string(pods), func() bool {
			return (pod("claim").Try(t.Context(), config) == nil) == (len(may) > 0) && (pod("labelled").Try(t.Context(), config) == nil) == (len(may) > 0)
		})
		expect(string(pods), may...)
	}
}
