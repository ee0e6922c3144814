package apply

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// Objects that Helm has installed keep Helm's value of ManagedByLabel: with another value, helm uninstall would not
// delete them and helm install would refuse them.
const (
	helmManager = "Helm"
	helmRelease = "meta.helm.sh/release-name" // annotation
)

// Release is the Helm release of an object that Helm has applied server-side. Helm's field manager owns all fields that
// the chart renders. If our manager owned such a field too, the next helm upgrade that changes it would fail with a
// conflict. So the fields of the chart are repaired under Helm's manager, and our manager owns only the others.
type Release struct {
	Manager             string
	labels, annotations map[string]string // those that Helm's manager owns
}

// ReleaseOf returns the release of an object. It is nil if there is none, or if Helm applies on the client side, where
// no conflicts occur.
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

// Rendered returns the part of a desired object that Helm's manager owns. A chart has no owner references.
func (r *Release) Rendered(desired *unstructured.Unstructured) *unstructured.Unstructured {
	o := desired.DeepCopy()
	o.SetOwnerReferences(nil)
	o.SetLabels(merged(r.labels, desired.GetLabels()))
	o.SetAnnotations(merged(r.annotations, desired.GetAnnotations()))
	setManagedByHelm(o)
	return o
}

func merged(a, b map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

func setManagedByHelm(o *unstructured.Unstructured) {
	labels := o.GetLabels()
	labels[ManagedByLabel] = helmManager
	o.SetLabels(labels)
}

// rest returns the metadata of a desired object without what Helm's manager owns.
func (r *Release) rest(desired *unstructured.Unstructured) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(desired.GroupVersionKind())
	o.SetNamespace(desired.GetNamespace())
	o.SetName(desired.GetName())
	o.SetUID(desired.GetUID())
	o.SetOwnerReferences(desired.GetOwnerReferences())
	labels := desired.GetLabels()
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

// keepHelmRelease keeps the labels of an object that Helm has installed. One that was deleted is recreated with them.
func (a *application) keepHelmRelease(live *unstructured.Unstructured) {
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
	if live.GetAnnotations()[helmRelease] != "" && a.desired.GetLabels()[ManagedByLabel] != "" {
		a.desired = a.desired.DeepCopy()
		setManagedByHelm(a.desired)
	}
}
