package api_test

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
)

// createRaw asks whether the server would take an object that the Go types cannot hold.
func createRaw(t *testing.T, resource, kind, spec string) error {
	t.Helper()
	text := `{"apiVersion":"holdfast.dev/v1","kind":"` + kind + `","metadata":{"generateName":"test-raw-"}` + spec + `}`
	return client.HoldfastV1().RESTClient().Post().Resource(resource).Param("dryRun", "All").Body([]byte(text)).Do(t.Context()).Error()
}

func TestAVolumeThatLacksSomethingIsRefused(t *testing.T) {
	needServer(t)
	for spec, field := range map[string]string{
		``:                     "spec",
		`,"spec":{"node":"n"}`: "spec.name",
		`,"spec":{"name":"a"}`: "spec.node",
		`,"spec":{"name":"a","node":"n","source":{"kind":"volume"}}`: "spec.source.name",
		`,"spec":{"name":"a","node":"n","source":{"name":"b"}}`:      "spec.source.kind",
	} {
		mustRefuse(t, createRaw(t, "volumes", "Volume", spec), field)
	}
}

func TestASnapshotThatLacksSomethingIsRefused(t *testing.T) {
	needServer(t)
	for spec, field := range map[string]string{
		``:                                  "spec",
		`,"spec":{"source":"a","node":"n"}`: "spec.name",
		`,"spec":{"name":"s","node":"n"}`:   "spec.source",
		`,"spec":{"name":"s","source":"a"}`: "spec.node",
		`,"spec":{"name":"s","source":"a","node":"n","group":{"name":"g"}}`:      "spec.group.sources",
		`,"spec":{"name":"s","source":"a","node":"n","group":{"sources":["a"]}}`: "spec.group.name",
	} {
		mustRefuse(t, createRaw(t, "snapshots", "Snapshot", spec), field)
	}
}

func TestASizeIsWrittenAsANumberOrAQuantity(t *testing.T) {
	needServer(t)
	sized := func(field, value string) error {
		return createRaw(t, "volumes", "Volume", `,"spec":{"name":"a","node":"n","size":{"`+field+`":`+value+`}}`)
	}
	for _, field := range []string{"required", "limit"} {
		for _, good := range []string{`1073741824`, `9223372036854775807`, `"1Gi"`, `"1G"`, `"1e9"`} {
			if err := sized(field, good); err != nil {
				t.Errorf("%s: %s: %v", field, good, err)
			}
		}
		for _, bad := range []string{`-1`, `1.5`, `true`, `""`, `"10 Gi"`, `"much"`, `[1]`} {
			// What is wrong with the type is said in several ways.
			if err := sized(field, bad); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.size."+field) {
				t.Errorf("%s: %s: got %v, want a refusal that names the field", field, bad, err)
			}
		}
	}
}

func TestANodeNeedsNothing(t *testing.T) {
	needServer(t)
	for _, spec := range []string{``, `,"spec":{}`} {
		if err := createRaw(t, "storagenodes", "StorageNode", spec); err != nil {
			t.Errorf("%s: %v", spec, err)
		}
	}
}

func TestAProgramCanWriteBackWhatAPersonWrote(t *testing.T) {
	needServer(t)
	text := `{"apiVersion":"holdfast.dev/v1","kind":"Volume","metadata":{"generateName":"test-raw-"},"spec":{"name":"a","node":"` + nowhere + `",
		"claim":"","pool":"","mode":"","fsType":"","provisioning":"","mkfsOptions":[],"inodes":0,"labels":{},"onNodeLoss":"","size":` + "%s" + `}}`
	for _, size := range []string{`{}`, `{"required":"1.5Gi","limit":"2048Mi"}`, `{"required":1000}`, `{"required":null,"limit":"1Gi"}`} {
		var v v1.Volume
		err := client.HoldfastV1().RESTClient().Post().Resource("volumes").Body([]byte(fmt.Sprintf(text, size))).Do(t.Context()).Into(&v)
		if err != nil {
			t.Errorf("%s: %v", size, err)
			continue
		}
		endVolume(t, v.Name)
		v.Finalizers = []string{v1.AgentFinalizer}
		if _, err := client.HoldfastV1().Volumes().Update(t.Context(), &v, metav1.UpdateOptions{DryRun: dryRun}); err != nil {
			t.Errorf("%s: %v", size, err)
		}
	}
}
