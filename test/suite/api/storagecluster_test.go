package api_test

import (
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/admin/storageos"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// createCluster asks whether the server would take a StorageCluster, of which it must know every field.
func createCluster(t *testing.T, c *v1beta1.StorageCluster) error {
	t.Helper()
	_, err := client.HoldfastV1beta1().StorageClusters().Create(t.Context(), c, metav1.CreateOptions{DryRun: dryRun, FieldValidation: metav1.FieldValidationStrict})
	return err
}

func TestStorageCluster_ConvertedFromStorageOSIsAccepted(t *testing.T) {
	needServer(t)
	samples, err := filepath.Glob("../../../admin/storageos/testdata/*.yaml")
	if err != nil || len(samples) < 3 {
		t.Fatalf("samples are %q, %v", samples, err)
	}
	for _, file := range samples {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var manifest map[string]any
			if err := yaml.Unmarshal(text, &manifest); err != nil {
				t.Fatal(err)
			}
			c, _, err := storageos.Convert(manifest)
			if err != nil {
				t.Fatal(err)
			}
			if err := createCluster(t, c); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestStorageCluster_StatefulSetNeedsAPermanentReplica(t *testing.T) {
	needServer(t)
	for _, test := range []struct {
		strategy v1beta1.ControllerKind
		replicas *int32
		taken    bool
	}{
		{v1beta1.AsStatefulSet, nil, true},
		{v1beta1.AsStatefulSet, new(int32(2)), true},
		{v1beta1.AsStatefulSet, new(int32(1)), false},
		{v1beta1.AsDeployment, new(int32(1)), true},
		{"", new(int32(1)), true},
	} {
		c := &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "holdfast"}}
		c.Spec.Controller.Kind, c.Spec.Controller.Replicas = test.strategy, test.replicas
		if err := createCluster(t, c); test.taken {
			if err != nil {
				t.Errorf("%+v: %v", c.Spec.CSI, err)
			}
		} else {
			mustRefuse(t, err, "spec.controller.replicas")
		}
	}
}
