package kube

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	holdfast "github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// Space is the namespace of one test, and the test. Methods without an error among their results fail the test.
type Space struct {
	*Cluster
	Namespace string
	// Home is the node of pods that ask for none: other nodes are slow, and may lose their power in another test.
	Home string
	t    testing.TB
	ends []func(context.Context) error
}

// In is the namespace for a subtest, which may use it until the test itself ends it.
func (s *Space) In(t testing.TB) *Space {
	return &Space{Cluster: s.Cluster, Namespace: s.Namespace, Home: s.Home, t: t}
}

// BeforeEnd has something done before the namespace is emptied, after what a failed test leaves was collected.
func (s *Space) BeforeEnd(do func(context.Context) error) { s.ends = append(s.ends, do) }

var (
	snapshots        = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"}
	snapshotContents = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotcontents"}
)

// Space makes a namespace that is named after the test. With the test it ends, and its volumes with it; if the test
// has failed, what the cluster knows of it is collected first.
func (c *Cluster) Space(t testing.TB) *Space {
	t.Helper()
	ctx := t.Context()
	made, err := c.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: namespaceOf(t.Name()) + "-",
		// Users' pods need no privileges, whatever their volumes are.
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "baseline", runLabel: c.run},
	}}, metav1.CreateOptions{})
	check.OK(t, err)
	s := &Space{Cluster: c, Namespace: made.Name, t: t}
	t.Cleanup(s.end)
	nodes := c.Nodes(t)
	if len(nodes) == 0 {
		t.Fatal("no node is ready")
	}
	s.Home = nodes[0]
	AwaitOne(s, c.Client.CoreV1().ServiceAccounts(s.Namespace), "default", "to be made, without which there are no pods",
		func(*corev1.ServiceAccount) (bool, error) { return true, nil })
	return s
}

var (
	hump    = regexp.MustCompile(`[A-Z][^A-Z]*|^[^A-Z]+`)
	foreign = regexp.MustCompile(`[^a-z0-9]+`)
)

// namespaceOf makes the words of a test's name those of a namespace, with room for a suffix.
func namespaceOf(test string) string {
	test = strings.TrimPrefix(test, "Test")
	words := foreign.ReplaceAllString(strings.ToLower(strings.Join(hump.FindAllString(test, -1), "-")), "-")
	return strings.Trim(words[:min(len(words), 50)], "-")
}

// end collects what a failed test leaves behind, and removes the namespace.
func (s *Space) end() {
	// The test's context has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), 2*Patience)
	defer cancel()
	failed := s.t.Failed()
	if failed {
		s.keep(ctx)
	}
	if err := s.remove(ctx); err != nil {
		s.t.Errorf("removing namespace %s: %v", s.Namespace, err)
		if !failed {
			s.keep(context.WithoutCancel(ctx))
		}
	}
}

// remove waits for the end of the volumes, but not for that of the namespace, which its controller leaves alone for
// five seconds; Close waits for all of them.
func (s *Space) remove(ctx context.Context) error {
	var errs []error
	for _, do := range slices.Backward(s.ends) {
		errs = append(errs, do(ctx))
	}
	return errors.Join(errors.Join(errs...), s.Empty(ctx), s.Client.CoreV1().Namespaces().Delete(ctx, s.Namespace, metav1.DeleteOptions{}))
}

// Discard asks for the end of the selected pods, snapshots and claims.
func (s *Space) Discard(ctx context.Context, selector metav1.ListOptions) error {
	now, core := metav1.DeleteOptions{}, s.Client.CoreV1()
	return errors.Join(
		core.Pods(s.Namespace).DeleteCollection(ctx, now, selector),
		holdfast.IgnoreNotFound(s.Snapshots().DeleteCollection(ctx, now, selector)), // its kind may be gone with Holdfast
		core.PersistentVolumeClaims(s.Namespace).DeleteCollection(ctx, now, selector),
	)
}

// Empty ends all pods, snapshots and claims of the test, and waits until their volumes are gone.
func (s *Space) Empty(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	core, contents := s.Client.CoreV1(), s.SnapshotContents()
	pods, claims, all := core.Pods(s.Namespace), core.PersistentVolumeClaims(s.Namespace), metav1.ListOptions{}
	if err := s.Discard(ctx, all); err != nil {
		return err
	}
	err := errors.Join(
		ended(ctx, s.Cluster, pods, all, every),
		ended(ctx, s.Cluster, claims, all, every),
		ended(ctx, s.Cluster, core.PersistentVolumes(), all, s.isVolume),
	)
	if _, unknown := contents.List(ctx, all); apierrors.IsNotFound(unknown) {
		return err
	}
	return errors.Join(err, ended(ctx, s.Cluster, contents, all, s.isContent))
}

// ended waits until none of the selected objects is left that is the test's own.
func ended[L runtime.Object](ctx context.Context, c *Cluster, source Source[L], selector metav1.ListOptions, own func(Object) bool) error {
	left, err := await(ctx, source, selector, func(all []Object) (bool, error) { return !slices.ContainsFunc(all, own), nil })
	if err != nil {
		left = slices.DeleteFunc(left, func(object Object) bool { return !own(object) })
		return fmt.Errorf("%w\n%s", err, c.describe(left...))
	}
	return nil
}

func every(Object) bool { return true }

func (s *Space) isVolume(object Object) bool {
	volume, ok := object.(*corev1.PersistentVolume)
	return ok && volume.Spec.ClaimRef != nil && volume.Spec.ClaimRef.Namespace == s.Namespace
}

func (s *Space) isContent(object Object) bool {
	content, ok := object.(*unstructured.Unstructured)
	if !ok {
		return false
	}
	namespace, _, _ := unstructured.NestedString(content.Object, "spec", "volumeSnapshotRef", "namespace") // it is required
	return namespace == s.Namespace
}
