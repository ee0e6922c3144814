package api_test

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// createRaw asks whether the server would take an object that the Go types cannot hold.
func createRaw(t *testing.T, resource, kind, spec string) error {
	t.Helper()
	text := `{"apiVersion":"holdfast.dev/v1beta1","kind":"` + kind + `","metadata":{"generateName":"test-raw-"}` + spec + `}`
	return client.HoldfastV1beta1().RESTClient().Post().Resource(resource).Param("dryRun", "All").Body([]byte(text)).Do(t.Context()).Error()
}

func TestVolume_WithoutARequiredFieldIsRefused(t *testing.T) {
	needServer(t)
	for spec, field := range map[string]string{
		``:                     "spec",
		`,"spec":{"node":"n"}`: "spec.name",
		`,"spec":{"name":"a"}`: "spec.node",
		`,"spec":{"name":"a","node":"n","sourceRef":{"kind":"Volume"}}`: "spec.sourceRef.name",
		`,"spec":{"name":"a","node":"n","sourceRef":{"name":"b"}}`:      "spec.sourceRef.kind",
	} {
		mustRefuse(t, createRaw(t, "volumes", "Volume", spec), field)
	}
}

func TestSnapshot_WithoutARequiredFieldIsRefused(t *testing.T) {
	needServer(t)
	for spec, field := range map[string]string{
		``: "spec",
		`,"spec":{"sourceRef":{"kind":"Volume","name":"a"},"node":"n"}`:                                      "spec.name",
		`,"spec":{"name":"s","node":"n"}`:                                                                    "spec.sourceRef",
		`,"spec":{"name":"s","sourceRef":{"kind":"Volume","name":"a"}}`:                                      "spec.node",
		`,"spec":{"name":"s","sourceRef":{"kind":"Volume","name":"a"},"node":"n","group":{"name":"g"}}`:      "spec.group.volumes",
		`,"spec":{"name":"s","sourceRef":{"kind":"Volume","name":"a"},"node":"n","group":{"volumes":["a"]}}`: "spec.group.name",
	} {
		mustRefuse(t, createRaw(t, "snapshots", "Snapshot", spec), field)
	}
}

func TestSize_IsANumberOrAQuantity(t *testing.T) {
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

func TestStorageNode_NeedsNoField(t *testing.T) {
	needServer(t)
	for _, spec := range []string{``, `,"spec":{}`} {
		if err := createRaw(t, "storagenodes", "StorageNode", spec); err != nil {
			t.Errorf("%s: %v", spec, err)
		}
	}
}

func TestSize_WrittenByAPersonCanBeWrittenBackByAProgram(t *testing.T) {
	needServer(t)
	text := `{"apiVersion":"holdfast.dev/v1beta1","kind":"Volume","metadata":{"generateName":"test-raw-"},"spec":{"name":"a","node":"` + nowhere + `",
		"claimRef":null,"pool":"","mode":"","fsType":"","provisioning":"","mkfsOptions":[],"inodes":0,"labels":{},"onNodeLoss":"","size":` + "%s" + `}}`
	for _, size := range []string{`{}`, `{"required":"1.5Gi","limit":"2048Mi"}`, `{"required":1000}`, `{"required":null,"limit":"1Gi"}`} {
		var v v1beta1.Volume
		err := client.HoldfastV1beta1().RESTClient().Post().Resource("volumes").Body([]byte(fmt.Sprintf(text, size))).Do(t.Context()).Into(&v)
		if err != nil {
			t.Errorf("%s: %v", size, err)
			continue
		}
		endVolume(t, v.Name)
		v.Finalizers = []string{v1beta1.AgentFinalizer}
		if _, err := client.HoldfastV1beta1().Volumes().Update(t.Context(), &v, metav1.UpdateOptions{DryRun: dryRun}); err != nil {
			t.Errorf("%s: %v", size, err)
		}
	}
}
