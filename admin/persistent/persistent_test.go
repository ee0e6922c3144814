package persistent

import (
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

func TestOf_VolumeOfACephPoolIsOnNoNode(t *testing.T) {
	for fsType, test := range map[string]struct {
		access  core.PersistentVolumeAccessMode
		refused core.PersistentVolumeAccessMode // none if empty
	}{
		"ext4":             {core.ReadWriteOnce, core.ReadWriteMany},
		v1beta1.CephFSType: {core.ReadWriteMany, ""},
	} {
		v := &v1beta1.Volume{
			Spec:   v1beta1.VolumeSpec{Node: v1beta1.NodeOfCephPool("p")},
			Status: v1beta1.VolumeStatus{Size: v1beta1.Quantity(1 << 30), FSType: fsType},
		}
		v.Name = "v"
		pv, err := Of(v, Options{Name: "pv"})
		if err != nil || pv.Spec.NodeAffinity != nil || !slices.Equal(pv.Spec.AccessModes, []core.PersistentVolumeAccessMode{test.access}) || pv.Spec.CSI.VolumeAttributes != nil {
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
