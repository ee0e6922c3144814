package driver

import (
	"maps"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

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
	const site = "p.ceph.holdfast.dev"
	c := &controller{Driver: &Driver{}}
	for name, test := range map[string]struct {
		node   string
		reach  backend.Reach
		mode   v1beta1.Mode
		made   string // the file system that it has in a Ceph cluster
		port   int32  // of its server
		fsType string
	}{
		"on a node":                  {"a", backend.ItsHost, v1beta1.ModeFilesystem, "", 0, "xfs"},
		"a device":                   {"a", backend.ItsHost, v1beta1.ModeBlock, "", 0, ""},
		"an image in a Ceph cluster": {site, backend.OneHost, v1beta1.ModeFilesystem, "xfs", 0, "xfs"},
		"a directory of a CephFS":    {site, backend.ManyHosts, v1beta1.ModeFilesystem, v1beta1.CephFSType, 0, "xfs"},
		"shared":                     {"team.main.nfs.holdfast.dev", backend.ItsHost, v1beta1.ModeFilesystem, "", 0, "xfs"},
		"shared at another port":     {"team.main.nfs.holdfast.dev", backend.ItsHost, v1beta1.ModeFilesystem, "", 3049, "xfs"},
	} {
		t.Run(name, func(t *testing.T) {
			volume := &backend.Volume{ID: "pvc-1", Size: gib, Node: test.node, Mode: backend.Mode(test.mode), Reach: test.reach}
			object := &v1beta1.Volume{Spec: v1beta1.VolumeSpec{Node: test.node}}
			object.Name, object.Status.Size = "pvc-1", v1beta1.Quantity(gib)
			object.Status.Mode, object.Status.FSType = test.mode, test.made
			if v1beta1.ServerOf(test.node) != "" {
				volume.Node, volume.Shared, object.Spec.Shared = "", true, true
				volume.Access.NFS = &backend.NFS{Server: "10.0.0.7", Port: test.port, Path: "/pvc-1"}
				object.Status.Access = &v1beta1.VolumeAccess{NFS: &v1beta1.VolumeNFS{Server: "10.0.0.7", Port: test.port, Path: "/pvc-1"}}
			}
			made := c.volume(volume)
			pv := check.Got(persistent.Of(object, persistent.Options{Name: "pvc-1", FSType: "xfs"}))(t)
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
