package render

import (
	"maps"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend/local"
)

// docs/api.md promises that what a field means that is left out does not change within this version of the API.
func TestDefaults_AreThoseOfTheVersionOfTheAPI(t *testing.T) {
	class := must[storage.StorageClass](t, ask(nil), "StorageClass", "holdfast")
	if *class.ReclaimPolicy != core.PersistentVolumeReclaimDelete || *class.VolumeBindingMode != storage.VolumeBindingWaitForFirstConsumer || !*class.AllowVolumeExpansion {
		t.Errorf("the class has %s, %s, %t", *class.ReclaimPolicy, *class.VolumeBindingMode, *class.AllowVolumeExpansion)
	}
	if want := map[string]string{"csi.storage.k8s.io/fstype": "ext4"}; !maps.Equal(class.Parameters, want) {
		t.Errorf("its parameters are %v", class.Parameters)
	}
	shared := must[storage.StorageClass](t, ask(nil), "StorageClass", "holdfast-shared")
	if *shared.VolumeBindingMode != storage.VolumeBindingImmediate || *shared.ReclaimPolicy != core.PersistentVolumeReclaimDelete {
		t.Errorf("the shared class has %s, %s", *shared.VolumeBindingMode, *shared.ReclaimPolicy)
	}
	if loss := (&v1beta1.VolumeSpec{}).NodeLossPolicy(); loss != v1beta1.RetainOnNodeLoss {
		t.Errorf("the loss of a node means %s", loss)
	}
	pools := Pools(ask(nil).Cluster)
	if len(pools) != 1 || pools[0].Name != "default" || pools[0].Path != "/var/lib/holdfast/pools/default" || pools[0].Reserved != "10%" {
		t.Errorf("the pools are %+v", pools)
	}
	if local.DefaultTrashRetention != 24*time.Hour {
		t.Errorf("what was deleted is kept for %s", local.DefaultTrashRetention)
	}
}
