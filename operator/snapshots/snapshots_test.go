package snapshots

import (
	"context"
	"log/slog"
	"os"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
)

func TestMain(m *testing.M) { os.Exit(realapi.Main(m)) }

// site is an API server without the kinds of snapshots.
type site struct {
	*testing.T
	client dynamic.Interface
	kinds  *Kinds
}

func newSite(t *testing.T) *site {
	t.Helper()
	client := dynamic.NewForConfigOrDie(realapi.Config(t))
	s := &site{t, client, New(client, slog.New(slog.DiscardHandler))}
	t.Cleanup(func() { s.clear(context.WithoutCancel(t.Context())) })
	s.clear(t.Context())
	return s
}

func (s *site) wanted() []*unstructured.Unstructured {
	s.Helper()
	all := deploy.SnapshotDefinitions()
	if len(all) != 6 {
		s.Fatalf("%d kinds", len(all))
	}
	return all
}

func (s *site) clear(ctx context.Context) {
	s.Helper()
	for _, d := range s.wanted() {
		if err := s.client.Resource(kube.Definitions).Delete(ctx, d.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			s.Fatal(err)
		}
		s.gone(ctx, d.GetName())
	}
}

func (s *site) gone(ctx context.Context, kind string) {
	s.Helper()
	s.until(ctx, kind, func(e watch.Event) bool { return e.Type == watch.Deleted }, func(is *unstructured.Unstructured) bool { return is == nil })
}

// established waits until the API server serves a kind.
func (s *site) established(kind string) {
	s.Helper()
	s.until(s.Context(), kind, func(e watch.Event) bool { return realapi.Established(e.Object.(*unstructured.Unstructured)) }, realapi.Established)
}

func (s *site) until(ctx context.Context, kind string, shows func(watch.Event) bool, is func(*unstructured.Unstructured) bool) {
	s.Helper()
	named := metav1.ListOptions{FieldSelector: "metadata.name=" + kind}
	list := check.Got(s.client.Resource(kube.Definitions).List(ctx, named))(s)
	var now *unstructured.Unstructured
	if len(list.Items) > 0 {
		now = &list.Items[0]
	}
	if is(now) {
		return
	}
	named.ResourceVersion = list.GetResourceVersion()
	w := check.Got(s.client.Resource(kube.Definitions).Watch(ctx, named))(s)
	defer w.Stop()
	for e := range w.ResultChan() {
		if shows(e) {
			return
		}
	}
	s.Fatalf("the watch of %s ended", kind)
}

func (s *site) generations() map[string]int64 {
	s.Helper()
	all := map[string]int64{}
	for _, d := range s.wanted() {
		is, err := s.client.Resource(kube.Definitions).Get(s.Context(), d.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		check.OK(s, err)
		all[d.GetName()] = is.GetGeneration()
	}
	return all
}

func TestKinds_AreInstalledWhereMissingAndRemovedWhenUnused(t *testing.T) {
	s := newSite(t)
	for range 2 { // also by the process after
		s.kinds = New(s.client, slog.New(slog.DiscardHandler))
		if err := s.kinds.Bring(t.Context()); err != nil || !s.kinds.Ours() || !s.kinds.Looked() {
			t.Fatalf("ours %v, %v", s.kinds.Ours(), err)
		}
	}
	for _, d := range s.wanted() {
		s.established(d.GetName())
	}
	for kind, generation := range s.generations() {
		if generation != 1 {
			t.Errorf("%s was changed: generation %d", kind, generation)
		}
	}

	classes := s.client.Resource(schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotclasses"})
	class := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass", "metadata": map[string]any{"name": "theirs"},
		"driver": "example.com", "deletionPolicy": "Delete",
	}}
	check.Got(classes.Create(t.Context(), class, metav1.CreateOptions{}))(t)
	if kept, err := s.kinds.Remove(t.Context()); err != nil || kept != "volumesnapshotclasses.snapshot.storage.k8s.io" {
		t.Errorf("kept for %q, %v", kept, err)
	}
	if left := s.generations(); len(left) != 6 {
		t.Errorf("left are %v", left)
	}
	check.OK(t, classes.Delete(t.Context(), "theirs", metav1.DeleteOptions{}))
	for range 2 {
		if kept, err := s.kinds.Remove(t.Context()); err != nil || kept != "" || s.kinds.Ours() {
			t.Errorf("kept for %q, ours %v, %v", kept, s.kinds.Ours(), err)
		}
	}
	for _, d := range s.wanted() {
		s.gone(t.Context(), d.GetName())
	}
}

func TestKinds_ForeignOnesAreLeftAlone(t *testing.T) {
	s := newSite(t)
	for _, d := range s.wanted() {
		if d.GetName() != volumeSnapshots {
			continue
		}
		check.Got(s.client.Resource(kube.Definitions).Create(t.Context(), d, metav1.CreateOptions{}))(t)
	}
	if err := s.kinds.Bring(t.Context()); err != nil || s.kinds.Ours() {
		t.Errorf("ours %v, %v", s.kinds.Ours(), err)
	}
	if kept, err := s.kinds.Remove(t.Context()); err != nil || kept != "" {
		t.Errorf("kept for %q, %v", kept, err)
	}
	if left := s.generations(); len(left) != 1 {
		t.Errorf("there are %v", left)
	}
}

// A client that waits for the kinds looks for those of groups next.
func TestKinds_OfSnapshotsExistWhenThoseOfGroupsDo(t *testing.T) {
	s := newSite(t)
	there := make(chan error, 1)
	go func() { there <- Await(t.Context(), s.client) }()
	all := s.wanted()
	if last := all[len(all)-1].GetName(); last != volumeSnapshots {
		t.Fatalf("the last that is made is %s", last)
	}
	for _, d := range all[:len(all)-1] {
		check.Got(s.client.Resource(kube.Definitions).Create(t.Context(), d, metav1.CreateOptions{}))(t)
		s.established(d.GetName())
	}
	select {
	case err := <-there:
		t.Fatalf("without %s all are there, %v", volumeSnapshots, err)
	default:
	}
	s.clear(t.Context())
	check.OK(t, s.kinds.Bring(t.Context()))
	check.OK(t, <-there)
	for _, d := range all[:len(all)-1] {
		if _, err := s.client.Resource(kube.Definitions).Get(t.Context(), d.GetName(), metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
}
