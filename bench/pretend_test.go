package bench

import (
	"strings"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// The simulated durations.
const (
	startTakes  = 150 * time.Millisecond
	bindTakes   = 20 * time.Millisecond
	mountTakes  = 40 * time.Millisecond
	removeTakes = 30 * time.Millisecond
	learnTakes  = 200 * time.Millisecond // until the scheduler sees a claim
	putOff      = time.Second            // delay of a pod whose claim the scheduler has not seen
	atOnceTakes = time.Nanosecond        // what comes after the answer to a request
)

// pretend simulates a cluster in which each step takes a known time: in a synctest bubble the clock advances only when
// all goroutines wait.
type pretend struct {
	*fake.Clientset
	t      *testing.T
	mode   storage.VolumeBindingMode
	policy core.PersistentVolumeReclaimPolicy
	room   int               // maximum number of pods
	stuck  map[string]string // objects that never finish, with the message about them
	broken map[string]string // pods that fail instead of running, with the message

	mu     sync.Mutex
	placed map[string]bool
	since  map[string]time.Time // of claims
}

// pretendCluster has two nodes that take pods and one that does not, and a volume of another namespace, whose claim has the
// name of one of the run.
func pretendCluster(t *testing.T, mode storage.VolumeBindingMode, policy core.PersistentVolumeReclaimPolicy) *pretend {
	t.Helper()
	node := func(name string, cordoned bool) *core.Node {
		return &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: core.NodeSpec{Unschedulable: cordoned}}
	}
	class := &storage.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "csi.example.com", VolumeBindingMode: &mode, ReclaimPolicy: &policy,
	}
	foreign := volumeOf("other", "claim-1-1", "foreign", "Retain")
	p := &pretend{
		t: t, mode: mode, policy: policy, room: 1000,
		stuck: map[string]string{}, broken: map[string]string{}, placed: map[string]bool{}, since: map[string]time.Time{},
		Clientset: fake.NewClientset(node("a", false), node("b", false), node("cordoned", true), foreign, class),
	}
	p.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		switch made := action.(clienttesting.CreateAction).GetObject().(type) {
		case *core.Namespace:
			made.Name = made.GenerateName + "x"
			account := &core.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
			p.check(p.Tracker().Create(core.SchemeGroupVersion.WithResource("serviceaccounts"), account, made.Name))
		case *core.Pod:
			time.AfterFunc(atOnceTakes, func() { p.schedule(action.GetNamespace(), made.Name) })
		case *core.PersistentVolumeClaim:
			p.locked(func() { p.since[made.Name] = time.Now() })
			if mode == storage.VolumeBindingImmediate {
				time.AfterFunc(bindTakes, func() { p.bind(action.GetNamespace(), made.Name) })
			}
		}
		return false, nil, nil
	})
	p.PrependReactor("delete", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		switch name := action.(clienttesting.DeleteAction).GetName(); action.GetResource().Resource {
		case "namespaces":
			p.empty(name)
		case "pods":
			p.locked(func() { delete(p.placed, name) })
		case "persistentvolumeclaims":
			time.AfterFunc(removeTakes, func() { p.reclaim("volume-of-" + name) })
		}
		return false, nil, nil
	})
	p.PrependReactor("patch", "persistentvolumes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		time.AfterFunc(removeTakes, func() { p.reclaim(action.(clienttesting.PatchAction).GetName()) })
		return false, nil, nil
	})
	return p
}

func volumeOf(namespace, claim, name string, policy core.PersistentVolumeReclaimPolicy) *core.PersistentVolume {
	return &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: core.PersistentVolumeSpec{
		ClaimRef: &core.ObjectReference{Namespace: namespace, Name: claim}, PersistentVolumeReclaimPolicy: policy,
	}}
}

// empty deletes the content of a namespace. A reactor must not call the client.
func (p *pretend) empty(namespace string) {
	for _, kind := range []string{"Pod", "PersistentVolumeClaim", "ServiceAccount"} {
		gvr := core.SchemeGroupVersion.WithResource(strings.ToLower(kind) + "s")
		list, err := p.Tracker().List(gvr, core.SchemeGroupVersion.WithKind(kind), namespace)
		p.check(err)
		p.check(meta.EachListItem(list, func(o runtime.Object) error {
			name := o.(metav1.Object).GetName()
			time.AfterFunc(removeTakes, func() { p.reclaim("volume-of-" + name) })
			return p.Tracker().Delete(gvr, namespace, name)
		}))
	}
}

// check ignores that an object is already deleted.
func (p *pretend) check(err error) {
	if err != nil && !apierrors.IsNotFound(err) {
		p.t.Errorf("the pretended cluster: %v", err)
	}
}

func (p *pretend) locked(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
}

// schedule places a pod if there is space, binds its claim, and runs it.
func (p *pretend) schedule(namespace, name string) {
	pod, err := p.CoreV1().Pods(namespace).Get(p.t.Context(), name, metav1.GetOptions{})
	if err != nil || p.say("Pod", namespace, name) {
		p.check(err)
		return
	}
	takes, claim := startTakes, ""
	if len(pod.Spec.Volumes) > 0 {
		takes, claim = startTakes+mountTakes, pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName
	}
	fits := false
	p.locked(func() {
		if fits = len(p.placed) < p.room; fits {
			p.placed[name] = true
		}
		if claim != "" && time.Since(p.since[claim]) < learnTakes {
			takes += putOff
		}
	})
	if !fits {
		pod.Status.Conditions = []core.PodCondition{{
			Type: core.PodScheduled, Status: core.ConditionFalse, Reason: core.PodReasonUnschedulable, Message: "0/2 nodes are available: 2 Too many pods.",
		}}
		_, err := p.CoreV1().Pods(namespace).UpdateStatus(p.t.Context(), pod, metav1.UpdateOptions{})
		p.check(err)
		return
	}
	if claim != "" && p.mode == storage.VolumeBindingWaitForFirstConsumer {
		now, err := p.CoreV1().PersistentVolumeClaims(namespace).Get(p.t.Context(), claim, metav1.GetOptions{})
		if p.check(err); err != nil || now.Status.Phase != core.ClaimBound {
			takes += bindTakes
			time.AfterFunc(bindTakes, func() { p.bind(namespace, claim) })
			if p.stuck[claim] != "" {
				return
			}
		}
	}
	time.AfterFunc(takes, func() { p.start(pod) })
}

func (p *pretend) start(pod *core.Pod) {
	pod.Status.Phase = core.PodRunning
	if message := p.broken[pod.Name]; message != "" {
		pod.Status.Phase = core.PodFailed
		terminated := &core.ContainerStateTerminated{ExitCode: 127, Reason: "StartError", Message: message}
		pod.Status.ContainerStatuses = []core.ContainerStatus{{Name: container, State: core.ContainerState{Terminated: terminated}}}
	}
	_, err := p.CoreV1().Pods(pod.Namespace).UpdateStatus(p.t.Context(), pod, metav1.UpdateOptions{})
	p.check(err)
}

// bind gives a claim a volume.
func (p *pretend) bind(namespace, name string) {
	claim, err := p.CoreV1().PersistentVolumeClaims(namespace).Get(p.t.Context(), name, metav1.GetOptions{})
	if err != nil || p.say("PersistentVolumeClaim", namespace, name) {
		p.check(err)
		return
	}
	volume := volumeOf(namespace, name, "volume-of-"+name, p.policy)
	_, err = p.CoreV1().PersistentVolumes().Create(p.t.Context(), volume, metav1.CreateOptions{})
	p.check(err)
	claim.Spec.VolumeName, claim.Status.Phase = volume.Name, core.ClaimBound
	_, err = p.CoreV1().PersistentVolumeClaims(namespace).Update(p.t.Context(), claim, metav1.UpdateOptions{})
	p.check(err)
}

// reclaim deletes a volume with reclaim policy Delete whose claim is deleted.
func (p *pretend) reclaim(name string) {
	volume, err := p.CoreV1().PersistentVolumes().Get(p.t.Context(), name, metav1.GetOptions{})
	if err != nil || volume.Spec.PersistentVolumeReclaimPolicy != core.PersistentVolumeReclaimDelete || p.stuck[name] != "" {
		return
	}
	ref := volume.Spec.ClaimRef
	if _, err := p.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(p.t.Context(), ref.Name, metav1.GetOptions{}); err != nil {
		p.check(p.CoreV1().PersistentVolumes().Delete(p.t.Context(), name, metav1.DeleteOptions{}))
	}
}

// say writes an event about an object that is stuck.
func (p *pretend) say(kind, namespace, name string) bool {
	if p.stuck[name] == "" {
		return false
	}
	event := warn(name, kind, name, p.stuck[name], 1)
	event.Name, event.InvolvedObject.Namespace = name, namespace
	_, err := p.CoreV1().Events(namespace).Create(p.t.Context(), event, metav1.CreateOptions{})
	p.check(err)
	return true
}
