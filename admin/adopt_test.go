package admin

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// withClasses creates the classes of an installation.
func (r *rig) withClasses() *rig {
	r.Helper()
	for _, c := range seen().classes {
		_, err := r.core.StorageV1().StorageClasses().Create(r.Context(), &c, metav1.CreateOptions{})
		r.must(err)
	}
	return r
}

var adoption = Adoption{Volume: "pvc-1", Claim: "shop/orders"}

func (r *rig) bound(pv string) {
	r.Helper()
	c, err := r.core.CoreV1().PersistentVolumeClaims("shop").Get(r.Context(), "orders", metav1.GetOptions{})
	r.must(err)
	if c.Status.Phase != core.ClaimBound || c.Spec.VolumeName != pv {
		r.Errorf("the claim is %s to %q", c.Status.Phase, c.Spec.VolumeName)
	}
}

func TestAdopt_MakesTheClaimAndRepeatedDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).withClasses()
		r.binder()
		r.volume("pvc-1")
		for range 2 {
			r.must(r.Adopt(t.Context(), adoption))
		}
		r.bound("pvc-1")
		r.says("claim shop/orders is bound to volume pvc-1 (1Gi on a) by PersistentVolume pvc-1")
		if w, want := r.door.written(), []string{"POST v1/persistentvolumes", "POST shop/persistentvolumeclaims"}; !slices.Equal(w, want) {
			t.Errorf("it wrote %q", w)
		}
	})
}

func TestAdopt_BindsAClaimThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).withClasses()
		r.binder()
		r.volume("pvc-1")
		c := r.aClaim("orders")
		r.must(r.Adopt(t.Context(), adoption))
		r.bound("pvc-1")
		pv, err := r.core.CoreV1().PersistentVolumes().Get(t.Context(), "pvc-1", metav1.GetOptions{})
		r.must(err)
		if pv.Spec.ClaimRef.UID != c.UID || pv.Spec.PersistentVolumeReclaimPolicy != core.PersistentVolumeReclaimRetain {
			t.Errorf("it is for %+v, %s", pv.Spec.ClaimRef, pv.Spec.PersistentVolumeReclaimPolicy)
		}
	})
}

func TestAdopt_UsesAReleasedPersistentVolumeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).withClasses()
		r.binder()
		r.volume("pvc-1")
		r.pv("pv-1", func(pv *core.PersistentVolume) {
			pv.Spec.ClaimRef = &core.ObjectReference{Namespace: "shop", Name: "gone", UID: "of one that is gone", ResourceVersion: "3"}
			pv.Status.Phase = core.VolumeReleased
		})
		r.must(r.Adopt(t.Context(), adoption))
		r.bound("pv-1")
		r.says("PersistentVolume pv-1 exists already (Released)")
	})
}

func TestAdopt_MakesNothingWhereTheClaimCannotBeMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).withClasses()
		r.volume("pvc-1")
		r.door.refused["POST persistentvolumeclaims"] = "exceeded quota"
		r.refuses(r.Adopt(t.Context(), adoption), "shop/orders cannot be created, and nothing is changed", "exceeded quota")
		r.untouched()
	})
}

func TestAdopt_OfAVolumeWhoseDeletionWasRequestedMeanwhileIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).withClasses()
		v := r.volume("pvc-1")
		r.door.after = map[string]func(){"POST v1/persistentvolumes": func() {
			v.Spec.Deletion = &v1beta1.DeletionRequest{UID: v.UID, RequestedBy: "bob", RequestedAt: metav1.NowMicro()}
			_, err := r.kinds.Volumes().Update(t.Context(), v, metav1.UpdateOptions{})
			r.must(err)
		}}
		r.refuses(r.Adopt(t.Context(), adoption), "volume pvc-1 is being deleted", "kubectl delete persistentvolume pvc-1")
		if w := r.door.written(); !slices.Equal(w, []string{"POST v1/persistentvolumes"}) {
			t.Errorf("it wrote %q", w)
		}
	})
}

func TestAdopt_OfAVolumeWithoutAllOfItsContentIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).withClasses()
		r.volume("pvc-1", func(v *v1beta1.Volume) {
			v.Spec.PopulatedBy = v1beta1.PopulatedByPod
			v.Status.Copy = &v1beta1.VolumeCopy{Phase: v1beta1.CopyCopying, BytesDone: 1, BytesTotal: 4}
		})
		r.refuses(r.Adopt(t.Context(), adoption), "does not have all of its content yet (Copying 25%)", "wait until")
		r.untouched()
	})
}

func TestAdopt_OfAClaimThatIsNotBoundInTimeSaysWhereToLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).withClasses() // no controller binds claims
		r.volume("pvc-1")
		r.refuses(r.Adopt(t.Context(), adoption), "has not finished in time", "kubectl describe pvc -n shop orders")
	})
}

func TestAdopt_PrintsWhatItWouldMakeAndMakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).withClasses()
		r.volume("pvc-1")
		want := adoption
		want.Print = true
		r.must(r.Adopt(t.Context(), want))
		r.untouched()
		var kinds []string
		for part := range strings.SplitSeq(r.out.String(), "---\n") {
			if strings.TrimSpace(part) == "" {
				continue
			}
			o, kind, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(part), nil, nil)
			if err != nil {
				t.Fatalf("%v\n%s", err, part)
			}
			kinds = append(kinds, kind.Kind)
			if strings.Contains(part, "status:") || strings.Contains(part, "null") {
				t.Errorf("there is more in it than is meant:\n%s", part)
			}
			checkPrinted(t, o)
		}
		if !slices.Equal(kinds, []string{"PersistentVolume", "PersistentVolumeClaim"}) {
			t.Errorf("printed were %q", kinds)
		}
	})
}

func checkPrinted(t *testing.T, o runtime.Object) {
	t.Helper()
	switch o := o.(type) {
	case *core.PersistentVolume:
		if o.Name != "pvc-1" || o.Spec.CSI.VolumeHandle != "pvc-1" || o.Spec.ClaimRef.Name != "orders" || o.Spec.ClaimRef.UID != "" {
			t.Errorf("the PersistentVolume is %+v", o)
		}
	case *core.PersistentVolumeClaim:
		if o.Namespace != "shop" || o.Name != "orders" || o.Spec.VolumeName != "pvc-1" || o.Spec.Resources.Requests.Storage().Value() != gib {
			t.Errorf("the claim is %+v", o)
		}
	}
}

func TestAdopt_PrintsAsCommandsWhatApplyCannotDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).withClasses()
		r.volume("pvc-1")
		r.aClaim("orders")
		r.pv("pv-1", func(pv *core.PersistentVolume) { pv.Status.Phase = core.VolumeAvailable })
		want := adoption
		want.Print = true
		r.must(r.Adopt(t.Context(), want))
		r.untouched()
		r.says("# PersistentVolume pv-1 exists already", "# first: kubectl patch persistentvolume pv-1 --type merge --patch '{", "# then: kubectl patch persistentvolumeclaim -n shop orders --type merge --patch '{")
		for line := range strings.Lines(r.out.String()) {
			if !strings.HasPrefix(line, "# ") {
				t.Errorf("%q is no comment", line)
			}
		}
	})
}

func TestAdopt_OfAPlainVolumeTakesTheServersOptionsAndData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).withClasses()
		r.binder()
		r.volume("pvc-1", plain)
		server := &v1beta1.NFSServer{ObjectMeta: metav1.ObjectMeta{Name: "main"}, Spec: v1beta1.NFSServerSpec{MountOptions: []string{"nconnect=4", "nfsvers=4.1"}}}
		_, err := r.kinds.NFSServers("team").Create(t.Context(), server, metav1.CreateOptions{})
		r.must(err)
		r.pv("other", func(pv *core.PersistentVolume) {
			plainPV(pv)
			pv.Annotations["nfs.holdfast.dev/volume"], pv.Annotations["nfs.holdfast.dev/store"] = "pvc-9", "store-1"
		})
		r.must(r.Adopt(t.Context(), adoption))
		r.bound("pvc-plain")
		pv, err := r.core.CoreV1().PersistentVolumes().Get(t.Context(), "pvc-plain", metav1.GetOptions{})
		r.must(err)
		if !slices.Equal(pv.Spec.MountOptions, []string{"hard", "noresvport", "nconnect=4", "nfsvers=4.1"}) || pv.Annotations["nfs.holdfast.dev/store"] != "store-1" || pv.Spec.StorageClassName != "plain" {
			t.Errorf("it is %+v with %v", pv.Spec, pv.Annotations)
		}
	})
}

func TestAdopt_OfAnOddCallIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.node("a", inTrash("pvc-2", "", time.Now()))
		for want, a := range map[string]Adoption{
			`"orders": it must be NAMESPACE/NAME`: {Volume: "pvc-1", Claim: "orders"},
			`"Shop/orders"`:                       {Volume: "pvc-1", Claim: "Shop/orders"},
			`volume "../x"`:                       {Volume: "../x", Claim: "shop/orders"},
			`reclaim policy "Keep"`:               {Volume: "pvc-1", Claim: "shop/orders", ReclaimPolicy: "Keep"},
			"no volume pvc-1":                     adoption,
			"in the trash of a until":             {Volume: "pvc-2", Claim: "shop/orders"},
		} {
			r.refuses(r.Adopt(t.Context(), a), want)
		}
		r.untouched()
	})
}
