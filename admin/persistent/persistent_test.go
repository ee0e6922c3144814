package persistent

import (
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

func TestOf_VolumeOfACephPoolIsUsedWhereTheKernelHasTheClient(t *testing.T) {
	for fsType, test := range map[string]struct {
		access  core.PersistentVolumeAccessMode
		refused core.PersistentVolumeAccessMode // none if empty
		label   string                          // of the nodes
	}{
		"ext4":             {core.ReadWriteOnce, core.ReadWriteMany, v1beta1.RBDVolumesKey},
		v1beta1.CephFSType: {core.ReadWriteMany, "", v1beta1.CephFSVolumesKey},
	} {
		v := &v1beta1.Volume{
			Spec:   v1beta1.VolumeSpec{Node: v1beta1.NodeOfCephPool("p")},
			Status: v1beta1.VolumeStatus{Size: v1beta1.Quantity(1 << 30), FSType: fsType},
		}
		v.Name = "v"
		pv, err := Of(v, Options{Name: "pv"})
		if err != nil || !equality.Semantic.DeepEqual(pv.Spec.NodeAffinity, onlyWhere(test.label, "true")) || !slices.Equal(pv.Spec.AccessModes, []core.PersistentVolumeAccessMode{test.access}) || pv.Spec.CSI.VolumeAttributes != nil {
			t.Errorf("%s: %+v, %v", fsType, pv, err)
		}
		if test.refused == "" {
			continue
		}
		if _, err := Of(v, Options{Name: "pv", AccessModes: []core.PersistentVolumeAccessMode{test.refused}}); err == nil || !strings.Contains(err.Error(), "Ceph pool p") {
			t.Errorf("%s as %s: %v", fsType, test.refused, err)
		}
	}
	v := &v1beta1.Volume{Spec: v1beta1.VolumeSpec{Node: "a"}, Status: v1beta1.VolumeStatus{Size: v1beta1.Quantity(1 << 30)}}
	if pv, err := Of(v, Options{Name: "pv"}); err != nil || pv.Spec.NodeAffinity == nil {
		t.Errorf("on a node: %+v, %v", pv, err)
	}
}
