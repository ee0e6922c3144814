package apply

import (
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// restartAnnotation, on the template of pods, is written by kubectl rollout restart. It does not count as drift.
const restartAnnotation = "kubectl.kubernetes.io/restartedAt"

var restartedAt = []string{"spec", "template", "metadata", "annotations", restartAnnotation}

// significant are annotations that change what Kubernetes does; other clients must not add them.
var significant = []string{
	"storageclass.kubernetes.io/is-default-class", "snapshot.storage.kubernetes.io/is-default-class", "groupsnapshot.storage.kubernetes.io/is-default-class",
}

// upToDate returns whether an object is as desired and unchanged since it was applied.
func (r *record) upToDate(live, desired *unstructured.Unstructured, mark bool) bool {
	if r.marked != mark || live.GetUID() != r.result.GetUID() || !equalContent(r.desired, desired) || !sameMetadata(live, r.result, desired) {
		return false
	}
	return mark || reflect.DeepEqual(content(live), content(r.result))
}

func equalContent(a, b *unstructured.Unstructured) bool { return reflect.DeepEqual(a.Object, b.Object) }

// content returns an object without metadata, status and fields that other clients may write.
func content(o *unstructured.Unstructured) map[string]any {
	kept := map[string]any{}
	for field, value := range o.Object {
		if field != "metadata" && field != "status" && !isTolerated(o.GetKind(), field) {
			kept[field] = value
		}
	}
	if _, found, _ := unstructured.NestedFieldNoCopy(kept, restartedAt...); found {
		kept = (&unstructured.Unstructured{Object: kept}).DeepCopy().Object
		unstructured.RemoveNestedField(kept, restartedAt...)
	}
	return kept
}

// isTolerated returns whether the distribution may write a field of a kind: OpenShift adds pull secrets.
func isTolerated(kind, field string) bool {
	return kind == "ServiceAccount" && (field == "secrets" || field == "imagePullSecrets")
}

// sameMetadata compares desired labels, annotations and owners. Other clients may add theirs.
func sameMetadata(live, was, desired *unstructured.Unstructured) bool {
	if (live.GetDeletionTimestamp() == nil) != (was.GetDeletionTimestamp() == nil) {
		return false
	}
	for key := range desired.GetLabels() {
		if live.GetLabels()[key] != was.GetLabels()[key] {
			return false
		}
	}
	for _, key := range slices.AppendSeq(slices.Clone(significant), maps.Keys(desired.GetAnnotations())) {
		if live.GetAnnotations()[key] != was.GetAnnotations()[key] {
			return false
		}
	}
	for _, owner := range desired.GetOwnerReferences() {
		if !slices.ContainsFunc(live.GetOwnerReferences(), func(has metav1.OwnerReference) bool { return reflect.DeepEqual(has, owner) }) {
			return false
		}
	}
	return true
}
