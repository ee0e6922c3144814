package volume

import (
	"time"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

const (
	// DefaultGarbageAge is how old a volume without a PersistentVolume and without a claim becomes.
	DefaultGarbageAge = 10 * time.Minute
	// DefaultGarbageEvery is how often such volumes are looked for.
	DefaultGarbageEvery = time.Minute
)

// boundAnnotation is on a volume that has had a PersistentVolume. It is never garbage: when its PersistentVolume is
// gone, its data is meant to stay.
const boundAnnotation = "holdfast.dev/bound"

// candidate is a volume for a claim that has never been seen with its PersistentVolume.
type candidate struct {
	*v1beta1.Volume
	persistent bool                        // it has a PersistentVolume
	claim      *core.PersistentVolumeClaim // nil if it is gone; not read of one that is persistent or young
}

// isCandidate leaves out what is younger than every, the time between two looks: most volumes have a PersistentVolume
// by then.
func isCandidate(v *v1beta1.Volume, now time.Time, every time.Duration) bool {
	return v.Unreadable() == nil && v.DeletionTimestamp == nil && v.Spec.Labels[v1beta1.ClaimNameLabel] != "" && v.Labels[v1beta1.AdoptedLabel] == "" &&
		v.Annotations[boundAnnotation] == "" && now.Sub(v.CreationTimestamp.Time) > every
}

// isOld says whether the age of a candidate allows to delete it.
func isOld(v *v1beta1.Volume, now time.Time, age time.Duration) bool {
	return now.Sub(v.CreationTimestamp.Time) > age
}

// garbagePlan is what to do with the candidates.
type garbagePlan struct {
	bind   []*v1beta1.Volume // to annotate as bound
	remove []*v1beta1.Volume
}

// planGarbage decides about volumes that were requested and may never have become a PersistentVolume. One is removed
// when its claim is gone or has another volume.
func planGarbage(candidates []candidate, now time.Time, age time.Duration) (p garbagePlan) {
	for _, c := range candidates {
		switch {
		case c.persistent:
			p.bind = append(p.bind, c.Volume)
		case isOld(c.Volume, now, age) && !c.mayBind():
			p.remove = append(p.remove, c.Volume)
		}
	}
	return p
}

// mayBind says whether the claim may still become bound to the volume.
func (c candidate) mayBind() bool {
	return c.claim != nil && (c.claim.Spec.VolumeName == "" || c.claim.Spec.VolumeName == c.Spec.Labels[v1beta1.PersistentVolumeLabel])
}
