package admin

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

var sure = Deletion{Yes: true}

// has returns whether the volume exists and is not being deleted.
func (r *rig) has(name string) bool {
	r.Helper()
	v := wait.Get(r, r.kinds.Volumes().Get, name)
	return v != nil && v.DeletionTimestamp == nil && v.Spec.Deletion == nil
}

func TestDelete_RequestsAsTheControllerInTheNameOfTheUserAndDeletesAsTheUser(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.node("a")
		v := r.volume("pvc-1", func(v *v1beta1.Volume) { v.Finalizers = append(v.Finalizers, "test/stay") })
		ctx, cancel := context.WithCancel(r.Context())
		done, begun := make(chan error, 1), time.Now()
		go func() { done <- r.DeleteVolume(ctx, "pvc-1", Deletion{Yes: true, Reason: "left over"}) }()
		r.prints("waiting: a removes Volume pvc-1")
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			r.Errorf("it ended with %v", err)
		}
		now := wait.Get(r, r.kinds.Volumes().Get, "pvc-1")
		d := now.Spec.Deletion
		if !now.DeletionRequested() || d.UID != v.UID || d.RequestedBy != user || d.Reason != "left over" || !d.RequestedAt.Time.Equal(begun) || now.DeletionTimestamp == nil {
			r.Errorf("the object is %+v with %+v", now.ObjectMeta, d)
		}
		r.wrote("PATCH volumes/pvc-1 as system:serviceaccount:storage:holdfast-controller", "DELETE volumes/pvc-1")
	})
}

func TestDelete_SaysWhatGoesAndWhetherItCanComeBack(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent("")
		r.node("a", inTrash("pvc-1", "", time.Now().Add(-time.Hour)), inTrash("pvc-2", "", time.Now().Add(-time.Hour))) // older ones
		r.volume("pvc-1")
		r.must(r.DeleteVolume(r.Context(), "pvc-1", sure))
		r.says("Volume pvc-1: 1Gi, 256Mi used, on a in pool fast", "Ready", "last use: not known", "made for shop/orders, which is gone",
			"volume pvc-1 is deleted", "in the trash of a until "+stamp(time.Now().Add(24*time.Hour)), "holdfast volumes restore pvc-1")
		if r.has("pvc-1") {
			r.Error("it is still there")
		}
		r.volume("pvc-2", func(v *v1beta1.Volume) { v.Finalizers = nil }) // so that deleting it puts nothing into the trash
		r.must(r.DeleteVolume(r.Context(), "pvc-2", sure))
		r.says("volume pvc-2 is deleted", "the trash of a does not show it", "removed for good")
	})
}

func TestDelete_ThatTheAgentDoesNotCarryOutFails(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.unprotectedAgent()
		r.node("a", inTrash("pvc-1", "", time.Now().Add(-time.Hour))) // an older one
		v := r.volume("pvc-1")
		r.snapshot("s")
		unheard := []string{"was not carried out", "written again", "Protected"}
		r.refuses(r.DeleteVolume(r.Context(), "pvc-1", sure), append(unheard, "Volume pvc-1")...)
		r.refuses(r.DeleteSnapshot(r.Context(), "s", sure), append(unheard, "Snapshot s")...)
		if strings.Contains(r.out.String(), "is deleted") {
			r.Errorf("it says\n%s", r.out)
		}
		r.refuses(r.awaitGone(r.Context(), volumes, recordOf(v)), unheard...) // where the watch misses the time between the objects
	})
}

// pv returns a PersistentVolume of volume pvc-1.
func (r *rig) pv(name string, change ...func(*core.PersistentVolume)) {
	r.Helper()
	pv := aPersistentVolume(name)
	pv.Spec.CSI = &core.CSIPersistentVolumeSource{Driver: "csi.holdfast.dev", VolumeHandle: "pvc-1"}
	for _, f := range change {
		f(pv)
	}
	check.Got(r.core.CoreV1().PersistentVolumes().Create(r.Context(), pv, metav1.CreateOptions{}))(r)
}

func (r *rig) aClaim(name string, change ...func(*core.PersistentVolumeClaim)) *core.PersistentVolumeClaim {
	r.Helper()
	return check.Got(r.core.CoreV1().PersistentVolumeClaims("shop").Create(r.Context(), aClaim(name, change...), metav1.CreateOptions{}))(r)
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

func byHand(pv *core.PersistentVolume) {
	pv.Spec.PersistentVolumeSource = core.PersistentVolumeSource{NFS: &core.NFSVolumeSource{Server: "10.0.0.7", Path: "/pvc-1"}}
}

func onServer(v *v1beta1.Volume) {
	v.Spec.Node, v.Spec.Shared = "team.main.nfs.holdfast.dev", true
	v.Status.Access = &v1beta1.VolumeAccess{NFS: &v1beta1.VolumeNFS{Server: "10.0.0.7", Path: "/pvc-1"}}
}

func TestDelete_OfAVolumeThatAClaimHasIsRefused(t *testing.T) {
	for name, change := range map[string]func(*core.PersistentVolume){
		"bound":                      func(*core.PersistentVolume) {},
		"kept for it":                func(pv *core.PersistentVolume) { pv.Spec.ClaimRef.UID = "" },
		"by the NFS provisioner":     plainPV,
		"by hand":                    byHand,
		"released says another hand": func(pv *core.PersistentVolume) { pv.Status.Phase = core.VolumeReleased },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.node("a")
				r.volume("pvc-1", onServer)
				r.pv("pv-1", boundTo(r.aClaim("orders")), change)
				r.refuses(r.DeleteVolume(r.Context(), "pvc-1", sure), "claim shop/orders", "pv-1", "kubectl delete pvc -n shop orders")
				r.untouched()
			})
		})
	}
}

func TestDelete_OfAVolumeWhoseClaimHasLostItsPersistentVolumeIsRefused(t *testing.T) {
	labelled := func(v *v1beta1.Volume) { v.Spec.Labels[v1beta1.PersistentVolumeLabel] = "pv-7" }
	for name, test := range map[string]struct {
		volume func(*v1beta1.Volume)
		claim  string // not always the one that it was made for
		names  string // the PersistentVolume of the claim
	}{
		"of its name":        {func(v *v1beta1.Volume) { v.Spec.Labels = nil }, "orders", "pvc-1"},
		"by its label":       {labelled, "orders", "pv-7"},
		"adopted by another": {labelled, "invoices", "pvc-1"},
		"made for none":      {func(v *v1beta1.Volume) { v.Spec.ClaimRef = nil }, "orders", "pvc-1"},
		"a plain NFS volume": {plain, "orders", "pvc-plain"},
		"a released one":     {func(*v1beta1.Volume) {}, "orders", "released"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.node("a")
				r.volume("pvc-1", test.volume)
				r.aClaim(test.claim, func(c *core.PersistentVolumeClaim) { c.Spec.VolumeName, c.Status.Phase = test.names, core.ClaimLost })
				if test.names == "released" {
					r.pv("released", func(pv *core.PersistentVolume) {
						pv.Spec.ClaimRef = &core.ObjectReference{Namespace: "shop", Name: "orders", UID: "of the one before"}
						pv.Status.Phase = core.VolumeReleased
					})
				}
				r.refuses(r.DeleteVolume(r.Context(), "pvc-1", sure), "claim shop/"+test.claim+" (Lost)", "PersistentVolume "+test.names,
					"holdfast volumes adopt pvc-1 --claim shop/"+test.claim, "kubectl delete pvc -n shop "+test.claim)
				r.untouched()
			})
		})
	}
}

func TestDelete_OfAVolumeWhoseNameAnotherVolumesPersistentVolumeHasIsNotRefused(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent("")
		r.node("a")
		r.volume("pvc-1")
		c := r.aClaim("orders", func(c *core.PersistentVolumeClaim) { c.Spec.VolumeName, c.Status.Phase = "pvc-1", core.ClaimBound })
		r.pv("pvc-1", boundTo(c), func(pv *core.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "pvc-2" })
		r.must(r.DeleteVolume(r.Context(), "pvc-1", sure))
		r.says("made for shop/orders, which exists and has PersistentVolume pvc-1 (Bound)")
	})
}

func TestDelete_OfAReleasedVolumeNamesThePersistentVolumeThatIsLeft(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent("")
		r.node("a")
		r.volume("pvc-1")
		c := r.aClaim("orders") // another claim of this name
		r.pv("pv-1", boundTo(c), func(pv *core.PersistentVolume) {
			pv.Spec.ClaimRef.UID, pv.Status.Phase = "of the one before", core.VolumeReleased
			pv.Status.LastPhaseTransitionTime = new(metav1.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC))
		})
		r.pv("pv-other", func(pv *core.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "pvc-2" })
		r.must(r.DeleteVolume(r.Context(), "pvc-1", sure))
		r.says("last use: until 2026-11-20 08:00Z", "made for shop/orders, which exists and has no volume (Pending)", "kubectl delete persistentvolume pv-1")
	})
}

func TestDelete_AsksForConfirmationOfTheName(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.node("a")
		r.volume("pvc-1")
		for answer, want := range map[string]string{"yes\n": `the answer was "yes`, "": "the answer was", "pvc-2": "pvc-2"} {
			r.Confirm = func(_ context.Context, question string) (string, error) {
				if !strings.Contains(question, "pvc-1") || !strings.Contains(r.out.String(), "1Gi") {
					r.Errorf("asked %q after\n%s", question, r.out)
				}
				return answer, nil
			}
			r.refuses(r.DeleteVolume(r.Context(), "pvc-1", Deletion{}), "pvc-1 is not deleted", want)
		}
		r.Confirm = func(context.Context, string) (string, error) { return "", errors.New("hung up") }
		r.refuses(r.DeleteVolume(r.Context(), "pvc-1", Deletion{}), "pvc-1 is not deleted", "hung up")
		r.Confirm = nil
		r.refuses(r.DeleteVolume(r.Context(), "pvc-1", Deletion{}), "no terminal", "--yes")
		r.untouched()
		r.agent("")
		r.Confirm = func(context.Context, string) (string, error) { return " pvc-1\n", nil }
		r.must(r.DeleteVolume(r.Context(), "pvc-1", Deletion{}))
	})
}

func TestDelete_OfWhatWasTakenIntoUseWhileTheUserWasAskedIsRefused(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.node("a")
		r.volume("pvc-1")
		r.snapshot("s")
		r.Confirm = func(context.Context, string) (string, error) {
			r.pv("pv-1", boundTo(r.aClaim("orders")))
			return "pvc-1", nil
		}
		r.refuses(r.DeleteVolume(r.Context(), "pvc-1", Deletion{}), "claim shop/orders", "kubectl delete pvc -n shop orders")
		r.Confirm = func(context.Context, string) (string, error) {
			r.ofVolumeSnapshot("csi.holdfast.dev", ofS, nil, r.volumeSnapshot())
			return "s", nil
		}
		r.refuses(r.DeleteSnapshot(r.Context(), "s", Deletion{}), "VolumeSnapshot shop/nightly")
		r.untouched()
	})
}

func TestDelete_WithoutARightSaysWhichIsMissing(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.node("a")
		r.volume("pvc-1")
		for refused, says := range map[[2]string][]string{
			{"impersonate", `User "alice" cannot impersonate`}: {"verb impersonate on serviceaccounts", "name holdfast-controller", "in namespace storage", "kubectl create role"},
			{"delete volumes", "no"}:                           {"verb delete on volumes.holdfast.dev", "kubectl auth can-i"},
			{"GET persistentvolumes", "no"}:                    {"PersistentVolumes could not be listed", "in use"},
			{"GET persistentvolumeclaims", "no"}:               {"claims could not be listed", "in use"},
		} {
			r.door.refused = map[string]string{refused[0]: refused[1]}
			r.refuses(r.DeleteVolume(r.Context(), "pvc-1", sure), says...)
		}
		r.door.refused = map[string]string{"PATCH pvc-1": "admission: not on Fridays"}
		if err := r.DeleteVolume(r.Context(), "pvc-1", sure); err == nil || strings.Contains(err.Error(), "verb impersonate") || !strings.Contains(err.Error(), "Fridays") {
			r.Errorf("what forbids something else: %v", err)
		}
		r.untouched()
	})
}

func TestDelete_GoesOnWhereAnotherWasInterrupted(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.agent("")
		r.node("a")
		v := r.volume("pvc-1")
		v.Spec.Deletion = &v1beta1.DeletionRequest{UID: v.UID, RequestedBy: "bob", RequestedAt: metav1.NowMicro()}
		check.Got(r.kinds.Volumes().Update(r.Context(), v, metav1.UpdateOptions{}))(r)
		r.must(r.DeleteVolume(r.Context(), "pvc-1", sure))
		r.wrote("DELETE volumes/pvc-1")
	})
}

func TestDelete_OnANodeThatIsSilentIsRecordedAndSaysSo(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.node("a")
		r.volume("pvc-1", func(v *v1beta1.Volume) {
			v.Status.Conditions = []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionUnknown, Reason: v1beta1.ReasonNodeDown, Message: "node a is silent"}}
		})
		r.refuses(r.DeleteVolume(r.Context(), "pvc-1", sure), "has not finished in time", "NodeDown: node a is silent", "The request stays")
		if r.has("pvc-1") {
			r.Error("nothing was requested")
		}
	})
}

func TestDelete_IsRefusedWithTheReason(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.node("a", inTrash("pvc-1", "", time.Now()))
		r.volume("v") // of claim shop/orders
		r.volume("pvc-none", func(v *v1beta1.Volume) { v.Spec.ClaimRef = nil })
		r.volume("copied", func(v *v1beta1.Volume) { // with its request
			v.Spec.Deletion = &v1beta1.DeletionRequest{UID: "of another", RequestedBy: "bob", RequestedAt: metav1.NowMicro()}
		})
		r.snapshot("s")
		r.snapshot("t", func(s *v1beta1.Snapshot) { s.Spec.SourceRef = v1beta1.FromVolume("gone") })
		in := func(namespace string) Deletion { return Deletion{Yes: true, Namespace: namespace} }
		for _, test := range []struct {
			remove func(context.Context, string, Deletion) error
			name   string
			with   Deletion
			says   []string
		}{
			{r.DeleteVolume, "pvc-1", sure, []string{"in the trash of a until", "holdfast volumes restore pvc-1"}},
			{r.DeleteVolume, "pvc-2", sure, []string{"no volume pvc-2", "holdfast volumes list"}},
			{r.DeleteVolume, "../x", sure, []string{`"../x"`}},
			{r.DeleteVolume, "v", Deletion{Yes: true, Reason: strings.Repeat("é", 1025)}, []string{"1025 characters", "1024"}},
			{r.DeleteVolume, "copied", sure, []string{"UID of another", "kubectl delete volumes.holdfast.dev copied", "written again"}},
			{r.DeleteVolume, "v", in("bank"), []string{"shop/orders", "namespace bank"}},
			{r.DeleteVolume, "pvc-none", in("shop"), []string{"for no claim", "namespace shop"}},
			{r.DeleteSnapshot, "u", sure, []string{"no snapshot u", "holdfast snapshots list"}},
			{r.DeleteSnapshot, "s", in("bank"), []string{"shop/orders", "namespace bank"}},
			{r.DeleteSnapshot, "t", in("shop"), []string{"volume gone", "is not known"}},
		} {
			r.refuses(test.remove(r.Context(), test.name, test.with), test.says...)
		}
		r.volume("pvc-1")
		r.pv("pv-1", func(pv *core.PersistentVolume) { pv.Status.Phase = core.VolumeAvailable })
		r.refuses(r.DeleteVolume(r.Context(), "pvc-1", sure), "at any moment", "Available", "kubectl delete persistentvolume pv-1")
		r.untouched()
		r.agent("")
		r.must(r.DeleteSnapshot(r.Context(), "s", in("shop")))
	})
}
