package provisioner

import (
	"slices"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"

	"github.com/holdfast-storage/holdfast/admin/persistent"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestPersistentVolume_OfAnAdoptedVolumeEqualsAProvisionedOne(t *testing.T) {
	s, p := quiet(t, func(s *server) { s.config.Name = "" })
	if p.Name != v1beta1.ProvisionerName {
		t.Errorf("the provisioner is %s, of the API it is %s", p.Name, v1beta1.ProvisionerName)
	}
	o := options(map[string]string{"gid": "1000", "onDelete": "archive"}, func(o *controller.ProvisionOptions) {
		o.StorageClass.ReclaimPolicy = new(core.PersistentVolumeReclaimRetain)
	})
	pv := p.provisioned(t, o)
	// The library writes these.
	pv.Annotations[v1beta1.ProvisionedByAnnotation], pv.Spec.StorageClassName = p.Name, "shared"
	pv.Spec.ClaimRef = &core.ObjectReference{Namespace: "default", Name: "data"}

	disk := s.disk.volume(string(volumeOf(pv)))
	v := &v1beta1.Volume{Spec: v1beta1.VolumeSpec{Name: disk.Name, Node: "storage.main.nfs.holdfast.dev", Shared: true, Labels: disk.Labels}}
	v.Name, v.Status.Size, v.Status.Mode = string(disk.ID), resource.NewQuantity(disk.Size, resource.BinarySI), v1beta1.ModeFilesystem
	v.Status.Access = &v1beta1.VolumeAccess{NFS: &v1beta1.VolumeNFS{Server: address, Path: p.Path(disk.ID)}}
	if !persistent.Plain(v) || persistent.Server(v) != p.Identity || !persistent.Names(v, pv) || persistent.StoreOf(pv, p.Identity) != p.journal.store {
		t.Error("it is not known again")
	}
	adopted, err := persistent.Of(v, persistent.Options{
		Name: persistent.NamesFor(v)[0], Claim: *pv.Spec.ClaimRef, ClassName: "shared", MountOptions: v1beta1.NFSMountOptions(nil), Store: p.journal.store,
	})
	check.OK(t, err)
	if !equality.Semantic.DeepEqual(adopted, pv) {
		t.Errorf("adopted it is\n%+v\nand provisioned\n%+v", adopted, pv)
	}
	if !p.owns(adopted) {
		t.Error("the server would not delete it")
	}
}

func TestPersistentVolume_OfAServerWithAnotherPortNamesIt(t *testing.T) {
	p := &Provisioner{Config: Config{Path: func(id backend.ID) string { return "/" + string(id) }}, journal: &journal{}}
	o := options(nil, func(o *controller.ProvisionOptions) { o.StorageClass.MountOptions = []string{"hard"} })
	for port, want := range map[int32][]string{0: {"hard"}, 3049: {"hard", "port=3049"}} {
		v := &backend.Volume{ID: "v", Access: backend.Access{NFS: &backend.NFS{Port: port, Path: "/v"}}}
		if got := p.persistent(o, v).Spec.MountOptions; !slices.Equal(got, want) {
			t.Errorf("with port %d the options are %q", port, got)
		}
	}
}
