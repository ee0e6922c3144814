package bench

import (
	"context"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
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
)

// pretend simulates a cluster in which each step takes a known time: in a synctest bubble the clock advances only when
// all goroutines wait.
type pretend struct {
	*fake.Clientset
	t    *testing.T
	room int // maximum number of pods
	// stuck are objects that never finish, with the message about them.
	stuck map[string]string
	// broken are pods that fail instead of running.
	broken map[string]string

	mu     sync.Mutex
	placed map[string]bool
	since  map[string]time.Time // of claims
}

// class is the measured one, in a cluster of two nodes that take pods and one that does not.
func pretendCluster(t *testing.T, mode storage.VolumeBindingMode, policy core.PersistentVolumeReclaimPolicy) *pretend {
	t.Helper()
	node := func(name string) *core.Node { return &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	cordoned := node("cordoned")
	cordoned.Spec.Unschedulable = true
	p := &pretend{
		t: t, room: 1000, stuck: map[string]string{}, broken: map[string]string{}, placed: map[string]bool{}, since: map[string]time.Time{},
		Clientset: fake.NewClientset(node("a"), node("b"), cordoned, foreign(), &storage.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "csi.example.com", VolumeBindingMode: &mode, ReclaimPolicy: &policy,
		}),
	}
	p.PrependReactor("create", "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
		made := action.(clienttesting.CreateAction).GetObject().(*core.Namespace)
		made.Name = made.GenerateName + "x"
		return false, nil, nil
	})
	p.PrependReactor("delete", "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
		p.empty(action.(clienttesting.DeleteAction).GetName())
		return false, nil, nil
	})
	p.serve(t.Context())
	return p
}

// foreign is a volume of another namespace, whose claim has the name of one of the run.
func foreign() *core.PersistentVolume {
	return &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}, Spec: core.PersistentVolumeSpec{
		ClaimRef: &core.ObjectReference{Namespace: "other", Name: "claim-1-1"}, PersistentVolumeReclaimPolicy: core.PersistentVolumeReclaimRetain,
	}}
}

// empty deletes the content of a namespace. A reactor must not call the client.
func (p *pretend) empty(namespace string) {
	for _, kind := range []string{"Pod", "PersistentVolumeClaim"} {
		resource := map[string]string{"Pod": "pods", "PersistentVolumeClaim": "persistentvolumeclaims"}[kind]
		gvr := core.SchemeGroupVersion.WithResource(resource)
		list, err := p.Tracker().List(gvr, core.SchemeGroupVersion.WithKind(kind), namespace)
		p.check(err)
		switch list := list.(type) {
		case *core.PodList:
			for _, item := range list.Items {
				p.check(p.Tracker().Delete(gvr, namespace, item.Name))
			}
		case *core.PersistentVolumeClaimList:
			for _, item := range list.Items {
				p.check(p.Tracker().Delete(gvr, namespace, item.Name))
			}
		}
	}
}

func (p *pretend) check(err error) {
	if err != nil {
		p.t.Errorf("the pretended cluster: %v", err)
	}
}

func (p *pretend) serve(ctx context.Context) {
	all := metav1.ListOptions{}
	api := p.CoreV1()
	for _, source := range []func() (watch.Interface, error){
		func() (watch.Interface, error) { return api.Namespaces().Watch(ctx, all) },
		func() (watch.Interface, error) { return api.Pods("").Watch(ctx, all) },
		func() (watch.Interface, error) { return api.PersistentVolumeClaims("").Watch(ctx, all) },
		func() (watch.Interface, error) { return api.PersistentVolumes().Watch(ctx, all) },
	} {
		w, err := source()
		p.check(err)
		context.AfterFunc(ctx, w.Stop)
		go func() {
			for e := range w.ResultChan() {
				p.react(ctx, e)
			}
		}()
	}
}

func (p *pretend) react(ctx context.Context, e watch.Event) {
	switch o := e.Object.(type) {
	case *core.Namespace:
		if e.Type == watch.Added {
			account := &core.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
			_, err := p.CoreV1().ServiceAccounts(o.Name).Create(ctx, account, metav1.CreateOptions{})
			p.check(err)
		}
	case *core.Pod:
		switch e.Type {
		case watch.Added:
			p.schedule(ctx, o)
		case watch.Deleted:
			p.mu.Lock()
			delete(p.placed, o.Name)
			p.mu.Unlock()
		}
	case *core.PersistentVolumeClaim:
		p.mu.Lock()
		if p.since[o.Name].IsZero() {
			p.since[o.Name] = time.Now()
		}
		p.mu.Unlock()
		switch {
		case e.Type == watch.Added && p.mode(ctx) == storage.VolumeBindingImmediate:
			time.AfterFunc(bindTakes, func() { p.bind(ctx, o.Namespace, o.Name) })
		case e.Type == watch.Deleted:
			time.AfterFunc(removeTakes, func() { p.reclaim(ctx, "volume-of-"+o.Name) })
		}
	case *core.PersistentVolume:
		if e.Type == watch.Modified {
			time.AfterFunc(removeTakes, func() { p.reclaim(ctx, o.Name) })
		}
	}
}

func (p *pretend) mode(ctx context.Context) storage.VolumeBindingMode {
	class, err := p.StorageV1().StorageClasses().Get(ctx, "fast", metav1.GetOptions{})
	p.check(err)
	return *class.VolumeBindingMode
}

// schedule places a pod if there is space, binds its claim, and runs it.
func (p *pretend) schedule(ctx context.Context, pod *core.Pod) {
	if p.say(ctx, "Pod", pod.Namespace, pod.Name) {
		return
	}
	p.mu.Lock()
	fits := len(p.placed) < p.room
	if fits {
		p.placed[pod.Name] = true
	}
	p.mu.Unlock()
	if !fits {
		pod.Status.Conditions = []core.PodCondition{{
			Type: core.PodScheduled, Status: core.ConditionFalse, Reason: core.PodReasonUnschedulable, Message: "0/2 nodes are available: 2 Too many pods.",
		}}
		_, err := p.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		p.check(err)
		return
	}
	takes := startTakes
	if len(pod.Spec.Volumes) > 0 {
		claim := pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName
		takes += mountTakes
		p.mu.Lock()
		if time.Since(p.since[claim]) < learnTakes {
			takes += putOff
		}
		p.mu.Unlock()
		if now, err := p.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, claim, metav1.GetOptions{}); err != nil || now.Status.Phase != core.ClaimBound {
			p.check(err)
			takes += bindTakes
			time.AfterFunc(bindTakes, func() { p.bind(ctx, pod.Namespace, claim) })
			if p.stuck[claim] != "" {
				return
			}
		}
	}
	time.AfterFunc(takes, func() { p.start(ctx, pod) })
}

func (p *pretend) start(ctx context.Context, pod *core.Pod) {
	pod.Status.Phase = core.PodRunning
	if reason := p.broken[pod.Name]; reason != "" {
		pod.Status.Phase = core.PodFailed
		pod.Status.ContainerStatuses = []core.ContainerStatus{{State: core.ContainerState{Terminated: &core.ContainerStateTerminated{ExitCode: 127, Reason: reason}}}}
	}
	if _, err := p.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{}); ctx.Err() == nil {
		p.gone(err)
	}
}

// bind gives a claim a volume.
func (p *pretend) bind(ctx context.Context, namespace, name string) {
	if p.say(ctx, "PersistentVolumeClaim", namespace, name) {
		return
	}
	claim, err := p.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		p.gone(err)
		return
	}
	class, err := p.StorageV1().StorageClasses().Get(ctx, "fast", metav1.GetOptions{})
	p.check(err)
	volume := &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "volume-of-" + name}, Spec: core.PersistentVolumeSpec{
		ClaimRef: &core.ObjectReference{Namespace: namespace, Name: name}, PersistentVolumeReclaimPolicy: *class.ReclaimPolicy,
	}}
	_, err = p.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	p.check(err)
	claim.Spec.VolumeName, claim.Status.Phase = volume.Name, core.ClaimBound
	_, err = p.CoreV1().PersistentVolumeClaims(namespace).Update(ctx, claim, metav1.UpdateOptions{})
	p.check(err)
}

// reclaim deletes a volume with reclaim policy Delete whose claim is deleted.
func (p *pretend) reclaim(ctx context.Context, name string) {
	volume, err := p.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	if err != nil || volume.Spec.PersistentVolumeReclaimPolicy != core.PersistentVolumeReclaimDelete || p.stuck[name] != "" {
		return
	}
	ref := volume.Spec.ClaimRef
	if _, err := p.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{}); err == nil {
		return
	}
	p.gone(p.CoreV1().PersistentVolumes().Delete(ctx, name, metav1.DeleteOptions{}))
}

// say writes an event about an object that is stuck.
func (p *pretend) say(ctx context.Context, kind, namespace, name string) bool {
	message := p.stuck[name]
	if message == "" {
		return false
	}
	_, err := p.CoreV1().Events(namespace).Create(ctx, &core.Event{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Type: core.EventTypeWarning, Reason: "ProvisioningFailed", Message: message,
		InvolvedObject: core.ObjectReference{Kind: kind, Namespace: namespace, Name: name}, Count: 1,
	}, metav1.CreateOptions{})
	p.check(err)
	return true
}

// gone ignores that an object is already deleted.
func (p *pretend) gone(err error) {
	if err != nil && !apierrors.IsNotFound(err) {
		p.check(err)
	}
}
