package api_test

import (
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/admin/storageos"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
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
			check.OK(t, err)
			var manifest map[string]any
			check.OK(t, yaml.Unmarshal(text, &manifest))
			c, _, err := storageos.Convert(manifest)
			check.OK(t, err)
			check.Report(t, createCluster(t, c))
		})
	}
}
