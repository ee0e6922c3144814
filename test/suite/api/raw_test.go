package api_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

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
