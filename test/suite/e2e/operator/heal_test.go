package operator

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

type fields = map[string]any

// edits are the edits by hand of an object of each kind: fields that are rendered, and that can be changed.
var edits = map[string]fields{
	"ClusterRole":                      {"rules": []any{}},
	"ClusterRoleBinding":               {"subjects": []any{}},
	"ConfigMap":                        {"data": fields{"node.json": "{}", "more": "x"}},
	"CSIDriver":                        {"spec": fields{"storageCapacity": false}},
	"DaemonSet":                        {"spec": fields{"updateStrategy": fields{"type": "RollingUpdate"}}},
	"Deployment":                       {"spec": fields{"strategy": fields{"rollingUpdate": fields{"maxSurge": 2}}}},
	"Ingress":                          {"spec": fields{"rules": []any{fields{"host": "other.example"}}}},
	"PodMonitor":                       {"spec": fields{"podMetricsEndpoints": []any{}}},
	"Role":                             {"rules": []any{}},
	"RoleBinding":                      {"subjects": []any{}},
	"Secret":                           {"data": fields{"username": "eA==", "more": "eA=="}},
	"Service":                          {"spec": fields{"selector": fields{"app.kubernetes.io/component": "node"}}},
	"ServiceAccount":                   {"automountServiceAccountToken": false},
	"StorageClass":                     {"allowVolumeExpansion": false},
	"ValidatingAdmissionPolicy":        {"spec": fields{"validations": []any{fields{"expression": "true"}}}},
	"ValidatingAdmissionPolicyBinding": {"spec": fields{"validationActions": []any{"Audit"}}},
	"VolumeGroupSnapshotClass":         {"metadata": fields{"annotations": fields{"groupsnapshot.storage.kubernetes.io/is-default-class": "true"}}},
	"VolumeSnapshotClass":              {"deletionPolicy": "Retain"},
}

// disown takes an object away from the StorageCluster; relabel does so with what was made for it, and not before it.
var (
	disown  = fields{"metadata": fields{"ownerReferences": nil}}
	relabel = fields{"metadata": fields{"ownerReferences": nil, "labels": fields{"app.kubernetes.io/part-of": "stranger", "app.kubernetes.io/instance": "other"}}}
)

// unlabel takes an object out of what the operator watches.
var unlabel = fields{"metadata": fields{"labels": fields{"app.kubernetes.io/managed-by": nil}}}

func TestHeal_EditedOrDeletedObjectsAreRepaired(t *testing.T) {
	a := administer(t)
	if hostfs.All() {
		a.askForAllKinds()
	}
	all := a.owned()
	h := &healing{admin: a, took: map[string][]time.Duration{}}
	for _, o := range all {
		edit, known := edits[o.GetKind()]
		switch {
		case !isMade(o):
		case known:
			h.heal("edited", o, edit)
			h.heal("relabelled", o, relabel)
		default:
			t.Errorf("%s: there is no edit of a %s", o, o.GetKind())
		}
		h.heal("disowned", o, disown)
		h.heal("unlabelled", o, unlabel)
	}
	a.awaitReconciled()
	for _, o := range all {
		if isMade(o) && o.GetKind() != "DaemonSet" && o.GetKind() != "Deployment" {
			h.heal("deleted", o, nil)
		}
	}
	h.report(len(all))
	a.awaitReconciled()
	s := begin(t)
	for _, node := range cluster.Nodes(t) { // it is not only there, it works
		s.Claim(node, "16Mi")
		s.Run(node, kube.Mount(node, "/data"), kube.OnNode(node), kube.Script("touch /data/file"))
	}
}

func TestHeal_DeletedWorkloadsReturnAndNoVolumeIsAffected(t *testing.T) {
	hostfs.Long(t)
	a := administer(t)
	s := begin(t)
	s.Claim("data", "64Mi")
	s.Pod("user", kube.Mount("data", "/data"), kube.Script("while true; do date >>/data/now; sync /data/now; sleep 0.2; done"))
	before := s.Ready("user")
	h := &healing{admin: a, took: map[string][]time.Duration{}}
	healed := 0
	for _, o := range a.owned() {
		if o.GetKind() == "DaemonSet" || o.GetKind() == "Deployment" {
			h.heal("deleted", o, nil)
			a.awaitReconciled()
			healed++
		}
	}
	if healed != 3 { // of the nodes, the controller and the snapshots
		t.Errorf("%d workloads were deleted, want 3", healed)
	}
	if now := s.Ready("user"); now.UID != before.UID || now.Status.ContainerStatuses[0].RestartCount > 0 {
		t.Errorf("the pod with the volume was restarted: %+v", now.Status.ContainerStatuses)
	}
	s.Claim("next", "64Mi")
	s.Run("next", kube.Mount("next", "/data"), kube.Script("touch /data/file"))
}

// isMade says whether the operator makes an object; others it finds and only makes its own.
func isMade(o kube.Listed) bool { return o.GetLabels()["app.kubernetes.io/instance"] != "" }

// askForAllKinds makes the StorageCluster consist of all kinds of objects that it can in this cluster.
func (a *admin) askForAllKinds() {
	a.t.Helper()
	a.secret("heal-source", credentials())
	a.change(func(spec *v1beta1.StorageClusterSpec) {
		spec.SecretRef = &v1beta1.SecretReference{Name: "heal-source"}
		spec.CSI.Credentials.Provision, spec.CSI.Credentials.NodePublish = true, true
		spec.Ingress = v1beta1.IngressSpec{Enabled: true, Host: "storage.example"}
		spec.Distribution = "openshift"
	})
	kinds := map[string]bool{}
	for _, o := range a.owned() {
		kinds[o.GetKind()] = true
	}
	for kind := range edits {
		if !kinds[kind] && kind != "PodMonitor" {
			a.t.Errorf("there is no %s among %v", kind, slices.Sorted(maps.Keys(kinds)))
		}
	}
}

// healing counts what was put right, and how long it took.
type healing struct {
	*admin
	took map[string][]time.Duration
}

// heal edits an object, or deletes it without an edit, and waits until it is as it was.
func (h *healing) heal(how string, o kube.Listed, edit fields) {
	h.t.Helper()
	source := o.Source(h.Dynamic)
	was, err := source.Get(h.t.Context(), o.GetName(), metav1.GetOptions{})
	if err != nil {
		h.t.Fatalf("%s: %v", o, err)
	}
	damaged := ""
	began := time.Now()
	if edit == nil {
		damaged, err = "", source.Delete(h.t.Context(), o.GetName(), metav1.DeleteOptions{})
	} else {
		var patch []byte
		if patch, err = json.Marshal(edit); err != nil {
			h.t.Fatal(err)
		}
		var now *unstructured.Unstructured
		if now, err = source.Patch(h.t.Context(), o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "stranger"}); err == nil {
			damaged = now.GetResourceVersion()
			if reflect.DeepEqual(essence(was), essence(now)) {
				h.t.Errorf("%s: being %s changes nothing: %v", o, how, edit)
			}
		}
	}
	if err != nil {
		h.t.Errorf("%s cannot be %s: %v", o, how, err)
		return
	}
	kube.Await(h.Space, source, kube.Named(o.GetName()), fmt.Sprintf("%s to be as it was before it was %s", o, how), func(found []*unstructured.Unstructured) (bool, error) {
		if len(found) == 0 || found[0].GetResourceVersion() == damaged || edit == nil && found[0].GetUID() == was.GetUID() {
			return false, nil
		}
		return reflect.DeepEqual(essence(was), essence(found[0])), nil
	})
	h.took[how] = append(h.took[how], time.Since(began))
}

// essence is an object without what the API server and Kubernetes write into it.
func essence(o *unstructured.Unstructured) fields {
	kept := fields{"labels": o.GetLabels(), "owners": o.GetOwnerReferences()}
	annotations := maps.Clone(o.GetAnnotations())
	delete(annotations, "deployment.kubernetes.io/revision")
	delete(annotations, "deprecated.daemonset.template.generation")
	kept["annotations"] = fmt.Sprint(annotations)
	content := o.DeepCopy().Object
	for _, given := range []string{"clusterIP", "clusterIPs"} {
		unstructured.RemoveNestedField(content, "spec", given)
	}
	for field, value := range content {
		if field != "metadata" && field != "status" {
			kept[field] = value
		}
	}
	return kept
}

func (h *healing) report(objects int) {
	h.t.Helper()
	for how, took := range h.took {
		slices.Sort(took)
		median := took[len(took)/2]
		h.t.Logf("%d of %d objects %s: put right after %v in the median, %v at most", len(took), objects, how, median, took[len(took)-1])
		if hostfs.Figures() && median > time.Second {
			h.t.Errorf("objects that were %s are put right after %v in the median; a second is promised", how, median)
		}
	}
	if objects < 15 || len(h.took["unlabelled"]) != objects {
		h.t.Errorf("%d objects were put right, of %d", len(h.took["unlabelled"]), objects)
	}
}
