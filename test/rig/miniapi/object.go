package miniapi

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// object is a JSON document.
type object map[string]any

func parse(data []byte) (object, error) {
	var o object
	return o, json.Unmarshal(data, &o)
}

func (o object) copy() object { return runtime.DeepCopyJSON(o) }

func (o object) meta() map[string]any {
	m, ok := o["metadata"].(map[string]any)
	if !ok {
		m = map[string]any{}
		o["metadata"] = m
	}
	return m
}

func (o object) text(field string) string { s, _ := o.meta()[field].(string); return s }
func (o object) finalizers() []any        { f, _ := o.meta()["finalizers"].([]any); return f }

// hasStatus says whether the kind's status is written apart from its spec.
func (o object) hasStatus() bool {
	version, _ := o["apiVersion"].(string)
	return strings.HasPrefix(version, "holdfast.dev/") || strings.HasPrefix(version, "apps/")
}

// born gives a new object what the server decides.
func (o object) born(uid string) {
	m := o.meta()
	m["uid"], m["creationTimestamp"], m["generation"] = uid, time.Now().UTC().Format(time.RFC3339), 1.0
	delete(m, "deletionTimestamp")
	if o.hasStatus() {
		delete(o, "status")
	}
	if o["kind"] == "CustomResourceDefinition" { // this API serves the kind in any case
		o["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}}
	}
}

// keep carries over from the object as it was what a write to its main part, or to its status, cannot change.
func (o object) keep(old object, status bool) {
	if status {
		next := o["status"]
		clear(o)
		maps.Copy(o, old.copy())
		o["status"] = next
		if next == nil {
			delete(o, "status")
		}
		return
	}
	if o.hasStatus() {
		o["status"] = old["status"]
		if old["status"] == nil {
			delete(o, "status")
		}
	}
	for _, field := range []string{"namespace", "uid", "creationTimestamp", "deletionTimestamp", "generation", "resourceVersion"} {
		o.meta()[field] = old.meta()[field]
		if old.meta()[field] == nil {
			delete(o.meta(), field)
		}
	}
	if o.hasStatus() && !reflect.DeepEqual(o["spec"], old["spec"]) {
		o.grow()
	}
}

func (o object) grow() {
	n, _ := o.meta()["generation"].(float64)
	o.meta()["generation"] = n + 1
}

// merge is RFC 7386. With lists, conditions are joined by type, as in server-side apply.
func merge(into, patch map[string]any, apply bool) {
	for k, v := range patch {
		below, isMap := v.(map[string]any)
		there, wasMap := into[k].(map[string]any)
		switch {
		case v == nil:
			delete(into, k)
		case isMap && wasMap:
			merge(there, below, apply)
		case isMap:
			fresh := map[string]any{}
			merge(fresh, below, apply)
			into[k] = fresh
		case apply && k == "conditions":
			into[k] = joined(into[k], v)
		default:
			into[k] = v
		}
	}
}

func joined(old, patch any) []any {
	all, _ := old.([]any)
	added, _ := patch.([]any)
	kind := func(c any) any { return c.(map[string]any)["type"] }
	for _, c := range added {
		i := slices.IndexFunc(all, func(o any) bool { return kind(o) == kind(c) })
		if i < 0 {
			all = append(all, c)
		} else {
			all[i] = c
		}
	}
	return all
}

// selector is what a list or watch asks for.
type selector struct {
	labels labels.Selector
	fields fields.Selector
}

func parseSelector(ofLabels, ofFields string) (s selector, err error) {
	if s.labels, err = labels.Parse(ofLabels); err == nil {
		s.fields, err = fields.ParseSelector(ofFields)
	}
	return s, err
}

func (s selector) matches(o object) bool {
	has, _, _ := unstructured.NestedStringMap(o, "metadata", "labels")
	values := fields.Set{}
	for _, r := range s.fields.Requirements() {
		values[r.Field], _, _ = unstructured.NestedString(o, strings.Split(r.Field, ".")...)
	}
	return s.labels.Matches(labels.Set(has)) && s.fields.Matches(values)
}
