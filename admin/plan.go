package admin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/holdfast-storage/holdfast/admin/persistent"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

type binding struct {
	pv       *core.PersistentVolume
	newPV    bool
	pvPatch  []byte // nil: no change
	claim    *core.PersistentVolumeClaim
	newClaim bool
	setName  bool // set the volumeName of the claim
	notes    []string
}

// plan makes no requests.
func (o *observed) plan(want Adoption) (*binding, error) {
	b := &binding{claim: o.claim}
	if err := o.checkVolume(b); err != nil {
		return nil, err
	}
	if c := o.claim; c != nil && c.DeletionTimestamp != nil {
		return nil, fmt.Errorf("claim %s is being deleted; wait until it is gone, or choose another", o.claimKey())
	}
	if err := o.planPersistentVolume(b, want); err != nil {
		return nil, err
	}
	return b, o.planClaim(b)
}

func (o *observed) claimKey() string { return o.namespace + "/" + o.name }

func (o *observed) checkVolume(b *binding) error {
	v := o.volume
	if err := refuseDeleted(v); err != nil {
		return err
	}
	switch r := recordOf(v); {
	case v.IsIncomplete():
		return fmt.Errorf("volume %s cannot be bound to a claim: %s", v.Name, meta.FindStatusCondition(v.Status.Conditions, v1beta1.CompleteCondition).Message)
	case r.Phase == v1beta1.PhaseLost, r.Phase == v1beta1.PhaseFailed:
		return fmt.Errorf("volume %s is %s (%s): a claim would get no data", v.Name, r.Phase, r.Condition)
	case v.IsBeingPopulated():
		return fmt.Errorf("volume %s does not have all of its content yet (%s): wait until its condition Populated is True", v.Name, cmp.Or(v.Status.Copy.String(), "Pending"))
	case r.Phase == v1beta1.PhaseUnreachable:
		b.notes = append(b.notes, fmt.Sprintf("volume %s is out of reach now (%s); pods wait until it is back", v.Name, r.Condition))
	}
	return persistent.CheckReal(v)
}

func refuseDeleted(v *v1beta1.Volume) error {
	if v.DeletionTimestamp == nil && !v.DeletionRequested() {
		return nil
	}
	return fmt.Errorf("volume %s is being deleted; if it is in the trash afterwards, holdfast volumes restore %s brings it back", v.Name, v.Name)
}

// planPersistentVolume selects the existing PersistentVolume of the volume, or describes a new one.
func (o *observed) planPersistentVolume(b *binding, want Adoption) error {
	if len(o.naming) > 1 {
		return fmt.Errorf("volume %s is named by %d PersistentVolumes, %s and %s: delete all but one; with the reclaim policy Retain the data stays",
			o.volume.Name, len(o.naming), o.naming[0].Name, o.naming[1].Name)
	}
	if len(o.naming) == 1 {
		return o.reuse(b, o.naming[0], want)
	}
	name, err := o.freeName()
	if err != nil {
		return err
	}
	class, err := o.class(want)
	if err != nil {
		return err
	}
	if class.missing {
		b.notes = append(b.notes, fmt.Sprintf("StorageClass %s does not exist; its name is written anyway", class.name))
	}
	modes := want.AccessModes
	if len(modes) == 0 && o.claim != nil {
		modes = o.claim.Spec.AccessModes
	}
	b.newPV = true
	b.pv, err = persistent.Of(o.volume, persistent.Options{
		Name: name, Claim: o.reference(), ClassName: class.name, FSType: class.fsType, MountOptions: class.mountOptions,
		AccessModes: modes, ReclaimPolicy: want.ReclaimPolicy, Store: o.store,
	})
	return err
}

// reference returns the claimRef. With the UID of an existing claim, no other claim can be bound; Kubernetes adds the
// UID of a new one.
func (o *observed) reference() core.ObjectReference {
	ref := core.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: o.namespace, Name: o.name}
	if o.claim != nil {
		ref.UID = o.claim.UID
	}
	return ref
}

// freeName returns the name of a new PersistentVolume. A claim in phase Lost can only be bound to one with the name
// that it has.
func (o *observed) freeName() (string, error) {
	names := persistent.NamesFor(o.volume)
	if o.claim != nil && o.claim.Spec.VolumeName != "" {
		if lost := o.claim.Spec.VolumeName; !slices.Contains(names, lost) || o.taken[lost] {
			return "", fmt.Errorf("claim %s has PersistentVolume %s, which is not that of volume %s (that would be %s): choose another claim",
				o.claimKey(), lost, o.volume.Name, strings.Join(names, " or "))
		}
		return o.claim.Spec.VolumeName, nil
	}
	for _, name := range names {
		if !o.taken[name] {
			return name, nil
		}
	}
	return "", fmt.Errorf("PersistentVolume %s exists and is not that of volume %s: look at it with kubectl get persistentvolume %s -o yaml, and delete it if it is not needed",
		names[0], o.volume.Name, names[0])
}

const leaveOut = "leave that out, or delete the PersistentVolume; with the reclaim policy Retain the data stays"

// reuse selects the existing PersistentVolume of the volume, unless another claim has it.
func (o *observed) reuse(b *binding, n naming, want Adoption) error {
	b.pv = n.DeepCopy()
	own := n.claim != nil && n.claim.Namespace == o.namespace && n.claim.Name == o.name
	switch {
	case n.DeletionTimestamp != nil:
		return fmt.Errorf("PersistentVolume %s, which names volume %s, is being deleted; wait until it is gone and try again", n.Name, o.volume.Name)
	case n.bound() && !own:
		return fmt.Errorf("volume %s is that of claim %s/%s, by PersistentVolume %s", o.volume.Name, n.claim.Namespace, n.claim.Name, n.Name)
	case persistent.Leads(n.PersistentVolume) != persistent.LeadsTo(o.volume):
		return o.astray(n)
	case want.StorageClass != nil && *want.StorageClass != n.Spec.StorageClassName:
		return fmt.Errorf("PersistentVolume %s, which names volume %s, has the storage class %q, and %q is requested: %s",
			n.Name, o.volume.Name, n.Spec.StorageClassName, *want.StorageClass, leaveOut)
	case len(want.AccessModes) > 0 && !sameModes(want.AccessModes, n.Spec.AccessModes):
		return fmt.Errorf("PersistentVolume %s, which names volume %s, has the access modes %v, and %v are requested: %s",
			n.Name, o.volume.Name, n.Spec.AccessModes, want.AccessModes, leaveOut)
	case own && (want.ReclaimPolicy == "" || want.ReclaimPolicy == n.Spec.PersistentVolumeReclaimPolicy):
		return nil
	case own:
		return b.patchPersistentVolume(map[string]any{"persistentVolumeReclaimPolicy": want.ReclaimPolicy})
	}
	b.notes = append(b.notes, fmt.Sprintf("PersistentVolume %s exists already (%s) and is used again", n.Name, cmp.Or(n.Status.Phase, core.VolumePending)))
	return o.rebind(b, want)
}

// astray is the error for a PersistentVolume by which no pod reaches the volume where it is now, such as one of a pool that
// was moved to another node.
func (o *observed) astray(n naming) error {
	remove := "it"
	if n.bound() {
		remove = fmt.Sprintf("claim %s and it", o.claimKey())
	}
	return fmt.Errorf("PersistentVolume %s, which names volume %s, leads to %s, and the volume is reached at %s; this cannot be changed in a PersistentVolume. "+
		"Set it to Retain (kubectl patch persistentvolume %s -p '{\"spec\":{\"persistentVolumeReclaimPolicy\":\"Retain\"}}'), delete %s, and run this again",
		n.Name, o.volume.Name, persistent.Leads(n.PersistentVolume), persistent.LeadsTo(o.volume), n.Name, remove)
}

// rebind sets claimRef and reclaim policy of the PersistentVolume, so that a released one is bound to the claim.
func (o *observed) rebind(b *binding, want Adoption) error {
	ref := o.reference()
	old := b.pv.Spec.ClaimRef
	policy := cmp.Or(want.ReclaimPolicy, core.PersistentVolumeReclaimRetain)
	waits := old != nil && old.Namespace == ref.Namespace && old.Name == ref.Name && old.UID == ""
	if waits && b.pv.Spec.PersistentVolumeReclaimPolicy == policy {
		return nil
	}
	next := map[string]any{
		"apiVersion": ref.APIVersion, "kind": ref.Kind, "namespace": ref.Namespace, "name": ref.Name, "uid": nil, "resourceVersion": nil,
	}
	if ref.UID != "" {
		next["uid"] = ref.UID
	}
	return b.patchPersistentVolume(map[string]any{"claimRef": next, "persistentVolumeReclaimPolicy": policy})
}

func (b *binding) patchPersistentVolume(spec map[string]any) (err error) {
	b.pvPatch, err = json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": b.pv.ResourceVersion}, "spec": spec})
	return err
}

func sameModes(a, b []core.PersistentVolumeAccessMode) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
