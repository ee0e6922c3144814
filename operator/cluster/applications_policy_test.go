package cluster

import (
	"context"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// deployment is an application of another owner. Its pods are never looked at.
func (r *rig) deployment(name string) {
	r.Helper()
	labels := map[string]string{"app": name}
	all := r.theirs.AppsV1().Deployments(metav1.NamespaceDefault)
	check.Got(all.Create(r.Context(), &apps.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"team": "shop"}},
		Spec: apps.DeploymentSpec{
			Replicas: new(int32), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: core.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: core.PodSpec{Containers: []core.Container{{Name: "app", Image: "busybox:1"}}}},
		},
	}, metav1.CreateOptions{}))(r)
	r.Cleanup(func() {
		check.Report(r, r.theirs.AppsV1().Deployments(metav1.NamespaceDefault).Delete(context.WithoutCancel(r.Context()), name, metav1.DeleteOptions{}))
	})
}

func TestApplicationsPolicy_ControllerMayChangeReplicasAlone(t *testing.T) {
	r := newRig(t).start()
	r.create("holdfast", nil)
	r.reconciled("holdfast")
	r.deployment("shop")
	controller := kubernetes.NewForConfigOrDie(r.account(v1beta1.ControllerName))
	try := func(client kubernetes.Interface, patch string) error {
		_, err := client.AppsV1().Deployments(metav1.NamespaceDefault).Patch(t.Context(), "shop", types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	const hostile = `{"spec":{"template":{"spec":{"hostPID":true}}}}`
	wait.Until(r, "the rule being held", func() bool { return realapi.RefusedBy("holdfast-applications", try(controller, hostile)) })
	for what, patch := range map[string]string{
		"another image":      `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"mallory:1"}]}}}}`,
		"another account":    `{"spec":{"template":{"spec":{"serviceAccountName":"admin"}}}}`,
		"pods with a mark":   `{"spec":{"template":{"metadata":{"annotations":{"a":"b"}}}}}`,
		"a label":            `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"holdfast-operator"}}}`,
		"an owner":           `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"a","uid":"1"}]}}`,
		"a finalizer":        `{"metadata":{"finalizers":["example.com/never"]}}`,
		"another annotation": `{"metadata":{"annotations":{"other":"x"}}}`,
		"one changed":        `{"metadata":{"annotations":{"team":"x"}}}`,
		"one taken":          `{"metadata":{"annotations":{"team":null}}}`,
		"a pause":            `{"spec":{"paused":true}}`,
		"another strategy":   `{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}`,
		"what else there is": `{"spec":{"minReadySeconds":7,"revisionHistoryLimit":0,"progressDeadlineSeconds":9}}`,
		"hidden in a stop":   `{"metadata":{"annotations":{"` + v1beta1.ReplicasAnnotation + `":"3"}},"spec":{"replicas":0,"template":{"spec":{"hostNetwork":true}}}}`,
	} {
		if err := try(controller, patch); !realapi.RefusedBy("holdfast-applications", err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	stopped := `{"metadata":{"annotations":{"` + v1beta1.ReplicasAnnotation + `":"3"}},"spec":{"replicas":0}}`
	if _, err := controller.AppsV1().Deployments(metav1.NamespaceDefault).Patch(t.Context(), "shop", types.MergePatchType, []byte(stopped), metav1.PatchOptions{}); err != nil {
		t.Errorf("it may not stop it: %v", err)
	}
	started := `{"metadata":{"annotations":{"` + v1beta1.ReplicasAnnotation + `":null}},"spec":{"replicas":1}}`
	if err := try(controller, started); err != nil {
		t.Errorf("it may not start it: %v", err)
	}
	if err := try(r.theirs, hostile); err != nil {
		t.Errorf("another account: %v", err)
	}
}

func TestApplicationsPolicy_AStopDeletesNoClaimsOfAStatefulSet(t *testing.T) {
	r := newRig(t).start()
	r.create("holdfast", nil)
	r.reconciled("holdfast")
	labels := map[string]string{"app": "db"}
	sets := r.theirs.AppsV1().StatefulSets(metav1.NamespaceDefault)
	check.Got(sets.Create(t.Context(), &apps.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: apps.StatefulSetSpec{
			Replicas: new(int32), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: core.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: core.PodSpec{Containers: []core.Container{{Name: "db", Image: "busybox:1"}}}},
		},
	}, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		check.Report(t, sets.Delete(context.Background(), "db", metav1.DeleteOptions{}))
	})
	controller := kubernetes.NewForConfigOrDie(r.account(v1beta1.ControllerName)).AppsV1().StatefulSets(metav1.NamespaceDefault)
	try := func(patch string) error {
		_, err := controller.Patch(t.Context(), "db", types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	const deletes = `{"spec":{"replicas":0,"persistentVolumeClaimRetentionPolicy":{"whenScaled":"Delete"}}}`
	wait.Until(r, "the rule being held", func() bool { return realapi.RefusedBy("holdfast-applications", try(deletes)) })
	for _, patch := range []string{`{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`, `{"spec":{"ordinals":{"start":3}}}`} {
		if err := try(patch); !realapi.RefusedBy("holdfast-applications", err) {
			t.Errorf("%s: %v", patch, err)
		}
	}
	if err := try(`{"spec":{"replicas":3}}`); err != nil {
		t.Errorf("it may not start it: %v", err)
	}
}
