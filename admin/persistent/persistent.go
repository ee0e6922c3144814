// Package persistent describes the PersistentVolume of a Volume as its provisioner creates it: external-provisioner for
// volumes of the CSI driver, an NFS server for plain NFS volumes.
package persistent

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

const (
	// Without these, external-provisioner looks for secrets in the class, which may not exist any more.
	secretName      = "volume.kubernetes.io/provisioner-deletion-secret-name"
	secretNamespace = "volume.kubernetes.io/provisioner-deletion-secret-namespace"

	// The volume attribute with the export of a shared volume.
	pathAttribute = "holdfast.dev/nfs-path"
	portAttribute = "holdfast.dev/nfs-port"
)

// Options are the properties of the PersistentVolume that do not follow from the Volume.
type Options struct {
	Name          string // of the PersistentVolume
	Claim         core.ObjectReference
	ClassName     string
	FSType        string // as in the class; the driver needs none
	MountOptions  []string
	AccessModes   []core.PersistentVolumeAccessMode // empty: the default of the volume
	ReclaimPolicy core.PersistentVolumeReclaimPolicy
	Store         string // identity of the data of the NFS server of a plain volume, if known
}

// Of describes the PersistentVolume. The status of the volume must have its size and access.
func Of(v *v1beta1.Volume, o Options) (*core.PersistentVolume, error) {
	if err := CheckReal(v); err != nil {
		return nil, err
	}
	if len(o.AccessModes) == 0 {
		o.AccessModes = []core.PersistentVolumeAccessMode{core.ReadWriteOnce}
		if v.Spec.Shared || v.IsOfCephFS() {
			o.AccessModes[0] = core.ReadWriteMany
		}
	}
	if err := checkAccess(v, o.AccessModes); err != nil {
		return nil, err
	}
	mode := core.PersistentVolumeMode(cmp.Or(v.Status.Mode, v.Spec.Mode, v1beta1.ModeFilesystem))
	pv := &core.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: o.Name, Annotations: annotations(v, o)},
		Spec: core.PersistentVolumeSpec{
			Capacity:                      core.ResourceList{core.ResourceStorage: *v1beta1.Quantity(v.Status.Size.Value())},
			AccessModes:                   slices.Clone(o.AccessModes),
			ClaimRef:                      &o.Claim,
			PersistentVolumeReclaimPolicy: cmp.Or(o.ReclaimPolicy, core.PersistentVolumeReclaimRetain),
			StorageClassName:              o.ClassName,
			MountOptions:                  slices.Clone(o.MountOptions),
			VolumeMode:                    &mode,
		},
	}
	lead(pv, v)
	if pv.Spec.CSI != nil && mode == core.PersistentVolumeFilesystem {
		pv.Spec.CSI.FSType = o.FSType
	}
	return pv, nil
}

// lead sets how nodes reach the volume, and which.
func lead(pv *core.PersistentVolume, v *v1beta1.Volume) {
	nfs := &v1beta1.VolumeNFS{} // an agent may have written that it is shared, and not where
	if a := v.Status.Access; a != nil && a.NFS != nil {
		nfs = a.NFS
	}
	if Plain(v) {
		pv.Spec.NFS = &core.NFSVolumeSource{Server: nfs.Server, Path: nfs.Path}
		pv.Spec.MountOptions = append(pv.Spec.MountOptions, v1beta1.NFSPortOption(nfs.Port)...)
		return
	}
	pv.Spec.CSI = &core.CSIPersistentVolumeSource{Driver: v1beta1.DriverName, VolumeHandle: v.Name}
	switch {
	case v.Spec.Shared:
		pv.Spec.CSI.VolumeAttributes = map[string]string{v1beta1.NFSServerAttribute: nfs.Server, pathAttribute: nfs.Path}
		if nfs.Port != 0 {
			pv.Spec.CSI.VolumeAttributes[portAttribute] = strconv.Itoa(int(nfs.Port))
		}
	case v.IsOfCephFS():
		pv.Spec.NodeAffinity = onlyWhere(v1beta1.CephFSVolumesKey, "true")
	case v1beta1.CephPoolOf(v.Spec.Node) != "":
		pv.Spec.NodeAffinity = onlyWhere(v1beta1.RBDVolumesKey, "true")
	default:
		pv.Spec.NodeAffinity = onlyWhere(v1beta1.TopologyKey, v.Spec.Node)
	}
}

// Leads describes where pods look for a volume by a PersistentVolume: at an NFS server, whichever provisioner named it, or
// on the nodes that its affinity names. Neither can be changed in a PersistentVolume.
func Leads(pv *core.PersistentVolume) string {
	switch source := pv.Spec.PersistentVolumeSource; {
	case source.NFS != nil:
		return "NFS export " + source.NFS.Server + ":" + source.NFS.Path
	case source.CSI != nil && source.CSI.VolumeAttributes[v1beta1.NFSServerAttribute] != "":
		return "NFS export " + source.CSI.VolumeAttributes[v1beta1.NFSServerAttribute] + ":" + source.CSI.VolumeAttributes[pathAttribute]
	}
	if nodes := nodesOf(pv.Spec.NodeAffinity); len(nodes) > 0 {
		return "node " + strings.Join(nodes, " or ")
	}
	return "any node"
}

// LeadsTo is what Leads returns of a PersistentVolume that leads to the volume.
func LeadsTo(v *v1beta1.Volume) string {
	pv := &core.PersistentVolume{}
	lead(pv, v)
	return Leads(pv)
}

func nodesOf(a *core.VolumeNodeAffinity) (names []string) {
	if a == nil || a.Required == nil {
		return nil
	}
	for _, term := range a.Required.NodeSelectorTerms {
		for _, r := range term.MatchExpressions {
			if r.Key == v1beta1.TopologyKey && r.Operator == core.NodeSelectorOpIn {
				names = append(names, r.Values...)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// CheckReal fails for a volume whose status is incomplete.
func CheckReal(v *v1beta1.Volume) error {
	switch {
	case v.Status.Size == nil || v.Status.Size.Sign() <= 0:
		return fmt.Errorf("the status of Volume %s has no size, so it was never created (phase %s); wait until it is Ready",
			v.Name, cmp.Or(v.Status.Phase, v1beta1.PhasePending))
	case (v.Spec.Shared || Plain(v)) && (v.Status.Access == nil || v.Status.Access.NFS == nil):
		return fmt.Errorf("NFS server %s has not reported the address of Volume %s yet; wait until the server runs", v1beta1.ServerOf(v.Spec.Node), v.Name)
	}
	return nil
}

func onlyWhere(key, value string) *core.VolumeNodeAffinity {
	return &core.VolumeNodeAffinity{Required: &core.NodeSelector{NodeSelectorTerms: []core.NodeSelectorTerm{{
		MatchExpressions: []core.NodeSelectorRequirement{{Key: key, Operator: core.NodeSelectorOpIn, Values: []string{value}}},
	}}}}
}

func annotations(v *v1beta1.Volume, o Options) map[string]string {
	if !Plain(v) {
		return map[string]string{v1beta1.ProvisionedByAnnotation: v1beta1.DriverName, secretName: "", secretNamespace: ""}
	}
	all := map[string]string{
		v1beta1.ProvisionedByAnnotation: v1beta1.ProvisionerName, v1beta1.NFSServerAnnotation: v.Spec.Labels[v1beta1.NFSServerLabel], v1beta1.NFSStoreAnnotation: o.Store, v1beta1.NFSVolumeAnnotation: v.Name,
		v1beta1.OnDeleteAnnotation: v.Spec.Labels[v1beta1.OnDeleteLabel], v1beta1.GIDAnnotation: v.Spec.Labels[v1beta1.GIDLabel],
	}
	maps.DeleteFunc(all, func(_, value string) bool { return value == "" })
	return all
}
