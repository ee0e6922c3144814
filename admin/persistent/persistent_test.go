package persistent

import (
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// An agent may have written the label of an NFS server, or that the volume is shared, and no export.
func TestOf_VolumeOfAnNFSServerWithoutAnExportIsAnErrorAndNoPanic(t *testing.T) {
	for what, spec := range map[string]v1beta1.VolumeSpec{
		"plain":  {Node: "a.main.nfs.holdfast.dev", Labels: map[string]string{v1beta1.NFSServerLabel: "a/main"}},
		"shared": {Node: "a.main.nfs.holdfast.dev", Shared: true},
	} {
		for _, access := range []*v1beta1.VolumeAccess{nil, {}, {Image: "/var/lib/holdfast/image"}} {
			v := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: spec}
			v.Status = v1beta1.VolumeStatus{Size: v1beta1.Quantity(1 << 30), Access: access}
			const want = "NFS server a/main has not reported the address of Volume v yet"
			if _, err := Of(v, Options{Name: "pv"}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s with %+v: %v", what, access, err)
			}
			pv := &core.PersistentVolume{}
			pv.Spec.NFS = &core.NFSVolumeSource{Server: "10.0.0.7", Path: "/v"}
			if LeadsTo(v) == Leads(pv) {
				t.Errorf("%s with %+v is at %s", what, access, Leads(pv))
			}
		}
	}
}

func TestNames_OneThatAnotherServerMadeForTheSameClaimIsNotOfTheVolume(t *testing.T) {
	v := &v1beta1.Volume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"}, Spec: v1beta1.VolumeSpec{Node: "a.main.nfs.holdfast.dev"},
		Status: v1beta1.VolumeStatus{Access: &v1beta1.VolumeAccess{NFS: &v1beta1.VolumeNFS{Server: "10.0.0.7", Path: "/pvc-1"}}},
	}
	for name, want := range map[string]bool{"pvc-1.b.main.nfs.holdfast.dev": false, "pvc-1": true, "pvc-1.a.main.nfs.holdfast.dev": true} {
		pv := &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1beta1.NFSServerAnnotation: "b/main"}}}
		pv.Spec.NFS = &core.NFSVolumeSource{Server: "10.0.0.8", Path: "/pvc-1"}
		if got := Names(v, pv); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestNames_OneWrittenByHandIsOfTheVolumeWhoseExportItIsIn(t *testing.T) {
	v := &v1beta1.Volume{Status: v1beta1.VolumeStatus{Access: &v1beta1.VolumeAccess{NFS: &v1beta1.VolumeNFS{Server: "10.0.0.7", Path: "/pvc-1"}}}}
	for path, want := range map[string]bool{"/pvc-1": true, "/pvc-1/": true, "//pvc-1/./": true, "/pvc-1/a/..": true, "/pvc-1/a": true, "/pvc-10": false, "/pvc-1/../pvc-2": false, "/": false, "": false} {
		pv := &core.PersistentVolume{}
		pv.Spec.NFS = &core.NFSVolumeSource{Server: "192.0.2.7", Path: path}
		if got := Names(v, pv); got != want {
			t.Errorf("%q: %t", path, got)
		}
	}
}
