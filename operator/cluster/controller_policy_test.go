package cluster

import (
	"maps"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// shop is a Deployment and a StatefulSet of another owner. Their pods are never looked at.
func (r *rig) shop() {
	r.Helper()
	about := metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{"team": "shop"}}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "shop"}}
	template := core.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: selector.MatchLabels},
		Spec:       core.PodSpec{Containers: []core.Container{{Name: "app", Image: "busybox:1"}}},
	}
	deployments, sets := r.theirs.AppsV1().Deployments(metav1.NamespaceDefault), r.theirs.AppsV1().StatefulSets(metav1.NamespaceDefault)
	check.Got(deployments.Create(r.Context(), &apps.Deployment{
		ObjectMeta: about, Spec: apps.DeploymentSpec{Replicas: new(int32), Selector: selector, Template: template},
	}, metav1.CreateOptions{}))(r)
	r.Cleanup(func() { check.Report(r, deployments.Delete(background, "shop", metav1.DeleteOptions{})) })
	check.Got(sets.Create(r.Context(), &apps.StatefulSet{
		ObjectMeta: about, Spec: apps.StatefulSetSpec{Replicas: new(int32), Selector: selector, Template: template},
	}, metav1.CreateOptions{}))(r)
	r.Cleanup(func() { check.Report(r, sets.Delete(background, "shop", metav1.DeleteOptions{})) })
}

func TestApplicationsPolicy_ControllerMayChangeReplicasAlone(t *testing.T) {
	const policy, hostile = "holdfast-applications", `{"spec":{"template":{"spec":{"hostPID":true}}}}`
	r := running(t, nil)
	r.shop()
	controller := dynamic.NewForConfigOrDie(r.as(controllerUser))
	patch := func(as dynamic.Interface, resource, body string, dry ...string) error {
		kind := as.Resource(apps.SchemeGroupVersion.WithResource(resource)).Namespace(metav1.NamespaceDefault)
		_, err := kind.Patch(t.Context(), "shop", types.MergePatchType, []byte(body), metav1.PatchOptions{DryRun: dry})
		return err
	}
	wait.Until(r, "the rule being held", func() bool {
		return realapi.RefusedBy(policy, patch(controller, "deployments", hostile, metav1.DryRunAll))
	})
	for resource, changes := range map[string]map[string]string{
		"deployments": {
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
		},
		"statefulsets": {
			"claims that a stop deletes": `{"spec":{"replicas":0,"persistentVolumeClaimRetentionPolicy":{"whenScaled":"Delete"}}}`,
			"another strategy":           `{"spec":{"updateStrategy":{"type":"OnDelete","rollingUpdate":null}}}`,
			"other ordinals":             `{"spec":{"ordinals":{"start":3}}}`,
		},
	} {
		for what, change := range changes {
			if err := patch(controller, resource, change, metav1.DryRunAll); !realapi.RefusedBy(policy, err) {
				t.Errorf("%s of %s: %v", what, resource, err)
			}
		}
	}
	stopped := `{"metadata":{"annotations":{"` + v1beta1.ReplicasAnnotation + `":"3"}},"spec":{"replicas":0}}`
	if err := patch(controller, "deployments", stopped); err != nil {
		t.Errorf("it may not stop it: %v", err)
	}
	started := `{"metadata":{"annotations":{"` + v1beta1.ReplicasAnnotation + `":null}},"spec":{"replicas":1}}`
	if err := patch(controller, "deployments", started, metav1.DryRunAll); err != nil {
		t.Errorf("it may not start it: %v", err)
	}
	if err := patch(controller, "statefulsets", `{"spec":{"replicas":3}}`, metav1.DryRunAll); err != nil {
		t.Errorf("it may not start a StatefulSet: %v", err)
	}
	if err := patch(r.objects, "deployments", hostile, metav1.DryRunAll); err != nil {
		t.Errorf("another account: %v", err)
	}
}

const claimFinalizer = "kubernetes.io/pvc-protection"

// claimed makes a pending claim for which Kubernetes has requested a volume of a driver, if one is given.
func (r *rig) claimed(name, provisioner string, labels map[string]string) {
	r.Helper()
	c := &core.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{"example.com/any": "a"}, Finalizers: []string{claimFinalizer}},
		Spec: core.PersistentVolumeClaimSpec{
			AccessModes: []core.PersistentVolumeAccessMode{core.ReadWriteOnce}, StorageClassName: new("none"),
			Resources: core.VolumeResourceRequirements{Requests: core.ResourceList{core.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	if provisioner != "" {
		maps.Copy(c.Annotations, map[string]string{"volume.kubernetes.io/storage-provisioner": provisioner})
	}
	claims := r.theirs.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault)
	check.Got(claims.Create(r.Context(), c, metav1.CreateOptions{}))(r)
	r.Cleanup(func() { _ = claims.Delete(background, name, metav1.DeleteOptions{}) })
}

func onClaim(verb, name, body string) realapi.Attempt {
	return realapi.Attempt{Verb: verb, What: "v1/persistentvolumeclaims", In: metav1.NamespaceDefault, Name: name, Body: body}
}

func TestClaimsPolicy_ControllerMayWriteNoClaimsOfOtherDrivers(t *testing.T) {
	const policy = "holdfast-claims"
	r := running(t, nil)
	r.claimed("claims-theirs", "csi.example.com", nil)
	r.claimed("claims-ours", "csi.holdfast.dev", nil)
	r.claimed("claims-shared", "nfs.holdfast.dev", nil)
	r.claimed("claims-named", "", nil)
	r.claimed("claims-server", "csi.example.com", map[string]string{"app.kubernetes.io/managed-by": "holdfast-operator"})
	controller := r.as(controllerUser)
	writes := func(name string) []realapi.Attempt {
		return []realapi.Attempt{onClaim("patch", name, `{"metadata":{"annotations":{"a":"b"}}}`), onClaim("update", name, ""), onClaim("delete", name, "")}
	}
	r.refusedSoon(policy, controller, onClaim("delete", "claims-theirs", ""))
	r.refusedAlone(policy, controller, "of other drivers", writes("claims-theirs"))
	for _, name := range []string{"claims-ours", "claims-shared", "claims-named", "claims-server"} {
		r.takes("of Holdfast", controller, writes(name)...)
	}
}

func TestClaimsPolicy_ControllerOfSnapshotsMayChangeItsFinalizerAlone(t *testing.T) {
	const policy, kept = "holdfast-snapshot-controller", `"snapshot.storage.kubernetes.io/pvc-as-source-protection"`
	r := running(t, nil)
	r.claimed("claims-source", "csi.example.com", nil)
	patch := func(body string) realapi.Attempt { return onClaim("patch", "claims-source", body) }
	labelled := patch(`{"metadata":{"labels":{"a":"b"}}}`)
	r.refusedSoon(policy, r.as(snapshotUser), labelled)
	r.refusedAlone(policy, r.as(snapshotUser), "its own finalizer", []realapi.Attempt{
		labelled, patch(`{"metadata":{"annotations":{"example.com/any":null}}}`), patch(`{"metadata":{"finalizers":null}}`),
		patch(`{"metadata":{"finalizers":["` + claimFinalizer + `","example.com/any"]}}`), patch(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"a","uid":"u"}]}}`),
		patch(`{"spec":{"volumeName":"pv"}}`),
	})
	r.takes("its own finalizer", r.as(snapshotUser), patch(`{"metadata":{"finalizers":["`+claimFinalizer+`",`+kept+`]}}`))
}
