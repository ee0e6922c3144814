package cluster

import (
	"maps"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

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

// account is an administrator under the name of an account of Holdfast, so that policies alone limit it.
func (r *rig) account(name string) *rest.Config {
	config := rest.CopyConfig(r.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":" + name, Groups: []string{"system:masters"}}
	return config
}

func onClaim(verb, name, body string) realapi.Attempt {
	return realapi.Attempt{Verb: verb, What: "v1/persistentvolumeclaims", In: metav1.NamespaceDefault, Name: name, Body: body}
}

func TestClaimsPolicy_ControllerMayWriteNoClaimsOfOtherDrivers(t *testing.T) {
	const policy = "holdfast-claims"
	r := newRig(t).start()
	r.create("holdfast", nil)
	r.reconciled("holdfast")
	r.claimed("claims-theirs", "csi.example.com", nil)
	r.claimed("claims-ours", "csi.holdfast.dev", nil)
	r.claimed("claims-shared", "nfs.holdfast.dev", nil)
	r.claimed("claims-named", "", nil)
	r.claimed("claims-server", "csi.example.com", map[string]string{"app.kubernetes.io/managed-by": "holdfast-operator"})
	controller := r.account("holdfast-controller")
	writes := func(name string) []realapi.Attempt {
		return []realapi.Attempt{onClaim("patch", name, `{"metadata":{"annotations":{"a":"b"}}}`), onClaim("update", name, ""), onClaim("delete", name, "")}
	}
	r.refusedSoon(policy, controller, onClaim("delete", "claims-theirs", ""))
	r.refusedAlone(policy, controller, "of other drivers", writes("claims-theirs"))
	for _, name := range []string{"claims-ours", "claims-shared", "claims-named", "claims-server"} {
		for _, a := range writes(name) {
			if err := a.Try(t.Context(), controller); err != nil {
				t.Errorf("%s: %v", a, err)
			}
		}
	}
}

func TestClaimsPolicy_ControllerOfSnapshotsMayChangeItsFinalizerAlone(t *testing.T) {
	const policy, kept = "holdfast-snapshot-controller", `"snapshot.storage.kubernetes.io/pvc-as-source-protection"`
	r := newRig(t).start()
	r.create("holdfast", nil)
	r.reconciled("holdfast")
	r.claimed("claims-source", "csi.example.com", nil)
	as := r.account("holdfast-snapshot-controller")
	patch := func(body string) realapi.Attempt { return onClaim("patch", "claims-source", body) }
	wait.Until(r, "the rule being held", func() bool {
		return realapi.RefusedBy(policy, patch(`{"metadata":{"labels":{"a":"b"}}}`).Try(t.Context(), as))
	})
	r.refusedAlone(policy, as, "its own finalizer", []realapi.Attempt{
		patch(`{"metadata":{"labels":{"a":"b"}}}`), patch(`{"metadata":{"annotations":{"example.com/any":null}}}`), patch(`{"metadata":{"finalizers":null}}`),
		patch(`{"metadata":{"finalizers":["` + claimFinalizer + `","example.com/any"]}}`), patch(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"a","uid":"u"}]}}`),
		patch(`{"spec":{"volumeName":"pv"}}`),
	})
	if err := patch(`{"metadata":{"finalizers":["`+claimFinalizer+`",`+kept+`]}}`).Try(t.Context(), as); err != nil {
		t.Errorf("its own finalizer: %v", err)
	}
}
