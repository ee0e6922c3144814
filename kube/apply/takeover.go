package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

var restartPath = fieldpath.MakePathOrDie("spec", "template", "metadata", "annotations", restartAnnotation)

// takeOverTries limits the retries after conflicts, such as with a controller that writes the status.
const takeOverTries = 5

// takeOver removes fields that other clients added to an object that was just applied. An apply leaves such fields
// alone, so takeOver makes them fields of our manager: the next apply, which does not have them, removes them.
func (a *application) takeOver(ctx context.Context, applied *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	for range takeOverTries {
		fields, err := withoutAdditions(applied, a.manager())
		if err != nil {
			return nil, fmt.Errorf("its managed fields: %w", err)
		}
		if fields == nil {
			return applied, nil
		}
		patch, err := json.Marshal([]map[string]any{
			{"op": "replace", "path": "/metadata/resourceVersion", "value": applied.GetResourceVersion()},
			{"op": "replace", "path": "/metadata/managedFields", "value": fields},
		})
		if err != nil {
			return nil, err
		}
		_, err = a.client(a.Client, a.ref.Namespace).Patch(ctx, a.ref.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
		if err != nil && !apierrors.IsConflict(err) {
			return nil, err
		}
		if applied, err = a.apply(ctx, a.desired); err != nil {
			return nil, err
		}
	}
	return applied, nil
}

// withoutAdditions returns managed fields in which the manager owns all additions of other clients; nil if there are
// none.
func withoutAdditions(o *unstructured.Unstructured, manager string) ([]metav1.ManagedFieldsEntry, error) {
	mine, added := fieldpath.NewSet(), fieldpath.NewSet()
	own := -1
	var kept []metav1.ManagedFieldsEntry
	for _, e := range o.GetManagedFields() {
		fields, err := fieldsOf(e)
		if err != nil {
			return nil, err
		}
		switch {
		case isOf(e, manager):
			mine, own = fields, len(kept)
		case e.Subresource == "":
			theirs := allowed(o.GetKind(), fields)
			added = added.Union(fields.Difference(theirs))
			if theirs.Empty() {
				continue
			}
			if e.FieldsV1, err = encoded(theirs); err != nil {
				return nil, err
			}
		}
		kept = append(kept, e)
	}
	if own < 0 || added.Difference(mine).Empty() {
		return nil, nil
	}
	var err error
	kept[own].FieldsV1, err = encoded(mine.Union(added))
	kept[own].Time = &metav1.Time{Time: time.Now()}
	return kept, err
}

// allowed returns the fields that other clients may own: metadata, status, and tolerated fields.
func allowed(kind string, fields *fieldpath.Set) *fieldpath.Set {
	kept := fieldpath.NewSet()
	for path := range fields.All() {
		first := path[0].FieldName
		if first == nil || *first == "metadata" && !isSignificant(path) || *first == "status" || isTolerated(kind, *first) || path.Equals(restartPath) {
			kept.Insert(path.Copy())
		}
	}
	return kept
}

func isSignificant(path fieldpath.Path) bool {
	last := path[len(path)-1].FieldName
	return last != nil && slices.Contains(significant, *last)
}

// IsOwnedByOther says whether another manager owns a field of an object, or whether that is not known. Of an object that was
// made without fields, the API server records none before the first apply.
func IsOwnedByOther(o metav1.Object, manager string, path ...any) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		fields, err := fieldsOf(e)
		return err != nil || e.Manager != manager && fields.Has(fieldpath.MakePathOrDie(path...))
	})
}

func fieldsOf(e metav1.ManagedFieldsEntry) (*fieldpath.Set, error) {
	set := fieldpath.NewSet()
	if e.FieldsV1 == nil {
		return set, nil
	}
	return set, set.FromJSON(e.FieldsV1.GetRawReader())
}

func encoded(set *fieldpath.Set) (*metav1.FieldsV1, error) {
	raw, err := set.ToJSON()
	fields := &metav1.FieldsV1{}
	fields.SetRawBytes(raw)
	return fields, err
}
