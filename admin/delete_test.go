package admin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

var sure = Deletion{Yes: true}

// has returns whether the volume exists and is not being deleted.
func (r *rig) has(name string) bool {
	r.Helper()
	v, err := r.kinds.Volumes().Get(r.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false
	}
	r.must(err)
	return v.DeletionTimestamp == nil && v.Spec.Deletion == nil
}

// untouched expects that nothing was written.
func (r *rig) untouched() {
	r.Helper()
	if w := r.door.written(); len(w) > 0 {
		r.Errorf("it wrote %q", w)
	}
}

func TestDelete_RequestsAsTheControllerInTheNameOfTheUserAndDeletesAsTheUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.node("a")
		v := r.volume("pvc-1", func(v *v1beta1.Volume) { v.Finalizers = append(v.Finalizers, "test/stay") })
		ctx, cancel := context.WithCancel(t.Context())
		done, begun := make(chan error, 1), time.Now()
		go func() { done <- r.DeleteVolume(ctx, "pvc-1", Deletion{Yes: true, Reason: "left over"}) }()
		r.prints("waiting: a removes Volume pvc-1")
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
		now, err := r.kinds.Volumes().Get(t.Context(), "pvc-1", metav1.GetOptions{})
		r.must(err)
		d := now.Spec.Deletion
		if !now.DeletionRequested() || d.UID != v.UID || d.RequestedBy != user || d.Reason != "left over" || !d.RequestedAt.Time.Equal(begun) || now.DeletionTimestamp == nil {
			t.Errorf("the object is %+v with %+v", now.ObjectMeta, d)
		}
		want := []string{"PATCH volumes/pvc-1 as system:serviceaccount:storage:holdfast-controller", "DELETE volumes/pvc-1"}
		if w := r.door.written(); !slices.Equal(w, want) {
			t.Errorf("it wrote %q, want %q", w, want)
		}
	})
}

func TestDelete_SaysWhatGoesAndHowToGetItBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.agent("")
		r.node("a", inTrash("pvc-1", "", time.Now().Add(-time.Hour))) // an older one
		r.volume("pvc-1")
		r.must(r.DeleteVolume(t.Context(), "pvc-1", sure))
		r.says("Volume pvc-1: 1Gi, 256Mi used, on a in pool fast", "Ready", "last use: not known", "made for shop/orders, which is gone",
			"volume pvc-1 is deleted", "in the trash of a until "+stamp(time.Now().Add(24*time.Hour)), "holdfast volumes restore pvc-1")
		if r.has("pvc-1") {
			t.Error("it is still there")
		}
	})
}

func TestDelete_SaysThatThereIsNoTrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.agent("")
		r.node("a", inTrash("pvc-1", "", time.Now().Add(-time.Hour)))     // an older one
		r.volume("pvc-1", func(v *v1beta1.Volume) { v.Finalizers = nil }) // so that deleting it puts nothing into the trash
		r.must(r.DeleteVolume(t.Context(), "pvc-1", sure))
		r.says("volume pvc-1 is deleted", "the trash of a does not show it", "removed for good")
	})
}

func TestDelete_ThatTheAgentDoesNotCarryOutFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.unprotectedAgent()
		r.node("a", inTrash("pvc-1", "", time.Now().Add(-time.Hour))) // an older one
		v := r.volume("pvc-1")
		r.snapshot("s")
		unheard := []string{"was not carried out", "written again", "Protected"}
		r.refuses(r.DeleteVolume(t.Context(), "pvc-1", sure), append(unheard, "Volume pvc-1")...)
		r.refuses(r.DeleteSnapshot(t.Context(), "s", sure), append(unheard, "Snapshot s")...)
		if strings.Contains(r.out.String(), "is deleted") {
			t.Errorf("it says\n%s", r.out)
		}
		r.refuses(r.awaitGone(t.Context(), volumes, recordOf(v)), unheard...) // where the watch misses the time between the objects
	})
}

// pv returns a PersistentVolume of volume pvc-1.
func (r *rig) pv(name string, change ...func(*core.PersistentVolume)) *core.PersistentVolume {
	r.Helper()
	pv := &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pv.Spec.CSI = &core.CSIPersistentVolumeSource{Driver: "csi.holdfast.dev", VolumeHandle: "pvc-1"}
	pv.Spec.NodeAffinity = onNode("a")
	pv.Spec.PersistentVolumeReclaimPolicy = core.PersistentVolumeReclaimRetain
	pv.Spec.AccessModes = []core.PersistentVolumeAccessMode{core.ReadWriteOnce}
	pv.Spec.Capacity = core.ResourceList{core.ResourceStorage: *bytesOfSize(gib)}
	pv.Spec.StorageClassName = "holdfast"
	for _, f := range change {
		f(pv)
	}
	pv, err := r.core.CoreV1().PersistentVolumes().Create(r.Context(), pv, metav1.CreateOptions{})
	r.must(err)
	return pv
}

func (r *rig) aClaim(name string, change ...func(*core.PersistentVolumeClaim)) *core.PersistentVolumeClaim {
	r.Helper()
	c := &core.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	c.Spec.StorageClassName = new("holdfast")
	c.Spec.AccessModes = []core.PersistentVolumeAccessMode{core.ReadWriteOnce}
	c.Spec.Resources.Requests = core.ResourceList{core.ResourceStorage: *bytesOfSize(gib)}
	c.Status.Phase = core.ClaimPending
	for _, f := range change {
		f(c)
	}
	c, err := r.core.CoreV1().PersistentVolumeClaims("shop").Create(r.Context(), c, metav1.CreateOptions{})
	r.must(err)
	return c
}

func boundTo(c *core.PersistentVolumeClaim) func(*core.PersistentVolume) {
	return func(pv *core.PersistentVolume) {
		pv.Spec.ClaimRef = &core.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: c.Namespace, Name: c.Name, UID: c.UID}
		pv.Status.Phase = core.VolumeBound
	}
}

func plainPV(pv *core.PersistentVolume) {
	pv.Spec.PersistentVolumeSource = core.PersistentVolumeSource{NFS: &core.NFSVolumeSource{Server: "10.0.0.9", Path: "/other"}}
	pv.Annotations = map[string]string{
		"pv.kubernetes.io/provisioned-by": "nfs.holdfast.dev", "nfs.holdfast.dev/server": "team/main", "nfs.holdfast.dev/volume": "pvc-1",
	}
}

func handmadePV(pv *core.PersistentVolume) {
	pv.Spec.PersistentVolumeSource = core.PersistentVolumeSource{NFS: &core.NFSVolumeSource{Server: "10.0.0.7", Path: "/pvc-1"}}
}

func byHand(server, path string) func(*core.PersistentVolume, *core.PersistentVolumeClaim) {
	return func(pv *core.PersistentVolume, _ *core.PersistentVolumeClaim) {
		handmadePV(pv)
		pv.Spec.NFS.Server, pv.Spec.NFS.Path = server, path
	}
}

func onServer(v *v1beta1.Volume) {
	v.Spec.Node, v.Spec.Shared = "team.main.nfs.holdfast.dev", true
	v.Status.Access = &v1beta1.VolumeAccess{NFS: &v1beta1.VolumeNFS{Server: "10.0.0.7", Path: "/pvc-1"}}
}

func TestDelete_OfAVolumeThatAClaimHasIsRefused(t *testing.T) {
	for name, change := range map[string]func(*core.PersistentVolume, *core.PersistentVolumeClaim){
		"bound":                      func(*core.PersistentVolume, *core.PersistentVolumeClaim) {},
		"kept for it":                func(pv *core.PersistentVolume, _ *core.PersistentVolumeClaim) { pv.Spec.ClaimRef.UID = "" },
		"by the NFS provisioner":     func(pv *core.PersistentVolume, _ *core.PersistentVolumeClaim) { plainPV(pv) },
		"by hand":                    func(pv *core.PersistentVolume, _ *core.PersistentVolumeClaim) { handmadePV(pv) },
		"by hand, below the export":  byHand("10.0.0.7", "/pvc-1/app"),
		"by hand, with a slash":      byHand("10.0.0.7", "/pvc-1/"),
		"by hand, by a DNS name":     byHand("nfs-main.team.svc", "/pvc-1"),
		"by hand, by a balancer":     byHand("192.0.2.7", "//pvc-1/./"),
		"released says another hand": func(pv *core.PersistentVolume, _ *core.PersistentVolumeClaim) { pv.Status.Phase = core.VolumeReleased },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.node("a")
				r.volume("pvc-1", onServer)
				c := r.aClaim("orders")
				r.pv("pv-1", boundTo(c), func(pv *core.PersistentVolume) { change(pv, c) })
				r.refuses(r.DeleteVolume(t.Context(), "pvc-1", sure), "claim shop/orders", "pv-1", "kubectl delete pvc -n shop orders")
				r.untouched()
			})
		})
	}
}

func TestDelete_OfAVolumeWhoseClaimHasLostItsPersistentVolumeIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		volume func(*v1beta1.Volume)
		claim  string // not always the one that it was made for
		names  string // the PersistentVolume of the claim
		pv     func(*rig)
	}{
		"of its name":        {func(v *v1beta1.Volume) { v.Spec.Labels = nil }, "orders", "pvc-1", nil},
		"by its label":       {func(v *v1beta1.Volume) { v.Spec.Labels[v1beta1.PersistentVolumeLabel] = "pv-7" }, "orders", "pv-7", nil},
		"adopted by another": {func(v *v1beta1.Volume) { v.Spec.Labels[v1beta1.PersistentVolumeLabel] = "pv-7" }, "invoices", "pvc-1", nil},
		"made for none":      {func(v *v1beta1.Volume) { v.Spec.ClaimRef = nil }, "orders", "pvc-1", nil},
		"a plain NFS volume": {plain, "orders", "pvc-plain", nil},
		"a released one": {func(*v1beta1.Volume) {}, "orders", "pv-1", func(r *rig) {
			r.pv("pv-1", func(pv *core.PersistentVolume) {
				pv.Spec.ClaimRef = &core.ObjectReference{Namespace: "shop", Name: "orders", UID: "of the one before"}
				pv.Status.Phase = core.VolumeReleased
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.node("a")
				r.volume("pvc-1", test.volume)
				r.aClaim(test.claim, func(c *core.PersistentVolumeClaim) { c.Spec.VolumeName, c.Status.Phase = test.names, core.ClaimLost })
				if test.pv != nil {
					test.pv(r)
				}
				key := "shop/" + test.claim
				r.refuses(r.DeleteVolume(t.Context(), "pvc-1", sure), "claim "+key+" (Lost)", "PersistentVolume "+test.names, "holdfast volumes adopt pvc-1 --claim "+key,
					"kubectl delete pvc -n shop "+test.claim)
				r.untouched()
			})
		})
	}
}

func TestDelete_OfAVolumeWhoseNameAnotherVolumesPersistentVolumeHasIsNotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.agent("")
		r.node("a")
		r.volume("pvc-1")
		c := r.aClaim("orders", func(c *core.PersistentVolumeClaim) { c.Spec.VolumeName, c.Status.Phase = "pvc-1", core.ClaimBound })
		r.pv("pvc-1", boundTo(c), func(pv *core.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "pvc-2" })
		r.must(r.DeleteVolume(t.Context(), "pvc-1", sure))
		r.says("made for shop/orders, which exists and has PersistentVolume pvc-1 (Bound)")
	})
}

func TestDelete_OfAVolumeThatAClaimMayGetIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.node("a")
		r.volume("pvc-1")
		r.pv("pv-1", func(pv *core.PersistentVolume) { pv.Status.Phase = core.VolumeAvailable })
		r.refuses(r.DeleteVolume(t.Context(), "pvc-1", sure), "at any moment", "Available", "kubectl delete persistentvolume pv-1")
		r.untouched()
	})
}

func TestDelete_OfAReleasedVolumeNamesThePersistentVolumeThatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.agent("")
		r.node("a")
		r.volume("pvc-1")
		c := r.aClaim("orders") // another claim of this name
		r.pv("pv-1", boundTo(c), func(pv *core.PersistentVolume) {
			pv.Spec.ClaimRef.UID, pv.Status.Phase = "of the one before", core.VolumeReleased
			pv.Status.LastPhaseTransitionTime = new(metav1.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC))
		})
		r.pv("pv-other", func(pv *core.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "pvc-2" })
		r.must(r.DeleteVolume(t.Context(), "pvc-1", sure))
		r.says("last use: until 2026-11-20 08:00Z", "made for shop/orders, which exists and has no volume (Pending)", "kubectl delete persistentvolume pv-1")
	})
}

func TestDelete_AsksForConfirmationOfTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.node("a")
		r.volume("pvc-1")
		for answer, want := range map[string]string{"yes\n": `the answer was "yes`, "": "the answer was", "pvc-2": "pvc-2"} {
			r.Confirm = func(_ context.Context, question string) (string, error) {
				if !strings.Contains(question, "pvc-1") || !strings.Contains(r.out.String(), "1Gi") {
					t.Errorf("asked %q after\n%s", question, r.out)
				}
				return answer, nil
			}
			r.refuses(r.DeleteVolume(t.Context(), "pvc-1", Deletion{}), "pvc-1 is not deleted", want)
		}
		r.Confirm = func(context.Context, string) (string, error) { return "", errors.New("hung up") }
		r.refuses(r.DeleteVolume(t.Context(), "pvc-1", Deletion{}), "pvc-1 is not deleted", "hung up")
		r.Confirm = nil
		r.refuses(r.DeleteVolume(t.Context(), "pvc-1", Deletion{}), "no terminal", "--yes")
		r.untouched()
		r.agent("")
		r.Confirm = func(context.Context, string) (string, error) { return " pvc-1\n", nil }
		r.must(r.DeleteVolume(t.Context(), "pvc-1", Deletion{}))
	})
}

func TestDelete_OfWhatWasTakenIntoUseWhileTheUserWasAskedIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.node("a")
		r.volume("pvc-1")
		r.snapshot("s")
		r.Confirm = func(context.Context, string) (string, error) {
			r.pv("pv-1", boundTo(r.aClaim("orders")))
			return "pvc-1", nil
		}
		r.refuses(r.DeleteVolume(t.Context(), "pvc-1", Deletion{}), "claim shop/orders", "kubectl delete pvc -n shop orders")
		r.Confirm = func(context.Context, string) (string, error) {
			r.ofVolumeSnapshot("csi.holdfast.dev", map[string]any{"snapshotHandle": "s"}, nil, r.volumeSnapshot())
			return "s", nil
		}
		r.refuses(r.DeleteSnapshot(t.Context(), "s", Deletion{}), "VolumeSnapshot shop/nightly")
		r.untouched()
	})
}

func TestDelete_WithoutARightSaysWhichIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.node("a")
		r.volume("pvc-1")
		r.door.refused["impersonate"] = `serviceaccounts "holdfast-controller" is forbidden: User "alice" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "storage"`
		r.refuses(r.DeleteVolume(t.Context(), "pvc-1", sure),
			"verb impersonate on serviceaccounts", "name holdfast-controller", "in namespace storage", "kubectl create role")
		r.untouched()
		r.door.refused = map[string]string{"PATCH pvc-1": "admission: not on Fridays"}
		if err := r.DeleteVolume(t.Context(), "pvc-1", sure); err == nil || strings.Contains(err.Error(), "verb impersonate") || !strings.Contains(err.Error(), "Fridays") {
			t.Errorf("what forbids something else: %v", err)
		}
		r.door.refused = map[string]string{"delete volumes": "no"}
		r.refuses(r.DeleteVolume(t.Context(), "pvc-1", sure), "verb delete on volumes.holdfast.dev", "kubectl auth can-i")
		r.untouched()
		r.door.refused = map[string]string{"GET persistentvolumes": "no"}
		r.refuses(r.DeleteVolume(t.Context(), "pvc-1", sure), "PersistentVolumes could not be listed", "in use")
		r.door.refused = map[string]string{"GET persistentvolumeclaims": "no"}
		r.refuses(r.DeleteVolume(t.Context(), "pvc-1", sure), "claims could not be listed", "in use")
		if !r.has("pvc-1") {
			t.Error("it was touched all the same")
		}
	})
}

func TestDelete_GoesOnWhereAnotherWasInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.agent("")
		r.node("a")
		v := r.volume("pvc-1")
		v.Spec.Deletion = &v1beta1.DeletionRequest{UID: v.UID, RequestedBy: "bob", RequestedAt: metav1.NowMicro()}
		_, err := r.kinds.Volumes().Update(t.Context(), v, metav1.UpdateOptions{})
		r.must(err)
		r.must(r.DeleteVolume(t.Context(), "pvc-1", sure))
		if w := r.door.written(); !slices.Equal(w, []string{"DELETE volumes/pvc-1"}) {
			t.Errorf("it wrote %q", w)
		}
	})
}

func TestDelete_OfACopyThatBroughtARequestIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.volume("pvc-1", func(v *v1beta1.Volume) {
			v.Spec.Deletion = &v1beta1.DeletionRequest{UID: "of another", RequestedBy: "bob", RequestedAt: metav1.NowMicro()}
		})
		r.refuses(r.DeleteVolume(t.Context(), "pvc-1", sure), "UID of another", "kubectl delete volumes.holdfast.dev pvc-1", "written again")
		r.untouched()
	})
}

func TestDelete_OnANodeThatIsSilentIsRecordedAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.node("a")
		r.volume("pvc-1", func(v *v1beta1.Volume) {
			v.Status.Conditions = []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionUnknown, Reason: v1beta1.ReasonNodeDown, Message: "node a is silent"}}
		})
		r.refuses(r.DeleteVolume(t.Context(), "pvc-1", sure), "has not finished in time", "NodeDown: node a is silent", "The request stays")
		if r.has("pvc-1") {
			t.Error("nothing was requested")
		}
	})
}

func TestDelete_OfWhatIsNotThereSaysWhereItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.node("a", inTrash("pvc-1", "", time.Now()))
		r.refuses(r.DeleteVolume(t.Context(), "pvc-1", sure), "in the trash of a until", "holdfast volumes restore pvc-1")
		r.refuses(r.DeleteVolume(t.Context(), "pvc-2", sure), "no volume pvc-2", "holdfast volumes list")
		r.refuses(r.DeleteVolume(t.Context(), "../x", sure), `"../x"`, "1 to 63")
		r.refuses(r.DeleteVolume(t.Context(), "pvc-1", Deletion{Yes: true, Reason: strings.Repeat("é", 1025)}), "1025 characters", "1024")
		r.refuses(r.DeleteSnapshot(t.Context(), "s", sure), "no snapshot s", "holdfast snapshots list")
	})
}

func TestDelete_OfAnotherNamespaceIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.node("a")
		r.volume("v") // of claim shop/orders
		r.volume("pvc-none", func(v *v1beta1.Volume) { v.Spec.ClaimRef = nil })
		r.snapshot("s")
		r.snapshot("t", func(s *v1beta1.Snapshot) { s.Spec.SourceRef = v1beta1.FromVolume("gone") })
		in := func(namespace string) Deletion { return Deletion{Yes: true, Namespace: namespace} }
		r.refuses(r.DeleteVolume(t.Context(), "v", in("bank")), "shop/orders", "namespace bank")
		r.refuses(r.DeleteVolume(t.Context(), "pvc-none", in("shop")), "for no claim", "namespace shop")
		r.refuses(r.DeleteSnapshot(t.Context(), "s", in("bank")), "shop/orders", "namespace bank")
		r.refuses(r.DeleteSnapshot(t.Context(), "t", in("shop")), "volume gone", "is not known")
		r.untouched()
		r.agent("")
		r.must(r.DeleteSnapshot(t.Context(), "s", in("shop")))
	})
}
