package apply

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// Objects that Helm has installed keep Helm's value of ManagedByLabel: helm uninstall leaves objects with another
// value, and helm install refuses them.
const (
	helmManager = "Helm"
	helmRelease = "meta.helm.sh/release-name" // an annotation
)

// Release is the Helm release of an object that Helm has applied server-side. Helm's field manager owns all that the chart
// renders. If another manager owned such a field as well, the next helm upgrade that changes it would be a conflict. So
// what the chart renders is repaired as Helm's manager, and only the rest belongs to another.
type Release struct {
	Manager             string
	labels, annotations map[string]string // of the object that are Helm's
}

// ReleaseOf returns the release of an object; nil if it has none, or if Helm merges its changes on the client's side, which
// knows no conflicts.
func ReleaseOf(o *unstructured.Unstructured) *Release {
	if o == nil || o.GetAnnotations()[helmRelease] == "" {
		return nil
	}
	for _, e := range o.GetManagedFields() {
		fields, err := fieldsOf(e)
		if err != nil || e.Operation != metav1.ManagedFieldsOperationApply || !ownsMetadata(fields, "annotations", helmRelease) {
			continue
		}
		r := &Release{Manager: e.Manager, labels: o.GetLabels(), annotations: o.GetAnnotations()}
		maps.DeleteFunc(r.labels, func(key, _ string) bool { return !ownsMetadata(fields, "labels", key) })
		maps.DeleteFunc(r.annotations, func(key, _ string) bool { return !ownsMetadata(fields, "annotations", key) })
		return r
	}
	return nil
}

func ownsMetadata(fields *fieldpath.Set, field, key string) bool {
	return fields.Has(fieldpath.MakePathOrDie("metadata", field, key))
}

// Rendered is what Helm's manager owns of a desired object. Owners are not in a chart.
func (r *Release) Rendered(wanted *unstructured.Unstructured) *unstructured.Unstructured {
	o := wanted.DeepCopy()
	o.SetOwnerReferences(nil)
	o.SetLabels(merged(r.labels, wanted.GetLabels()))
	o.SetAnnotations(merged(r.annotations, wanted.GetAnnotations()))
	asHelms(o)
	return o
}

func merged(a, b map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

func asHelms(o *unstructured.Unstructured) {
	labels := o.GetLabels()
	labels[ManagedByLabel] = helmManager
	o.SetLabels(labels)
}

// rest is what is left of the metadata of a desired object without what Helm's manager owns.
func (r *Release) rest(wanted *unstructured.Unstructured) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(wanted.GroupVersionKind())
	o.SetNamespace(wanted.GetNamespace())
	o.SetName(wanted.GetName())
	o.SetUID(wanted.GetUID())
	o.SetOwnerReferences(wanted.GetOwnerReferences())
	labels := wanted.GetLabels()
	maps.DeleteFunc(labels, func(key, _ string) bool { return r.labels[key] != "" || key == ManagedByLabel })
	o.SetLabels(labels)
	return o
}

// selector selects the watched objects: those applied here, and those of Holdfast that Helm has installed.
func (c *Config) selector() string {
	if c.Everywhere { // Helm installs nothing there
		return ManagedByLabel + "=" + FieldManager
	}
	return ManagedByLabel + " in (" + FieldManager + "," + helmManager + ")," + v1beta1.PartOfLabel + "=" + v1beta1.AppName
}

// leaveToHelm keeps an object that Helm has installed Helm's. One that was deleted is recreated as one of its release.
func (a *application) leaveToHelm(live *unstructured.Unstructured) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if live == nil {
		a.release = a.releases[a.ref]
		return
	}
	if a.release = ReleaseOf(live); a.release == nil {
		delete(a.releases, a.ref)
	} else {
		a.releases[a.ref] = a.release
	}
	if live.GetAnnotations()[helmRelease] != "" && a.wanted.GetLabels()[ManagedByLabel] != "" {
		a.wanted = a.wanted.DeepCopy()
		asHelms(a.wanted)
	}
}
