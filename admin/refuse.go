package admin

import (
	"context"
	"fmt"
	"slices"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/admin/persistent"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// facts are the lines that are shown before a volume is deleted, and the objects that remain.
type facts struct {
	lines []string
	left  []string // names of PersistentVolumes
}

// volumeFacts fails for a volume that a claim has or may be bound to.
func (a *Admin) volumeFacts(ctx context.Context, name string) (facts, error) {
	var f facts
	v, err := a.Holdfast.HoldfastV1beta1().Volumes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return f, a.absent(ctx, name, err)
	}
	all, err := a.persistentVolumes(ctx)
	if err != nil {
		return f, err
	}
	found, err := a.namingOf(ctx, v, all)
	if err != nil {
		return f, err
	}
	for _, n := range found {
		if err := n.inUse(name); err != nil {
			return f, err
		}
		f.lines = append(f.lines, fmt.Sprintf("last use: until %s, when PersistentVolume %s was released", released(n), n.Name))
		if n.Spec.PersistentVolumeReclaimPolicy != core.PersistentVolumeReclaimDelete {
			f.left = append(f.left, n.Name)
		}
	}
	if err := a.refuseClaimed(ctx, v, all, found); err != nil {
		return f, err
	}
	if len(found) == 0 {
		f.lines = append(f.lines, "last use: not known, no PersistentVolume names it")
	}
	made := v.Spec.ClaimRef
	if made == nil {
		f.lines = append(f.lines, "claim: not known")
		return f, nil
	}
	switch claim, err := a.claim(ctx, made.Namespace, made.Name); {
	case err != nil:
		return f, err
	case claim != nil:
		has := "no volume"
		if claim.Spec.VolumeName != "" {
			has = "PersistentVolume " + claim.Spec.VolumeName
		}
		f.lines = append(f.lines, fmt.Sprintf("claim: made for %s, which exists and has %s (%s)", made, has, claim.Status.Phase))
	default:
		f.lines = append(f.lines, fmt.Sprintf("claim: made for %s, which is gone", made))
	}
	return f, nil
}

// refuseClaimed fails if a claim names a PersistentVolume of the volume that is gone or is not bound to it: adopting the
// volume gives the claim its data again. After another adoption, it may be another claim than the one in spec.claimRef.
func (a *Admin) refuseClaimed(ctx context.Context, v *v1beta1.Volume, all []core.PersistentVolume, found []naming) error {
	names := slices.DeleteFunc(persistent.NamesFor(v), func(name string) bool { // it is of another volume, or among those found
		return slices.ContainsFunc(all, func(pv core.PersistentVolume) bool { return pv.Name == name })
	})
	for _, n := range found {
		names = append(names, n.Name)
	}
	claims, err := a.Kubernetes.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("the claims could not be listed, which say whether the volume is in use: %w", err)
	}
	for i := range claims.Items {
		c := &claims.Items[i]
		if c.Spec.VolumeName != "" && slices.Contains(names, c.Spec.VolumeName) {
			return fmt.Errorf("volume %s is that of claim %s/%s (%s), by its PersistentVolume %s, which is gone or not bound to it: holdfast volumes adopt %s --claim %s/%s repairs that. "+
				"If the data is not needed, delete the claim first (kubectl delete pvc -n %s %s)",
				v.Name, c.Namespace, c.Name, c.Status.Phase, c.Spec.VolumeName, v.Name, c.Namespace, c.Name, c.Namespace, c.Name)
		}
	}
	return nil
}

// inUse fails if the PersistentVolume is bound, or may be bound at any time.
func (n naming) inUse(volume string) error {
	switch {
	case n.bound():
		return fmt.Errorf("volume %s is that of claim %s/%s, by PersistentVolume %s: delete the claim instead (kubectl delete pvc -n %s %s)",
			volume, n.claim.Namespace, n.claim.Name, n.Name, n.claim.Namespace, n.claim.Name)
	case !n.released():
		return fmt.Errorf("volume %s can be bound to a claim at any moment by PersistentVolume %s, which is %s: delete that first (kubectl delete persistentvolume %s)",
			volume, n.Name, n.Status.Phase, n.Name)
	}
	return nil
}

func released(n naming) string {
	if t := n.Status.LastPhaseTransitionTime; t != nil {
		return stamp(t.Time)
	}
	return "some time ago"
}
