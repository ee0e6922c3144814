package cluster

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/operator/rollout"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// wanted renders what the controller has to make.
func (r *rig) wanted(name string, secret map[string][]byte) []*unstructured.Unstructured {
	r.Helper()
	objects := check.Got(render.Objects(render.Input{Cluster: r.cluster(name), Namespace: namespace, Has: r.set.Has, Secret: secret}))(r)
	check.OK(r, rollout.StampAll(objects))
	return objects
}

func (r *rig) get(o *unstructured.Unstructured) *unstructured.Unstructured {
	r.Helper()
	live, err := r.of(o).Get(context.Background(), o.GetName(), metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return live
}

func TestInstall_OneStorageClusterCreatesAllObjects(t *testing.T) {
	r := newRig(t).start()
	c := r.create("holdfast", nil)
	r.reconciled("holdfast")
	if now := r.cluster("holdfast"); now.Generation != c.Generation || !equality.Semantic.DeepEqual(now.Spec, c.Spec) {
		t.Errorf("defaults were written into the spec: it is %+v, of generation %d", now.Spec, now.Generation)
	}
	for _, o := range r.wanted("holdfast", nil) {
		live := r.get(o)
		if live == nil {
			t.Errorf("%s %s was not made", o.GetKind(), o.GetName())
			continue
		}
		owners := live.GetOwnerReferences()
		if len(owners) != 1 || owners[0].UID != c.UID || owners[0].Kind != "StorageCluster" {
			t.Errorf("%s %s belongs to %v", o.GetKind(), o.GetName(), owners)
		}
		for key, value := range render.Labels(c) {
			if live.GetLabels()[key] != value {
				t.Errorf("%s %s: label %s is %q", o.GetKind(), o.GetName(), key, live.GetLabels()[key])
			}
		}
	}
}

// everything asks for all that can be made in a cluster without further kinds.
func everything(s *v1beta1.StorageClusterSpec) {
	s.CSI.Credentials.Provision, s.CSI.Credentials.ControllerPublish, s.CSI.Credentials.NodePublish, s.CSI.Credentials.ControllerExpand = true, true, true, true
	s.SecretRef = &v1beta1.SecretReference{Name: "credentials"}
	s.Ingress = v1beta1.IngressSpec{Enabled: true, TLS: true, Host: "storage.example"}
	s.Distribution = "openshift-4.20"
	s.StorageClasses = []v1beta1.StorageClassSpec{{Name: "hb-one", Default: true}, {Name: "hb-two", ReclaimPolicy: "Retain"}}
}

func TestHeal_EveryEditedOrDeletedObjectIsRepaired(t *testing.T) {
	r := newRig(t)
	secret := r.secret("credentials")
	r.start()
	r.create("holdfast", everything)
	r.reconciled("holdfast")
	for _, o := range r.wanted("holdfast", secret) {
		t.Run(o.GetKind()+"/"+o.GetName(), func(t *testing.T) {
			r := r.within(t)
			was := r.get(o)
			if was == nil {
				t.Fatal("it was not made")
			}
			t.Log("a label of ours is removed")
			r.patch(o, `{"metadata":{"labels":{"app.kubernetes.io/managed-by":null,"app.kubernetes.io/part-of":"another"}}}`)
			r.healed(o, was)
			t.Log("the owner is removed")
			r.patch(o, `{"metadata":{"ownerReferences":[]}}`)
			r.healed(o, was)
			for _, edit := range edits(o) {
				t.Log("edited:", edit)
				r.patch(o, edit)
				r.healed(o, was)
			}
			t.Log("it is deleted")
			propagation := metav1.DeletePropagationBackground
			check.OK(t, r.of(o).Delete(t.Context(), o.GetName(), metav1.DeleteOptions{PropagationPolicy: &propagation}))
			wait.Until(r, "another object of its name", func() bool { live := r.get(o); return live != nil && live.GetUID() != was.GetUID() })
			r.healed(o, was)
		})
	}
}

// As a user copies a class: kubectl get -o yaml, another name, kubectl create.
func TestCopies_OfAllOwnedObjectsStayAndAreReported(t *testing.T) {
	r := running(t, func(s *v1beta1.StorageClusterSpec) {
		s.StorageClasses = []v1beta1.StorageClassSpec{{Name: "first"}, {Name: "second"}}
	})
	kinds := map[string]*unstructured.Unstructured{}
	for _, o := range r.set.List() {
		if kinds[o.GetKind()] == nil {
			kinds[o.GetKind()] = r.copyOf(o)
		}
	}
	for _, kind := range []string{"ClusterRole", "ConfigMap", "DaemonSet", "Deployment", "ServiceAccount", "StorageClass", "ValidatingAdmissionPolicy"} {
		if kinds[kind] == nil {
			t.Errorf("there is no %s to be copied", kind)
		}
	}
	reported := map[string]bool{}
	wait.Until(r, "the events", func() bool {
		for _, made := range kinds {
			all := check.Got(r.theirs.CoreV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(made.GetUID())}))(t)
			for _, e := range all.Items {
				reported[made.GetKind()] = reported[made.GetKind()] || e.Reason == apply.ReasonStranger
			}
		}
		return len(reported) == len(kinds)
	})
	// Owned objects that are no longer desired are pruned beside them.
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.StorageClasses = s.StorageClasses[:1] })
	wait.Until(r, "the end of the class", func() bool { return r.class("second") == nil })
	for kind, made := range kinds {
		if live := r.get(made); live == nil || live.GetUID() != made.GetUID() || live.GetDeletionTimestamp() != nil {
			t.Errorf("the copy of a %s is gone", kind)
		}
	}
}

// copyOf makes a copy of an object with all its metadata, but for what must be another.
func (r *rig) copyOf(o *unstructured.Unstructured) *unstructured.Unstructured {
	r.Helper()
	made := r.get(o)
	if made == nil {
		r.Fatalf("%s %s is gone", o.GetKind(), o.GetName())
	}
	made.SetName(o.GetName() + "-copy")
	made.SetUID("")
	made.SetResourceVersion("")
	unstructured.RemoveNestedField(made.Object, "spec", "clusterIP")
	unstructured.RemoveNestedField(made.Object, "spec", "clusterIPs")
	made, err := r.of(o).Create(r.Context(), made, metav1.CreateOptions{})
	if err != nil {
		r.Fatalf("a copy of %s %s: %v", o.GetKind(), o.GetName(), err)
	}
	return made
}

func TestCopies_ForeignObjectsUnderOurNamesStayUnchanged(t *testing.T) {
	for where, begin := range map[string]func(*testing.T) *rig{
		"an API server": newRig,
		// Bindings are not even tried while a policy is foreign.
		"an API without policies": func(t *testing.T) *rig { r, _ := inMemory(t); return r },
	} {
		t.Run(where, func(t *testing.T) {
			r := begin(t)
			theirs := r.strangers()
			if r.stop == nil {
				r.start()
			}
			r.create("holdfast", nil)
			r.condition("holdfast", v1beta1.ProgressingCondition, reasonForeign, "not created by Holdfast")
			r.change("holdfast", classes("mine"))
			wait.Until(r, "a class of another name", func() bool { return r.class("mine") != nil })
			r.condition("holdfast", v1beta1.ProgressingCondition, reasonForeign)
			for _, o := range theirs {
				live := r.get(o)
				if live == nil || live.GetUID() != o.GetUID() || len(live.GetOwnerReferences()) > 0 || live.GetLabels()["whose"] != "theirs" || live.GetLabels()[apply.ManagedByLabel] != "" {
					t.Errorf("%s %s was changed or deleted: %v", o.GetKind(), o.GetName(), live)
				}
			}
		})
	}
}

// strangers makes what another client has under the name of each object.
func (r *rig) strangers() (theirs []*unstructured.Unstructured) {
	r.Helper()
	c := &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "holdfast"}}
	c.Spec.Images.Holdfast = "holdfast.test/pause:1"
	objects := check.Got(render.Objects(render.Input{Cluster: c, Namespace: namespace, Has: func(kind schema.GroupKind) bool {
		_, err := r.mapper.RESTMapping(kind)
		return err == nil
	}}))(r)
	kinds := map[string]bool{}
	for _, o := range objects {
		o.SetLabels(map[string]string{"whose": "theirs"})
		o.SetOwnerReferences(nil)
		made, err := r.of(o).Create(r.Context(), o, metav1.CreateOptions{FieldManager: "kubectl-create"})
		if err != nil {
			r.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
		r.Cleanup(func() { _ = r.of(made).Delete(background, made.GetName(), metav1.DeleteOptions{}) })
		theirs = append(theirs, made)
		kinds[o.GetKind()] = true
	}
	for _, kind := range []string{"ClusterRole", "ClusterRoleBinding", "ConfigMap", "CSIDriver", "DaemonSet", "Deployment", "ServiceAccount", "StorageClass"} {
		if !kinds[kind] {
			r.Errorf("there is no %s of another client", kind)
		}
	}
	return theirs
}

func (r *rig) patch(o *unstructured.Unstructured, patch string) {
	r.Helper()
	if _, err := r.of(o).Patch(r.Context(), o.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubectl-edit"}); err != nil {
		r.Fatalf("%s: %v", patch, err)
	}
}

// healed waits until an object is as it was, but for what the API server counts.
func (r *rig) healed(o, was *unstructured.Unstructured) {
	r.Helper()
	want := essence(was)
	begun := time.Now()
	wait.Until(r, "the repair of "+o.GetKind()+" "+o.GetName(), func() bool {
		live := r.get(o)
		return live != nil && essence(live) == want
	})
	r.Logf("put right in %s", time.Since(begun).Round(time.Millisecond))
}

func essence(o *unstructured.Unstructured) string {
	c := o.DeepCopy()
	delete(c.Object, "status")
	for _, field := range []string{"resourceVersion", "uid", "generation", "creationTimestamp", "managedFields", "selfLink"} {
		unstructured.RemoveNestedField(c.Object, "metadata", field)
	}
	annotations := c.GetAnnotations()
	delete(annotations, "deployment.kubernetes.io/revision")
	delete(annotations, "deprecated.daemonset.template.generation")
	c.SetAnnotations(annotations)
	if c.GetKind() == "Service" {
		for _, allocated := range []string{"clusterIP", "clusterIPs"} {
			unstructured.RemoveNestedField(c.Object, "spec", allocated)
		}
	}
	text, _ := json.Marshal(c.Object)
	return string(text)
}

// edits are the edits by hand of an object of a kind: change a desired field, remove it, add to it.
func edits(o *unstructured.Unstructured) []string {
	switch o.GetKind() {
	case "Secret":
		return []string{`{"data":{"username":"aGFja2Vk","tls.crt":"aGFja2Vk"}}`, `{"data":{"more":"aGFja2Vk"}}`}
	case "ConfigMap":
		return []string{`{"data":{"node.json":"{}"}}`, `{"data":{"node.json":null}}`, `{"data":{"more":"x"}}`}
	case "Service":
		return []string{`{"spec":{"ports":[{"name":"other","port":1}]}}`, `{"spec":{"selector":{"a":"b"}}}`, `{"spec":{"sessionAffinity":"ClientIP"}}`}
	case "ClusterRole", "Role":
		return []string{`{"rules":[]}`, `{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`}
	case "ClusterRoleBinding", "RoleBinding":
		return []string{`{"subjects":[]}`, `{"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"mallory"}]}`}
	case "ServiceAccount":
		return []string{`{"automountServiceAccountToken":false}`}
	case "CSIDriver":
		return []string{`{"spec":{"requiresRepublish":true}}`}
	case "StorageClass":
		return []string{`{"allowVolumeExpansion":false}`, `{"mountOptions":["noatime"]}`, `{"metadata":{"annotations":{"storageclass.kubernetes.io/is-default-class":"maybe"}}}`}
	case "Ingress":
		return []string{`{"spec":{"rules":[{"host":"other.example"}]}}`, `{"spec":{"ingressClassName":"other"}}`}
	case "ValidatingAdmissionPolicy":
		return []string{`{"spec":{"failurePolicy":"Fail"}}`, `{"spec":{"validations":[{"expression":"true"}]}}`}
	case "ValidatingAdmissionPolicyBinding":
		return []string{`{"spec":{"validationActions":["Audit"]}}`, `{"spec":{"matchResources":{"objectSelector":{"matchLabels":{"no":"thing"}}}}}`}
	case "DaemonSet", "Deployment", "StatefulSet":
		return []string{
			`{"spec":{"template":{"spec":{"nodeSelector":{"no":"where"}}}}}`,
			`{"spec":{"template":{"spec":{"hostIPC":true}}}}`,
			`{"spec":{"template":{"spec":{"containers":[{"name":"other","image":"busybox:1"}]}}}}`,
			`{"spec":{"template":{"metadata":{"annotations":{"mine":"yes"}}}}}`,
			`{"spec":{"minReadySeconds":7}}`,
		}
	}
	return nil
}

func (r *rig) putSecret(name string, data map[string][]byte) {
	r.Helper()
	secrets := r.theirs.CoreV1().Secrets(namespace)
	_ = secrets.Delete(r.Context(), name, metav1.DeleteOptions{})
	s := &core.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
	check.Got(secrets.Create(r.Context(), s, metav1.CreateOptions{}))(r)
}

// secretData has all keys that a secret may have. None of its passwords may be reported anywhere.
func secretData() map[string][]byte {
	data := map[string][]byte{"username": []byte("storage"), "password": []byte("top-secret-api"), "tls.crt": []byte("top-secret-crt"), "tls.key": []byte("top-secret-key")}
	for _, pair := range []string{"csiProvision", "csiControllerPublish", "csiNodePublish", "csiControllerExpand"} {
		data[pair+"Username"], data[pair+"Password"] = []byte(pair), []byte("top-secret-"+pair)
	}
	return data
}

func (r *rig) secret(name string) map[string][]byte {
	r.Helper()
	data := secretData()
	r.putSecret(name, data)
	r.Cleanup(func() {
		_ = r.theirs.CoreV1().Secrets(namespace).Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	return data
}
