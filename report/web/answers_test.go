package web

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/report/facts"
	"github.com/holdfast-storage/holdfast/report/status"
)

func fieldName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func isReference(t reflect.Type) bool {
	return t == reflect.TypeFor[*v1beta1.NamespacedReference]() || t == reflect.TypeFor[*v1beta1.SourceReference]() || t == reflect.TypeFor[v1beta1.SourceReference]()
}

func TestAnswers_HaveTheNamesOfTheKindsAndOfTheCommands(t *testing.T) {
	of := func(types ...any) []any { return types }
	for _, test := range []struct {
		answer any
		models []any    // have the same fields: kinds, and what commands print with -o json
		own    []string // fields that no model has
	}{
		{Cluster{}, of(metav1.ObjectMeta{}, v1beta1.StorageClusterStatus{}, status.Cluster{}, v1beta1.Pool{}), nil},
		{Node{}, of(metav1.ObjectMeta{}, v1beta1.StorageNodeStatus{}, status.Node{}, status.Pool{}, v1beta1.VolumeSpec{}), []string{"phase"}},
		{Pool{}, of(v1beta1.Pool{}, status.Pool{}, v1beta1.VolumeSpec{}), nil},
		{Volume{}, of(metav1.ObjectMeta{}, v1beta1.VolumeSpec{}, v1beta1.VolumeStatus{}, status.Pool{}, facts.Unwell{}), []string{"healthy", "attention"}},
		{Snapshot{}, of(metav1.ObjectMeta{}, v1beta1.SnapshotSpec{}, v1beta1.SnapshotStatus{}, facts.Unwell{}), []string{"healthy", "attention"}},
		{NFSServer{}, of(metav1.ObjectMeta{}, v1beta1.NFSServerStatus{}, status.Server{}), []string{"level"}},
		{facts.Finding{}, of(facts.Unwell{}, metav1.ObjectMeta{}), []string{"level", "count"}},
		{facts.Operation{}, of(facts.Unwell{}, metav1.ObjectMeta{}, v1beta1.NodeJobStatus{}), []string{"verb", "doneNodes"}},
		{facts.Event{}, of(core.Event{}), nil},
		{facts.ObjectReference{}, of(core.ObjectReference{}), nil},
	} {
		answer := reflect.TypeOf(test.answer)
		for _, f := range reflect.VisibleFields(answer) {
			name := fieldName(f)
			if f.Anonymous || slices.Contains(test.own, name) {
				continue
			}
			var models []reflect.StructField
			for _, m := range test.models {
				for _, field := range reflect.VisibleFields(reflect.TypeOf(m)) {
					if fieldName(field) == name {
						models = append(models, field)
					}
				}
			}
			switch {
			case len(models) == 0:
				t.Errorf("%s: no kind and no command has a field %s", answer, name)
			case slices.ContainsFunc(models, func(m reflect.StructField) bool { return isReference(m.Type) }) && models[0].Type != f.Type:
				t.Errorf("%s: %s is a %s, and a %s elsewhere", answer, name, f.Type, models[0].Type)
			}
		}
	}
}
