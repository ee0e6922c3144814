package driver

import (
	"maps"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-storage/holdfast/admin/persistent"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// affinity is what external-provisioner makes of what a volume says of its topology.
func affinity(all []*csi.Topology) *core.VolumeNodeAffinity {
	if len(all) == 0 {
		return nil
	}
	var terms []core.NodeSelectorTerm
	for _, t := range all {
		var expressions []core.NodeSelectorRequirement
		for key, value := range t.Segments {
			expressions = append(expressions, core.NodeSelectorRequirement{Key: key, Operator: core.NodeSelectorOpIn, Values: []string{value}})
		}
		terms = append(terms, core.NodeSelectorTerm{MatchExpressions: expressions})
	}
	return &core.VolumeNodeAffinity{Required: &core.NodeSelector{NodeSelectorTerms: terms}}
}

func TestNames_OfTheDriverAreThoseOfTheAPI(t *testing.T) {
	for ours, theirs := range map[string]string{
		DefaultName: v1beta1.DriverName, TopologyKey: v1beta1.TopologyKey, SharedVolumesKey: v1beta1.SharedVolumesKey,
		RBDVolumesKey: v1beta1.RBDVolumesKey, CephFSVolumesKey: v1beta1.CephFSVolumesKey, populatesContext: v1beta1.PopulatesAttribute,
	} {
		if ours != theirs {
			t.Errorf("the driver says %s, the API %s", ours, theirs)
		}
	}
}

func TestPersistentVolume_OfAnAdoptedVolumeEqualsACreatedOne(t *testing.T) {
	size := resource.NewQuantity(gib, resource.BinarySI)
	c := newController(&Driver{})
	for name, test := range map[string]struct {
		volume *backend.Volume
		object *v1beta1.Volume
		fsType string
	}{
		"on a node": {
			&backend.Volume{ID: "pvc-1", Size: gib, Node: "a", Mode: backend.Filesystem},
			&v1beta1.Volume{Spec: v1beta1.VolumeSpec{Node: "a"}, Status: v1beta1.VolumeStatus{Size: size, Mode: v1beta1.ModeFilesystem}}, "xfs",
		},
		"a device": {
			&backend.Volume{ID: "pvc-1", Size: gib, Node: "a", Mode: backend.Block},
			&v1beta1.Volume{Spec: v1beta1.VolumeSpec{Node: "a"}, Status: v1beta1.VolumeStatus{Size: size, Mode: v1beta1.ModeBlock}}, "",
		},
		"an image in a Ceph cluster": {
			&backend.Volume{ID: "pvc-1", Size: gib, Node: "p.ceph.holdfast.dev", Mode: backend.Filesystem, Reach: backend.OneHost},
			&v1beta1.Volume{Spec: v1beta1.VolumeSpec{Node: "p.ceph.holdfast.dev"}, Status: v1beta1.VolumeStatus{Size: size, Mode: v1beta1.ModeFilesystem, FSType: "xfs"}}, "xfs",
		},
		"a directory of a CephFS": {
			&backend.Volume{ID: "pvc-1", Size: gib, Node: "p.ceph.holdfast.dev", Mode: backend.Filesystem, Reach: backend.ManyHosts},
			&v1beta1.Volume{Spec: v1beta1.VolumeSpec{Node: "p.ceph.holdfast.dev"}, Status: v1beta1.VolumeStatus{Size: size, Mode: v1beta1.ModeFilesystem, FSType: v1beta1.CephFSType}}, "xfs",
		},
		"shared": {
			&backend.Volume{ID: "pvc-1", Size: gib, Shared: true, Access: backend.Access{NFS: &backend.NFS{Server: "10.0.0.7", Path: "/pvc-1"}}},
			&v1beta1.Volume{Spec: v1beta1.VolumeSpec{Node: "team.main.nfs.holdfast.dev", Shared: true}, Status: v1beta1.VolumeStatus{
				Size: size, Mode: v1beta1.ModeFilesystem, Access: &v1beta1.VolumeAccess{NFS: &v1beta1.VolumeNFS{Server: "10.0.0.7", Path: "/pvc-1"}},
			}}, "xfs",
		},
		"shared at another port": {
			&backend.Volume{ID: "pvc-1", Size: gib, Shared: true, Access: backend.Access{NFS: &backend.NFS{Server: "10.0.0.7", Port: 3049, Path: "/pvc-1"}}},
			&v1beta1.Volume{Spec: v1beta1.VolumeSpec{Node: "team.main.nfs.holdfast.dev", Shared: true}, Status: v1beta1.VolumeStatus{
				Size: size, Mode: v1beta1.ModeFilesystem, Access: &v1beta1.VolumeAccess{NFS: &v1beta1.VolumeNFS{Server: "10.0.0.7", Port: 3049, Path: "/pvc-1"}},
			}}, "xfs",
		},
	} {
		t.Run(name, func(t *testing.T) {
			made := c.volume(test.volume)
			test.object.Name = "pvc-1"
			pv := check.Got(persistent.Of(test.object, persistent.Options{Name: "pvc-1", FSType: "xfs"}))(t)
			if pv.Spec.CSI.VolumeHandle != made.VolumeId || pv.Spec.Capacity.Storage().Value() != made.CapacityBytes || pv.Spec.CSI.FSType != test.fsType {
				t.Errorf("it is %+v", pv.Spec)
			}
			if !maps.Equal(pv.Spec.CSI.VolumeAttributes, made.VolumeContext) {
				t.Errorf("its attributes are %v, and the driver answers %v", pv.Spec.CSI.VolumeAttributes, made.VolumeContext)
			}
			if want := affinity(made.AccessibleTopology); !equality.Semantic.DeepEqual(pv.Spec.NodeAffinity, want) {
				t.Errorf("its nodes are %+v, and those of the driver %+v", pv.Spec.NodeAffinity, want)
			}
		})
	}
}
