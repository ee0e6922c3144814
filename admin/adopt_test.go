package admin

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// adopting calls f with a rig that has the classes of an installation, in a bubble.
func adopting(t *testing.T, f func(*rig)) {
	t.Helper()
	inBubble(t, func(r *rig) {
		for _, c := range seen().classes {
			check.Got(r.core.StorageV1().StorageClasses().Create(r.Context(), &c, metav1.CreateOptions{}))(r)
		}
		f(r)
	})
}

var adoption = Adoption{Volume: "pvc-1", Claim: "shop/orders"}

// bound expects that the claim is bound to the PersistentVolume, which it returns.
func (r *rig) bound(pv string) *core.PersistentVolume {
	r.Helper()
	c := check.Got(r.core.CoreV1().PersistentVolumeClaims("shop").Get(r.Context(), "orders", metav1.GetOptions{}))(r)
	if c.Status.Phase != core.ClaimBound || c.Spec.VolumeName != pv {
		r.Errorf("the claim is %s to %q", c.Status.Phase, c.Spec.VolumeName)
	}
	return check.Got(r.core.CoreV1().PersistentVolumes().Get(r.Context(), pv, metav1.GetOptions{}))(r)
}

func TestAdopt_MakesTheClaimAndRepeatedDoesNothing(t *testing.T) {
	adopting(t, func(r *rig) {
		r.binder()
		r.volume("pvc-1")
		for range 2 {
			r.must(r.Adopt(r.Context(), adoption))
		}
		r.bound("pvc-1")
		r.says("claim shop/orders is bound to volume pvc-1 (1Gi on a) by PersistentVolume pvc-1")
		r.wrote("POST v1/persistentvolumes", "POST shop/persistentvolumeclaims")
	})
}

func TestAdopt_BindsAClaimThatWaits(t *testing.T) {
	adopting(t, func(r *rig) {
		r.binder()
		r.volume("pvc-1")
		c := r.aClaim("orders")
		r.must(r.Adopt(r.Context(), adoption))
		if pv := r.bound("pvc-1"); pv.Spec.ClaimRef.UID != c.UID || pv.Spec.PersistentVolumeReclaimPolicy != core.PersistentVolumeReclaimRetain {
			r.Errorf("it is for %+v, %s", pv.Spec.ClaimRef, pv.Spec.PersistentVolumeReclaimPolicy)
		}
	})
}

func TestAdopt_UsesAReleasedPersistentVolumeAgain(t *testing.T) {
	adopting(t, func(r *rig) {
		r.binder()
		r.volume("pvc-1")
		r.pv("pv-1", func(pv *core.PersistentVolume) {
			pv.Spec.ClaimRef = &core.ObjectReference{Namespace: "shop", Name: "gone", UID: "of one that is gone", ResourceVersion: "3"}
			pv.Status.Phase = core.VolumeReleased
		})
		r.must(r.Adopt(r.Context(), adoption))
		r.bound("pv-1")
		r.says("PersistentVolume pv-1 exists already (Released)")
	})
}

// broken is an output that fails.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestAdopt_WritesNothingIfItsNotesCannotBePrinted(t *testing.T) {
	adopting(t, func(r *rig) {
		r.binder()
		r.volume("pvc-1")
		r.pv("pv-1", func(pv *core.PersistentVolume) { pv.Status.Phase = core.VolumeReleased })
		r.Out = broken{}
		r.refuses(r.Adopt(r.Context(), adoption), "broken pipe")
		r.untouched()
	})
}

func TestAdopt_EndsWithTheReason(t *testing.T) {
	adopting(t, func(r *rig) { // no controller binds claims
		v := r.volume("pvc-1", func(v *v1beta1.Volume) {
			v.Spec.PopulatedBy = v1beta1.PopulatedByPod
			v.Status.Copy = &v1beta1.VolumeCopy{Phase: v1beta1.CopyCopying, BytesDone: 1, BytesTotal: 4}
		})
		r.refuses(r.Adopt(r.Context(), adoption), "does not have all of its content yet (Copying 25%)", "wait until")
		v.Spec.PopulatedBy, v.Status.Copy = "", nil
		v = check.Got(r.kinds.Volumes().Update(r.Context(), v, metav1.UpdateOptions{}))(r)
		r.door.refused["POST persistentvolumeclaims"] = "exceeded quota"
		r.refuses(r.Adopt(r.Context(), adoption), "shop/orders cannot be created, and nothing is changed", "exceeded quota")
		r.untouched()
		r.door.refused = nil
		r.door.after = map[string]func(){"POST v1/persistentvolumes": func() {
			v.Spec.Deletion = &v1beta1.DeletionRequest{UID: v.UID, RequestedBy: "bob", RequestedAt: metav1.NowMicro()}
			check.Got(r.kinds.Volumes().Update(r.Context(), v, metav1.UpdateOptions{}))(r)
		}}
		r.refuses(r.Adopt(r.Context(), adoption), "volume pvc-1 is being deleted", "kubectl delete persistentvolume pvc-1")
		r.wrote("POST v1/persistentvolumes")
	})
	adopting(t, func(r *rig) {
		r.volume("pvc-1")
		r.refuses(r.Adopt(r.Context(), adoption), "has not finished in time", "kubectl describe pvc -n shop orders")
	})
}

// printed are the documents that an adoption prints, which makes nothing.
func (r *rig) printed() []string {
	r.Helper()
	want := adoption
	want.Print = true
	r.must(r.Adopt(r.Context(), want))
	r.untouched()
	return strings.Split(r.out.String(), "---\n")
}

func TestAdopt_PrintsWhatItWouldMakeAndMakesNothing(t *testing.T) {
	adopting(t, func(r *rig) {
		r.volume("pvc-1")
		var kinds []string
		for _, part := range r.printed() {
			if strings.TrimSpace(part) == "" {
				continue
			}
			o, kind, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(part), nil, nil)
			if err != nil || strings.Contains(part, "status:") || strings.Contains(part, "null") {
				r.Fatalf("%v, or there is more in it than is meant:\n%s", err, part)
			}
			kinds = append(kinds, kind.Kind)
			switch o := o.(type) {
			case *core.PersistentVolume:
				if o.Name != "pvc-1" || o.Spec.CSI.VolumeHandle != "pvc-1" || o.Spec.ClaimRef.Name != "orders" || o.Spec.ClaimRef.UID != "" {
					r.Errorf("the PersistentVolume is %+v", o)
				}
			case *core.PersistentVolumeClaim:
				if o.Namespace != "shop" || o.Name != "orders" || o.Spec.VolumeName != "pvc-1" || o.Spec.Resources.Requests.Storage().Value() != gib {
					r.Errorf("the claim is %+v", o)
				}
			}
		}
		if !slices.Equal(kinds, []string{"PersistentVolume", "PersistentVolumeClaim"}) {
			r.Errorf("printed were %q", kinds)
		}
	})
}

func TestAdopt_PrintsAsCommandsWhatApplyCannotDo(t *testing.T) {
	adopting(t, func(r *rig) {
		r.volume("pvc-1")
		r.aClaim("orders")
		r.pv("pv-1", func(pv *core.PersistentVolume) { pv.Status.Phase = core.VolumeAvailable })
		for line := range strings.Lines(strings.Join(r.printed(), "")) {
			if !strings.HasPrefix(line, "# ") {
				r.Errorf("%q is no comment", line)
			}
		}
		r.says("# PersistentVolume pv-1 exists already", "# first: kubectl patch persistentvolume pv-1 --type merge --patch '{", "# then: kubectl patch persistentvolumeclaim -n shop orders --type merge --patch '{")
	})
}

func TestAdopt_OfAPlainVolumeTakesTheServersOptionsAndData(t *testing.T) {
	adopting(t, func(r *rig) {
		r.binder()
		r.volume("pvc-1", plain)
		server := &v1beta1.NFSServer{ObjectMeta: metav1.ObjectMeta{Name: "main"}, Spec: v1beta1.NFSServerSpec{MountOptions: []string{"nconnect=4", "nfsvers=4.1"}}}
		check.Got(r.kinds.NFSServers("team").Create(r.Context(), server, metav1.CreateOptions{}))(r)
		r.pv("other", plainPV, func(pv *core.PersistentVolume) {
			pv.Annotations["nfs.holdfast.dev/volume"], pv.Annotations["nfs.holdfast.dev/store"] = "pvc-9", "store-1"
		})
		r.must(r.Adopt(r.Context(), adoption))
		pv := r.bound("pvc-plain")
		if !slices.Equal(pv.Spec.MountOptions, []string{"hard", "noresvport", "nconnect=4", "nfsvers=4.1"}) || pv.Annotations["nfs.holdfast.dev/store"] != "store-1" || pv.Spec.StorageClassName != "plain" {
			r.Errorf("it is %+v with %v", pv.Spec, pv.Annotations)
		}
	})
}

func TestAdopt_OfAnOddCallIsRefused(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.node("a", inTrash("pvc-2", "", time.Now()))
		for want, a := range map[string]Adoption{
			`"orders": it must be NAMESPACE/NAME`: {Volume: "pvc-1", Claim: "orders"},
			`"Shop/orders"`:                       {Volume: "pvc-1", Claim: "Shop/orders"},
			`volume ../x`:                         {Volume: "../x", Claim: "shop/orders"},
			"no volume pvc-1":                     adoption,
			"in the trash of a until":             {Volume: "pvc-2", Claim: "shop/orders"},
		} {
			r.refuses(r.Adopt(r.Context(), a), want)
		}
		r.untouched()
	})
}
