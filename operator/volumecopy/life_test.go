package volumecopy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"

	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/cluster"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/operator/volumecopy"
	"github.com/holdfast-storage/holdfast/test/rig/alongside"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
	"github.com/holdfast-storage/holdfast/test/rig/mortal"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/transfer/protocol"
)

func TestMain(m *testing.M) { os.Exit(realapi.Main(m)) }

const (
	mib     = 1 << 20
	gib     = 1 << 30
	forever = -1
	hash    = "5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9"
)

// life is a snapshot in a Ceph pool, of which a volume on a node is requested. Its pods are never started: no node has the
// name of theirs. The test says what a kubelet would.
type life struct {
	*inmemory.Cluster
	node, snapshot, target string
	ceph, host             *inmemory.Host

	mu  sync.Mutex
	log string // of the pod
}

func newLife(t *testing.T) *life {
	id := rand.String(5)
	w := inmemory.Real(t)
	w.Change = func(c *cluster.Config) { c.Driver = v1beta1.DriverName }
	l := &life{Cluster: w, node: "copy-" + id, snapshot: "snapshot-" + id, target: "target-" + id}
	l.ceph = w.CephPool(gib, v1beta1.EngineRBD)
	l.host = w.Hosts(map[string]int64{l.node: 10 * gib})[l.node]
	w.Ready(inmemory.CephPool)
	source := inmemory.Spec("source-"+id, mib)
	source.Pool = "memory"
	v := check.Got(w.Backend.Create(t.Context(), source))(t)
	check.Got(w.Backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: l.snapshot, Source: v.ID}))(t)
	claims := w.Theirs.CoreV1().PersistentVolumeClaims("default")
	check.Got(claims.Create(t.Context(), &core.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: l.target}, Spec: core.PersistentVolumeClaimSpec{
		AccessModes: []core.PersistentVolumeAccessMode{core.ReadWriteOnce}, StorageClassName: new("none"),
		Resources: core.VolumeResourceRequirements{Requests: core.ResourceList{core.ResourceStorage: *v1beta1.Quantity(mib)}},
	}}, metav1.CreateOptions{}))(t)
	t.Cleanup(func() { _ = claims.Delete(context.Background(), l.target, metav1.DeleteOptions{}) })
	t.Cleanup(l.sweep)
	return l
}

// requested is a life whose volume has been requested.
func requested(t *testing.T) *life {
	l := newLife(t)
	if _, err := l.request(); !errors.Is(err, backend.ErrBusy) {
		t.Fatalf("before the copy: %v", err)
	}
	return l
}

func (l *life) spec() backend.VolumeSpec {
	spec := inmemory.Spec(l.target, mib, l.node)
	spec.Labels = map[string]string{v1beta1.ClaimNamespaceLabel: "default", v1beta1.ClaimNameLabel: l.target}
	return spec
}

// request is what CreateVolume does, for a caller who has no time.
func (l *life) request() (v *backend.Volume, err error) {
	l.Helper()
	return v, l.Unfinished("by a pod", func(ctx context.Context) error {
		v, err = l.Backend.Restore(ctx, backend.ID(l.snapshot), l.spec())
		return err
	})
}

var copies = metav1.ListOptions{LabelSelector: v1beta1.ComponentLabel + "=volume-copy"}

func (l *life) sweep() {
	ctx, now := context.Background(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	objects := l.Theirs.CoreV1()
	free := []byte(`{"metadata":{"finalizers":null}}`)
	_ = objects.Pods(v1beta1.DefaultNamespace).DeleteCollection(ctx, now, copies)
	_ = objects.PersistentVolumeClaims(v1beta1.DefaultNamespace).DeleteCollection(ctx, now, copies)
	claims, _ := objects.PersistentVolumeClaims(v1beta1.DefaultNamespace).List(ctx, copies)
	for _, c := range claims.Items {
		_, _ = objects.PersistentVolumeClaims(c.Namespace).Patch(ctx, c.Name, types.MergePatchType, free, metav1.PatchOptions{})
	}
	_ = objects.PersistentVolumes().DeleteCollection(ctx, now, copies)
	volumes, _ := objects.PersistentVolumes().List(ctx, copies)
	for _, v := range volumes.Items {
		_, _ = objects.PersistentVolumes().Patch(ctx, v.Name, types.MergePatchType, free, metav1.PatchOptions{})
	}
}

// has counts what there is of the copy.
func (l *life) has() string {
	objects := l.Theirs.CoreV1()
	pods, err1 := objects.Pods(v1beta1.DefaultNamespace).List(context.Background(), copies)
	claims, err2 := objects.PersistentVolumeClaims(v1beta1.DefaultNamespace).List(context.Background(), copies)
	volumes, err3 := objects.PersistentVolumes().List(context.Background(), copies)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err.Error()
	}
	temporary := 0
	for _, name := range l.ceph.Volumes() {
		if strings.HasPrefix(name, "copy-") {
			temporary++
		}
	}
	return fmt.Sprintf("%d pods, %d claims, %d PersistentVolumes, %d sources", len(pods.Items), len(claims.Items), len(volumes.Items), temporary)
}

const nothing = "0 pods, 0 claims, 0 PersistentVolumes, 0 sources"

func (l *life) status() v1beta1.VolumeCopy {
	if v := l.Volume(l.target); v != nil && v.Status.Copy != nil {
		return *v.Status.Copy
	}
	return v1beta1.VolumeCopy{}
}

// pod is that of an attempt, or nil.
func (l *life) pod(attempt int) *core.Pod {
	pods, err := l.Theirs.CoreV1().Pods(v1beta1.DefaultNamespace).List(context.Background(), copies)
	if err != nil {
		return nil
	}
	for i := range pods.Items {
		if strings.HasSuffix(pods.Items[i].Name, fmt.Sprintf("-%d", attempt)) {
			return &pods.Items[i]
		}
	}
	return nil
}

// isBound says whether both claims are.
func (l *life) isBound() bool {
	claims, err := l.Theirs.CoreV1().PersistentVolumeClaims(v1beta1.DefaultNamespace).List(context.Background(), copies)
	return err == nil && len(claims.Items) == 2 && claims.Items[0].Status.Phase == core.ClaimBound && claims.Items[1].Status.Phase == core.ClaimBound
}

// says writes what a kubelet would of the container, and its log.
func (l *life) says(attempt int, log string, state core.ContainerState) {
	l.Helper()
	l.mu.Lock()
	l.log = log
	l.mu.Unlock()
	l.Until("the status of the pod", func() bool {
		p := l.pod(attempt)
		if p == nil {
			return false
		}
		p.Status.ContainerStatuses = []core.ContainerStatus{{Name: "copy", State: state}}
		_, err := l.Theirs.CoreV1().Pods(p.Namespace).UpdateStatus(l.Context(), p, metav1.UpdateOptions{})
		return err == nil
	})
}

func (l *life) ends(attempt int, code int32, message string) {
	l.Helper()
	now := metav1.Now()
	l.says(attempt, "", core.ContainerState{Terminated: &core.ContainerStateTerminated{ExitCode: code, Message: message, StartedAt: now, FinishedAt: now}})
}

// kubelet answers what a log has in place of one.
type kubelet struct {
	life *life
	next http.RoundTripper
}

func (k *kubelet) RoundTrip(q *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(q.URL.Path, "/log") {
		return k.next.RoundTrip(q)
	}
	k.life.mu.Lock()
	defer k.life.mu.Unlock()
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(k.life.log)), Header: http.Header{}, Request: q}, nil
}

// lead runs a controller until it was killed after so many writes, or the test ends.
func (l *life) lead(writes int) (dead <-chan struct{}, stop func()) {
	l.Helper()
	m := mortal.AfterWrites(writes)
	config := m.Client(l.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &kubelet{l, next} })
	ours, theirs := client.NewForConfigOrDie(config), kubernetes.NewForConfigOrDie(config)
	ctx, cancel := context.WithCancel(context.Background())
	storage := check.Got(cluster.New(cluster.Config{
		Client: ours, Kubernetes: theirs, Watches: kube.NewWatches(ctx, ours, theirs, v1beta1.DefaultNamespace), Driver: v1beta1.DriverName, Log: l.Logger,
	}))(l)
	c := check.Got(volumecopy.New(volumecopy.Config{
		Storage: storage, Events: l.Events,
		Image: func(context.Context) (v1beta1.Image, []core.LocalObjectReference, error) {
			return "holdfast:1", nil, nil
		},
	}))(l)
	return m.Died(), alongside.Run(ctx, l, cancel, func(ctx context.Context) error {
		if err := storage.Start(ctx); err != nil {
			return nil //nolint:nilerr // it was to end
		}
		return c.Run(ctx)
	})
}

// killedAtEveryWrite leads again and again, for one write each, until something is so.
func (l *life) killedAtEveryWrite(what string, done func() bool) {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), 3*time.Minute)
	defer cancel()
	terms := mortal.KilledAtEveryWrite(ctx, l.lead, done)
	if !done() {
		l.Fatalf("%s did not come after %d controllers: there are %s, and the status is %+v", what, terms, l.has(), l.status())
	}
	l.Logf("%s: after %d controllers", what, terms)
}

func TestLife_VolumeIsCopiedByControllersThatAreKilled(t *testing.T) {
	l := requested(t)
	l.killedAtEveryWrite("the pod", func() bool { return l.pod(1) != nil && l.status().Attempt == 1 })
	if has := l.has(); has != "1 pods, 2 claims, 2 PersistentVolumes, 1 sources" {
		t.Errorf("for the copy there are %s", has)
	}
	l.Until("the claims being bound", l.isBound)
	l.says(1, `{"phase":"Copying","done":400,"total":1000}`, core.ContainerState{Running: &core.ContainerStateRunning{}})
	l.killedAtEveryWrite("the progress", func() bool { return l.status().BytesDone == 400 })
	if _, err := l.request(); err == nil || !strings.Contains(err.Error(), "400 of 1000") {
		t.Errorf("CreateVolume says %v", err)
	}
	l.ends(1, 1, "the kernel has said no")
	l.killedAtEveryWrite("the next attempt", func() bool { return l.pod(2) != nil && l.pod(1) == nil })
	l.Until("the end of the second pod", func() bool {
		return l.Theirs.CoreV1().Pods(v1beta1.DefaultNamespace).DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, copies) == nil && l.pod(2) == nil
	})
	l.killedAtEveryWrite("another in its place", func() bool { return l.pod(2) != nil })
	l.ends(2, 0, `{"bytes":1000,"files":3,"sha256":"`+hash+`"}`)
	l.killedAtEveryWrite("its content", func() bool { return !l.Volume(l.target).IsBeingPopulated() })
	if has := l.has(); !strings.HasPrefix(has, "0 pods, 0 claims, 0 PersistentVolumes") {
		t.Errorf("when it is populated there are %s", has)
	}
	l.killedAtEveryWrite("the end", func() bool { return l.has() == nothing })
	if s := l.status(); s.Phase != v1beta1.CopyComplete || s.Checksum != "sha256:"+hash || s.BytesDone != 1000 {
		t.Errorf("the status is %+v", s)
	}
	v, err := l.Backend.Restore(t.Context(), backend.ID(l.snapshot), l.spec())
	if err != nil || v.Source == nil || string(v.Source.ID) != l.snapshot || v.Node != l.node {
		t.Errorf("CreateVolume returns %+v, %v", v, err)
	}
	for _, reason := range []string{v1beta1.ReasonCopyStarted, v1beta1.ReasonCopyProgress, v1beta1.ReasonCopyRetried, v1beta1.ReasonCopyVerified, v1beta1.ReasonPopulated} {
		l.ExpectEvent(reason)
	}
}

func TestLife_CopyThatCannotSucceedIsTheErrorAndLeavesNothing(t *testing.T) {
	l := requested(t)
	l.killedAtEveryWrite("the pod", func() bool { return l.pod(1) != nil })
	l.ends(1, protocol.FinalExit, "no space left on /to")
	l.killedAtEveryWrite("the failure", func() bool { return l.status().Phase == v1beta1.CopyFailed })
	_, err := l.Backend.Restore(t.Context(), backend.ID(l.snapshot), l.spec()) // a caller with time
	if !errors.Is(err, backend.ErrPrecondition) || !strings.Contains(err.Error(), "no space left on /to") {
		t.Errorf("CreateVolume says %v", err)
	}
	l.Gone(l.target)
	l.killedAtEveryWrite("the end", func() bool { return l.has() == nothing })
}

func TestLife_VolumeThatIsDeletedLeavesNothing(t *testing.T) {
	l := requested(t)
	l.killedAtEveryWrite("the pod", func() bool { return l.pod(1) != nil })
	check.OK(t, l.Backend.Delete(t.Context(), backend.ID(l.target)))
	l.killedAtEveryWrite("the end", func() bool { return l.has() == nothing })
}

func TestLife_SourceThatIsGoneIsTheError(t *testing.T) {
	l := requested(t)
	check.OK(t, l.Backend.DeleteSnapshot(t.Context(), backend.ID(l.snapshot)))
	l.killedAtEveryWrite("the failure", func() bool { return l.status().Phase == v1beta1.CopyFailed })
	if s := l.status(); !strings.Contains(s.Message, l.snapshot) {
		t.Errorf("the status is %+v", s)
	}
}

func TestLife_WhatOthersDeleteIsMadeAgain(t *testing.T) {
	l := requested(t)
	l.lead(forever)
	objects := l.Theirs.CoreV1()
	l.Until("the first pod", func() bool { return l.pod(1) != nil && l.isBound() })
	for what, remove := range map[string]func() error{
		"a PersistentVolume": func() error {
			all, err := objects.PersistentVolumes().List(t.Context(), copies)
			return errors.Join(err, objects.PersistentVolumes().Delete(t.Context(), all.Items[0].Name, metav1.DeleteOptions{}))
		},
		"pod and claims": func() error {
			return errors.Join(
				objects.PersistentVolumeClaims(v1beta1.DefaultNamespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, copies),
				objects.Pods(v1beta1.DefaultNamespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, copies),
			)
		},
	} {
		old := l.pod(1).UID
		check.OK(t, remove())
		l.Until("another pod after "+what+" was deleted", func() bool {
			p := l.pod(1)
			return p != nil && p.UID != old && l.isBound()
		})
	}
}

func TestLife_CopiesThatHaveNoRoomKeepNoOtherWaiting(t *testing.T) {
	l := newLife(t)
	source := inmemory.Spec("large-"+l.target, 600*mib)
	source.Pool = "memory"
	v := check.Got(l.Backend.Create(t.Context(), source))(t)
	check.Got(l.Backend.Snapshot(t.Context(), backend.SnapshotSpec{Name: "large-" + l.snapshot, Source: v.ID}))(t)
	for i := range 5 { // there is room for one more in the Ceph pool, but not of these
		large := inmemory.Spec(fmt.Sprintf("large-%d-%s", i, l.target), 600*mib, l.node)
		if err := l.Unfinished("by a pod", func(ctx context.Context) error {
			_, err := l.Backend.Restore(ctx, backend.ID("large-"+l.snapshot), large)
			return err
		}); !errors.Is(err, backend.ErrBusy) {
			t.Fatal(err)
		}
	}
	if _, err := l.request(); !errors.Is(err, backend.ErrBusy) {
		t.Fatalf("before the copy: %v", err)
	}
	l.lead(forever)
	l.Until("the pod of the small one", func() bool { return l.pod(1) != nil && l.pod(1).Labels[v1beta1.CopyLabel] == l.target })
	l.Until("the others saying why", func() bool {
		for i := range 5 {
			v := l.Volume(fmt.Sprintf("large-%d-%s", i, l.target))
			if v == nil || v.Status.Copy == nil || !strings.Contains(v.Status.Copy.Message, "cannot be copied in its pool now") {
				return false
			}
		}
		return true
	})
}

// forge has a node say that it found a volume on its disk that is the temporary source of a copy.
func (l *life) forge(end, target string, uid types.UID) string {
	l.Helper()
	name := fmt.Sprint("copy-", uid, end)
	check.Got(l.host.Memory.Create(l.Context(), backend.VolumeSpec{
		Name: name, Pool: "memory", Size: backend.Size{Required: mib}, Labels: map[string]string{v1beta1.CopyLabel: target, v1beta1.CopyUIDLabel: string(uid)},
	}))(l)
	l.Until("the agent of another node having written "+name, func() bool { v := l.Volume(name); return v != nil && v.IsComplete() })
	return name
}

// wantOnlyItsPool wants that what is copied is in the pool of the snapshot.
func (l *life) wantOnlyItsPool() {
	l.Helper()
	for _, pv := range check.Got(l.Theirs.CoreV1().PersistentVolumes().List(l.Context(), copies))(l).Items {
		if id := pv.Spec.CSI.VolumeHandle; id != l.target && !l.ceph.Has(backend.ID(id)) {
			l.Errorf("%s is copied, which is not in the pool of the snapshot", id)
		}
	}
}

func TestLife_SourceThatAnotherNodeHasMadeIsNotCopied(t *testing.T) {
	l := requested(t)
	uid := l.Volume(l.target).UID
	l.forge("", l.target, uid)
	l.lead(forever)
	l.Until("the pod", func() bool { return l.pod(1) != nil && l.isBound() })
	pod := l.pod(1).UID
	l.wantOnlyItsPool()
	other := l.forge("-other", "other-"+l.target, uid)
	l.Until("what says that it is of a copy into a volume that does not exist being removed", func() bool { return l.Volume(other) == nil })
	l.forge("-late", l.target, uid)
	if p := l.pod(1); p == nil || p.UID != pod || !strings.HasPrefix(l.has(), "1 pods, 2 claims, 2 PersistentVolumes") {
		t.Errorf("there are %s, and pod %+v", l.has(), p)
	}
	l.ends(1, 0, `{"bytes":1000,"files":3,"sha256":"`+hash+`"}`)
	l.Until("its content", func() bool { return !l.Volume(l.target).IsBeingPopulated() })
	l.Until("the end", func() bool { return l.has() == nothing && len(l.host.Volumes()) == 1 })
}

func TestLife_SourceThatAnotherNodeHasMadeIsNotCopiedForOneThatIsGone(t *testing.T) {
	l := requested(t)
	l.forge("", l.target, l.Volume(l.target).UID)
	check.OK(t, l.Backend.DeleteSnapshot(t.Context(), backend.ID(l.snapshot)))
	l.lead(forever)
	l.Until("the copy being given up", func() bool { return l.status().Phase == v1beta1.CopyFailed })
	if s, has := l.status(), l.has(); !strings.Contains(s.Message, l.snapshot) || !strings.HasPrefix(has, "0 pods") {
		t.Errorf("the status is %+v, and there are %s", s, has)
	}
}

func TestLife_WhatTheTokenOfAnotherAgentWritesIsNoTemporarySource(t *testing.T) {
	for name, kind := range realapi.Strangers {
		t.Run(name, func(t *testing.T) {
			l := requested(t)
			uid := string(l.Volume(l.target).UID)
			other, token := realapi.Stranger(t, l.Config, kind)
			theirs := client.NewForConfigOrDie(token).HoldfastV1beta1().Volumes()
			for _, name := range []string{"copy-" + uid, "copy-" + uid + "-0000000000"} {
				forged := &v1beta1.Volume{
					ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1beta1.AdoptedLabel: "true"}},
					Spec: v1beta1.VolumeSpec{
						Name: name, Node: other, Size: v1beta1.VolumeSize{Required: v1beta1.Quantity(mib)}, Mode: v1beta1.ModeFilesystem,
						SourceRef: l.Volume(l.target).Spec.SourceRef, Labels: map[string]string{v1beta1.CopyLabel: l.target, v1beta1.CopyUIDLabel: uid},
					},
				}
				forged = check.Got(theirs.Create(t.Context(), forged, metav1.CreateOptions{}))(t)
				t.Cleanup(func() { _ = l.Volumes().Delete(context.Background(), name, metav1.DeleteOptions{}) })
				inmemory.Made(forged)
				check.Got(theirs.UpdateStatus(t.Context(), forged, metav1.UpdateOptions{}))(t)
			}
			l.lead(forever)
			l.Until("the pod", func() bool { return l.pod(1) != nil && l.isBound() })
			l.wantOnlyItsPool()
		})
	}
}
