package upgrade

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	apps "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestUpgrade_GivesTheSameResultWhereverItsControllerIsKilled(t *testing.T) {
	for name, c := range map[string]struct {
		spec     v1beta1.StorageUpgradeSpec
		broken   v1beta1.Image
		phase    v1beta1.UpgradePhase
		runs     v1beta1.Image
		pods     string // that were made after the first ones
		reported string
	}{
		"rolling": {
			v1beta1.StorageUpgradeSpec{Image: newImage}, "", v1beta1.UpgradeCompleted, newImage, "a=v2 b=v2 c=v2", rolling,
		},
		"offline": {
			v1beta1.StorageUpgradeSpec{Image: newImage, Strategy: v1beta1.OfflineUpgrade},
			"", v1beta1.UpgradeCompleted, newImage, "a=v2 b=v2 c=v2",
			offline,
		},
		"rolled back": {
			v1beta1.StorageUpgradeSpec{Image: newImage},
			newImage, v1beta1.UpgradeFailed, oldImage, "a=v2 b=v2 b=v1 a=v1",
			"PullImage PauseCluster Preflight UpgradeInit Nodes RollBack UpgradeFailed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			attempt := func(t *testing.T, at int) (writes int) {
				inBubble(t, func(t *testing.T, r *rig) {
					r.broken = string(c.broken)
					r.database()
					r.live()
					first := len(r.replace)
					r.upgrade("up", c.spec)
					writes = r.dying(at, "up")
					r.controller(r.api.Config())
					r.untilEnd("of the upgrade", func() bool { return r.over("up") })
					if u := r.get("up"); u.Status.Phase != c.phase || u.Status.Completed != (c.phase == v1beta1.UpgradeCompleted) {
						t.Errorf("it ended as %+v", u.Status)
					}
					r.wantRuns(c.runs)
					r.mu.Lock()
					made := strings.Join(r.replace[first:], " ")
					r.mu.Unlock()
					if made != c.pods {
						t.Errorf("the node pods made were %s, want %s", made, c.pods)
					}
					reported := r.reported()
					for reason := range strings.FieldsSeq(c.reported) {
						if reported["up "+reason] != 1 {
							t.Errorf("event %s was written %d times", reason, reported["up "+reason])
						}
						delete(reported, "up "+reason)
					}
					if len(reported) > 0 {
						t.Errorf("there are also %v", reported)
					}
					r.wantDatabase(1)
				})
				return writes
			}
			for at := range attempt(t, 0) {
				if at%5 != 0 && !hostfs.All() {
					continue
				}
				t.Run(fmt.Sprintf("at write %d", at+1), func(t *testing.T) {
					t.Parallel()
					attempt(t, at+1)
				})
			}
		})
	}
}

func (r *rig) wantDatabase(replicas int32) {
	r.Helper()
	set := check.Got(r.kubernetes.AppsV1().StatefulSets("team").Get(r.Context(), "db", metav1.GetOptions{}))(r)
	if ptr.Deref(set.Spec.Replicas, 1) != replicas || set.Annotations[v1beta1.ReplicasAnnotation] != "" {
		r.Errorf("the database has %d replicas, and the annotations %v", *set.Spec.Replicas, set.Annotations)
	}
}

// ended runs a controller until an upgrade has ended, and returns it.
func (r *rig) ended(name string, spec v1beta1.StorageUpgradeSpec, phase v1beta1.UpgradePhase) *v1beta1.StorageUpgrade {
	r.Helper()
	r.live()
	r.upgrade(name, spec)
	r.controller(r.api.Config())
	r.untilEnd("of the upgrade", func() bool { return r.over(name) })
	u := r.get(name)
	if u.Status.Phase != phase {
		r.Errorf("it ended as %+v", u.Status)
	}
	return u
}

func TestUpgrade_OfAStatefulSetController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(s *v1beta1.StorageClusterSpec) { s.Controller.Kind = v1beta1.AsStatefulSet })
		r.ended("up", v1beta1.StorageUpgradeSpec{Image: newImage}, v1beta1.UpgradeCompleted)
		r.wantRuns(newImage) // and there is no Deployment beside it
	})
}

func TestUpgrade_SecondWaitsAndThenContinues(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.live()
		r.upgrade("up", v1beta1.StorageUpgradeSpec{Image: newImage})
		r.upgrade("up2", v1beta1.StorageUpgradeSpec{Version: "v3"})
		r.controller(r.api.Config())
		wait.Until(r, "the wait of the second", func() bool {
			u := r.get("up2")
			return u.Status.Phase == v1beta1.UpgradeWaiting && strings.Contains(meta.FindStatusCondition(u.Status.Conditions, v1beta1.CompleteCondition).Message, "upgrade up runs first")
		})
		wait.Until(r, "the end of both", func() bool { return r.over("up") && r.over("up2") })
		if u := r.get("up2"); u.Status.From != newImage || u.Status.Phase != v1beta1.UpgradeCompleted {
			t.Errorf("the second is %+v", u.Status)
		}
		r.wantRuns("registry:5000/holdfast:v3")
	})
}

func TestUpgrade_DeletedMidwayIsRolledBackByAnotherController(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.broken = string(newImage)
		r.database()
		r.live()
		r.upgrade("up", v1beta1.StorageUpgradeSpec{Image: newImage, Strategy: v1beta1.OfflineUpgrade})
		stop := r.controller(r.api.Config())
		wait.Until(r, "the node that does not become ready", func() bool { return r.get("up").Status.Node == "b" })
		stop()
		check.OK(t, r.client.HoldfastV1beta1().StorageUpgrades().Delete(t.Context(), "up", metav1.DeleteOptions{}))
		r.controller(r.api.Config())
		wait.Until(r, "the upgrade being gone", func() bool { return r.get("up") == nil })
		r.wantRuns(oldImage)
		r.wantDatabase(1)
	})
}

func TestUpgrade_ReleaseThatDoesNotRegisterStopsAtTheFirstNode(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.deaf = string(newImage)
		u := r.ended("up", v1beta1.StorageUpgradeSpec{Image: newImage}, v1beta1.UpgradeFailed)
		failed := meta.FindStatusCondition(u.Status.Conditions, v1beta1.FailedCondition)
		if failed == nil || !strings.Contains(failed.Message, "registered with the kubelet of node a") {
			t.Errorf("it ended as %+v", u.Status)
		}
		r.mu.Lock()
		made := strings.Join(r.replace, " ")
		r.mu.Unlock()
		if made != "a=v1 b=v1 c=v1 a=v2 a=v1" {
			t.Errorf("the node pods made were %s", made)
		}
		r.wantRuns(oldImage)
	})
}

func TestUpgrade_ReplacesTheControllerOnceAndThenCostsNoRequests(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		deployment := func() *apps.Deployment {
			t.Helper()
			return check.Got(r.kubernetes.AppsV1().Deployments(ours).Get(t.Context(), v1beta1.ControllerName, metav1.GetOptions{}))(t)
		}
		before := deployment().Generation
		r.ended("up", v1beta1.StorageUpgradeSpec{Image: newImage}, v1beta1.UpgradeCompleted)
		r.api.Requests()
		r.upgrade("up2", v1beta1.StorageUpgradeSpec{Image: newImage})
		wait.Until(r, "the end of the second", func() bool { return r.over("up2") })
		for what, n := range r.api.Requests() {
			if strings.Contains(what, "pods") && !strings.HasPrefix(what, "list pods") || what == "update storageupgrades/status" && n > 1 || strings.HasPrefix(what, "apply") {
				t.Errorf("%s: %d times", what, n)
			}
		}
		cluster := check.Got(r.client.HoldfastV1beta1().StorageClusters().Get(t.Context(), "holdfast", metav1.GetOptions{}))(t)
		r.install(cluster) // as the cluster's own loop goes on
		if d := deployment(); d.Generation != before+1 || render.ImageOf(&d.Spec.Template.Spec) != newImage {
			t.Errorf("it went from generation %d to %d, and runs %s", before, d.Generation, render.ImageOf(&d.Spec.Template.Spec))
		}
	})
}

func TestUpgrade_AppliesTheConfigurationThatItsNodePodsAreFor(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		// The spec changes while its own controller stands by.
		r.patch(`{"spec":{"pools":[{"name":"default"},{"name":"more","path":"/srv/more"}]}}`)
		r.ended("up", v1beta1.StorageUpgradeSpec{Image: newImage}, v1beta1.UpgradeCompleted)
		client := dynamic.NewForConfigOrDie(r.api.Config())
		get := func(group, resource string) *unstructured.Unstructured {
			at := client.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}).Namespace(ours)
			return check.Got(at.Get(t.Context(), v1beta1.NodeName, metav1.GetOptions{}))(t)
		}
		if c := render.ReadCarried(get("", "configmaps"), get("apps", "daemonsets")); c == nil || len(c.Pools) != 2 {
			t.Errorf("the nodes' configuration and their DaemonSet are %+v", c)
		}
	})
}

func TestUpgrade_OfTheStorageClusterThatRemains(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		clusters := r.client.HoldfastV1beta1().StorageClusters()
		// The first is held by its finalizer, as when its volumes still exist.
		r.patch(`{"metadata":{"finalizers":["test/held"]}}`)
		check.OK(t, clusters.Delete(t.Context(), "holdfast", metav1.DeleteOptions{}))
		next := &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "next"}, Spec: v1beta1.StorageClusterSpec{Images: v1beta1.Images{Holdfast: oldImage}}}
		check.Got(clusters.Create(t.Context(), next, metav1.CreateOptions{}))(t)
		r.ended("up", v1beta1.StorageUpgradeSpec{Image: newImage}, v1beta1.UpgradeCompleted)
		if c := check.Got(clusters.Get(t.Context(), "next", metav1.GetOptions{}))(t); c.Spec.Images.Holdfast != newImage {
			t.Errorf("the cluster is %+v", c.Spec)
		}
	})
}

func TestUpgrade_PauseOfOneThatDoesNotExistEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.patch(`{"metadata":{"annotations":{"` + v1beta1.PausedByAnnotation + `":"ghost"}},"spec":{"paused":true}}`)
		r.controller(r.api.Config())
		wait.Until(r, "the end of the pause", func() bool {
			c, err := r.client.HoldfastV1beta1().StorageClusters().Get(t.Context(), "holdfast", metav1.GetOptions{})
			return err == nil && !c.Spec.Paused && c.Annotations[v1beta1.PausedByAnnotation] == ""
		})
	})
}

func TestController_IncompleteConfigurationIsRefused(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("it was taken")
	}
}
