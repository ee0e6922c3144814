package upgrade

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
)

// town is a cluster with things that use volumes.
type town struct {
	*testing.T
	kubernetes.Interface
}

func newTown(t *testing.T) *town {
	t.Helper()
	return &town{t, kubernetes.NewForConfigOrDie(miniapi.New(t).Config())}
}

func (w *town) must(_ any, err error) {
	w.Helper()
	check.OK(w, err)
}

// volume is bound to a claim of the namespace team. A driver with nfs. is that of the external provisioner.
func (w *town) volume(driver, claim string) {
	w.Helper()
	v := &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + claim}}
	v.Spec.ClaimRef = &core.ObjectReference{Namespace: "team", Name: claim}
	if strings.HasPrefix(driver, "nfs.") {
		v.Annotations = map[string]string{provisionedBy: driver}
	} else {
		v.Spec.CSI = &core.CSIPersistentVolumeSource{Driver: driver}
	}
	w.must(w.CoreV1().PersistentVolumes().Create(w.Context(), v, metav1.CreateOptions{}))
}

func using(claim string) []core.Volume {
	return []core.Volume{{Name: "data", VolumeSource: core.VolumeSource{PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
}

func (w *town) deployment(name string, replicas int32, volumes []core.Volume) {
	w.Helper()
	d := &apps.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}}
	d.Spec.Replicas, d.Spec.Template.Spec.Volumes = &replicas, volumes
	w.must(w.AppsV1().Deployments("team").Create(w.Context(), d, metav1.CreateOptions{}))
	set := &apps.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name + "-rs", OwnerReferences: owner("Deployment", name)}}
	w.must(w.AppsV1().ReplicaSets("team").Create(w.Context(), set, metav1.CreateOptions{}))
}

func owner(kind, name string) []metav1.OwnerReference {
	if kind == "" {
		return nil
	}
	group := "apps/v1"
	if kind == "Job" {
		group = "batch/v1"
	}
	return []metav1.OwnerReference{{APIVersion: group, Kind: kind, Name: name, Controller: new(true), UID: "1"}}
}

func (w *town) pod(namespace, name string, by []metav1.OwnerReference, volumes []core.Volume, phase core.PodPhase) {
	w.Helper()
	p := &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: by}, Status: core.PodStatus{Phase: phase}}
	p.Spec.Volumes = volumes
	w.must(w.CoreV1().Pods(namespace).Create(w.Context(), p, metav1.CreateOptions{}))
}

func (w *town) look(servers ...types.NamespacedName) applications {
	w.Helper()
	s := &survey{client: w.Interface, namespace: ours, servers: servers}
	return check.Got(s.look(w.Context()))(w)
}

func TestApplications_OnlyUsersOfOurVolumesAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t)
		w.volume(csiDriver, "web")
		w.volume(externalProvisioner, "shared")
		w.volume("other.example", "foreign")
		w.volume(csiDriver, "data-db-0")
		w.volume(csiDriver, "batch-x-scratch")
		w.deployment("web", 2, using("web"))
		w.deployment("files", 1, using("shared"))
		w.deployment("foreign", 1, using("foreign"))
		w.deployment("plain", 1, nil)
		w.deployment("idle", 0, using("web"))
		w.deployment("inline", 1, []core.Volume{{Name: "v", VolumeSource: core.VolumeSource{CSI: &core.CSIVolumeSource{Driver: csiDriver}}}})
		w.deployment("batch", 1, []core.Volume{{Name: "scratch", VolumeSource: core.VolumeSource{Ephemeral: &core.EphemeralVolumeSource{}}}})
		for _, name := range []string{"db", "d"} {
			set := &apps.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
			set.Spec.VolumeClaimTemplates = []core.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
			w.must(w.AppsV1().StatefulSets("team").Create(t.Context(), set, metav1.CreateOptions{}))
		}
		found := w.look()
		want := "Deployment team/batch, Deployment team/files, Deployment team/inline, Deployment team/web, StatefulSet team/db"
		if names(found.running) != want || len(found.stopped)+len(found.blockers)+len(found.pods) != 0 {
			t.Errorf("got %+v, want %s", found, want)
		}
	})
}

func TestApplications_ThatCannotBeScaledBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t)
		w.volume(csiDriver, "c")
		w.deployment("web", 1, using("c"))
		w.pod("team", "web-1", owner("ReplicaSet", "web-rs"), using("c"), core.PodRunning)
		w.pod("team", "db-0", owner("StatefulSet", "db"), using("c"), core.PodRunning)
		w.pod("team", "cache-1", owner("DaemonSet", "cache"), using("c"), core.PodRunning)
		w.pod("team", "cache-2", owner("DaemonSet", "cache"), using("c"), core.PodPending)
		w.pod("team", "once", owner("Job", "import"), using("c"), core.PodRunning)
		w.pod("team", "over", owner("Job", "export"), using("c"), core.PodSucceeded)
		w.pod("team", "bare", nil, using("c"), core.PodRunning)
		w.pod("team", "aside", nil, nil, core.PodRunning)
		w.pod("elsewhere", "same-name", nil, using("c"), core.PodRunning)
		w.pod(ours, "own", nil, []core.Volume{{VolumeSource: core.VolumeSource{CSI: &core.CSIVolumeSource{Driver: csiDriver}}}}, core.PodRunning)
		w.must(w.AppsV1().ReplicaSets("team").Create(t.Context(), &apps.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "lone"}}, metav1.CreateOptions{}))
		w.pod("team", "lone-1", owner("ReplicaSet", "lone"), using("c"), core.PodRunning)
		found := w.look()
		if want := []string{"DaemonSet team/cache", "Job team/import", "ReplicaSet team/lone", "pod team/bare"}; !slices.Equal(found.blockers, want) {
			t.Errorf("blockers are %v, want %v", found.blockers, want)
		}
		want := []string{"pod team/bare", "pod team/cache-1", "pod team/cache-2", "pod team/db-0", "pod team/lone-1", "pod team/once", "pod team/web-1"}
		if !slices.Equal(found.pods, want) {
			t.Errorf("the pods are %v, want %v", found.pods, want)
		}
	})
}

func TestApplications_NFSServerIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t)
		w.volume(csiDriver, "files")
		w.volume(externalProvisioner, "export")
		w.deployment("web", 1, using("export"))
		for _, name := range []string{"nfs-files", "nfs-other"} {
			set := &apps.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
			set.Spec.Template.Spec.Volumes = using("files")
			w.must(w.AppsV1().StatefulSets("team").Create(t.Context(), set, metav1.CreateOptions{}))
			w.pod("team", name+"-0", owner("StatefulSet", name), using("files"), core.PodRunning)
		}
		found := w.look(types.NamespacedName{Namespace: "team", Name: "nfs-files"}, types.NamespacedName{Namespace: "else", Name: "nfs-other"})
		if names(found.running) != "Deployment team/web, StatefulSet team/nfs-other" || !slices.Equal(found.pods, []string{"pod team/nfs-other-0"}) || len(found.blockers) > 0 {
			t.Errorf("found is %+v", found)
		}
	})
}

func TestApplications_EndedPodIsAwaitedUntilTheKubeletReleasesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t)
		w.volume(csiDriver, "c")
		w.pod("team", "web-1", owner("StatefulSet", "web"), using("c"), core.PodFailed)
		if found := w.look(); len(found.pods) > 0 {
			t.Errorf("one that has failed and stays is waited for: %v", found.pods)
		}
		held := []byte(`{"metadata":{"finalizers":["test/kubelet"]}}`)
		pods := w.CoreV1().Pods("team")
		w.must(pods.Patch(t.Context(), "web-1", types.MergePatchType, held, metav1.PatchOptions{}))
		w.must(nil, pods.Delete(t.Context(), "web-1", metav1.DeleteOptions{}))
		if found := w.look(); !slices.Equal(found.pods, []string{"pod team/web-1"}) || len(found.blockers) > 0 {
			t.Errorf("while it is being deleted, the pods are %v, and blockers %v", found.pods, found.blockers)
		}
	})
}

func TestApplications_ReplicasAreKeptWhileStoppedUnlessAUserChangesThem(t *testing.T) {
	for name, after := range map[string]int32{"as before": 3, "scaled up by its user": 5} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTown(t)
				w.volume(csiDriver, "c")
				w.deployment("web", 3, using("c"))
				deployments := w.AppsV1().Deployments("team")
				// scale does it twice, the second time as if the first had not been heard of.
				scale := func(do func(context.Context, kubernetes.Interface, application) error, a application, replicas int32, before string) {
					t.Helper()
					check.OK(t, do(t.Context(), w.Interface, a))
					check.OK(t, do(t.Context(), w.Interface, a))
					d := check.Got(deployments.Get(t.Context(), "web", metav1.GetOptions{}))(t)
					if now, is := *d.Spec.Replicas, d.Annotations[v1beta1.ReplicasAnnotation]; now != replicas || is != before {
						t.Errorf("it has %d replicas and remembers %q, want %d and %q", now, is, replicas, before)
					}
				}
				scale(stop, w.look().running[0], 0, "3")
				if after != 3 {
					patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, after)
					w.must(deployments.Patch(t.Context(), "web", types.MergePatchType, patch, metav1.PatchOptions{}))
					if found := w.look().running; len(found) != 1 || found[0].replicas != after {
						t.Fatalf("it runs again, and found is %+v", found)
					}
				}
				scale(start, w.look().stopped[0], after, "")
			})
		})
	}
}

func TestApplications_AnnotationThatIsNoNumberIsIgnored(t *testing.T) {
	for _, text := range []string{"many", "-1", "99999999999", ""} {
		a := applicationOf("Deployment", &metav1.ObjectMeta{Annotations: map[string]string{v1beta1.ReplicasAnnotation: text}}, nil)
		if a.before != "" || a.replicas != 1 {
			t.Errorf("%q: %+v", text, a)
		}
	}
}
