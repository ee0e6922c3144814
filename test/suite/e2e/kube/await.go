package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolswatch "k8s.io/client-go/tools/watch"
)

// Source lists and watches the objects of one kind: every client of client-go is one.
type Source[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// Object is a pointer to one of Kubernetes' objects.
type Object interface {
	runtime.Object
	metav1.Object
}

// Patience is how long a test waits for one thing, on a busy machine too. It is only ever used up by a test that fails.
const Patience = 5 * time.Minute

// Named selects one object.
func Named(name string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: "metadata.name=" + name}
}

// Await follows the selected objects until done accepts them all together, sorted by name, and returns them; none is
// a state as well. An error of done ends the wait. The test fails with what was seen last when the patience ends.
func Await[T Object, L runtime.Object](s *Space, source Source[L], selector metav1.ListOptions, what string, done func([]T) (bool, error)) []T {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), Patience)
	defer cancel()
	objects, err := await(ctx, source, selector, done)
	if err != nil {
		s.t.Fatalf("waiting for %s: %v\n%s", what, err, s.describe(objects...))
	}
	return typed[T](objects)
}

// AwaitOne is Await for the one object of a name, which may be made later.
func AwaitOne[T Object, L runtime.Object](s *Space, source Source[L], name, what string, done func(T) (bool, error)) T {
	s.t.Helper()
	return Await(s, source, Named(name), name+" "+what, func(found []T) (bool, error) {
		if len(found) == 0 {
			return false, nil
		}
		return done(found[0])
	})[0]
}

// AwaitNone waits until no selected object is left.
func AwaitNone[L runtime.Object](s *Space, source Source[L], selector metav1.ListOptions, what string) {
	s.t.Helper()
	Await(s, source, selector, "the end of "+what, none)
}

func none(found []Object) (bool, error) { return len(found) == 0, nil }

// again is how long a wait pauses when the API server has ended a watch or cannot be reached.
const again = 100 * time.Millisecond

// await returns the objects that done has accepted, or those seen last with the reason.
func await[T Object, L runtime.Object](ctx context.Context, source Source[L], selector metav1.ListOptions, done func([]T) (bool, error)) ([]Object, error) {
	var seen []Object
	look := func(now map[string]Object) (bool, error) {
		seen = sorted(now)
		return done(typed[T](seen))
	}
	for {
		decided, err := follow(ctx, source, selector, look)
		if decided {
			return seen, err
		}
		select {
		case <-ctx.Done():
			return seen, fmt.Errorf("given up: %w", errors.Join(context.Cause(ctx), err))
		case <-time.After(again):
		}
	}
}

// follow lists and watches until look decides, which its error does too, or the watch ends.
func follow[L runtime.Object](ctx context.Context, source Source[L], selector metav1.ListOptions, look func(map[string]Object) (bool, error)) (decided bool, err error) {
	now, version, err := listed(ctx, source, selector)
	if err != nil {
		return false, err
	}
	if ok, err := look(now); ok || err != nil {
		return true, err
	}
	selector.ResourceVersion = version
	watching, err := source.Watch(ctx, selector)
	if err != nil {
		return false, err
	}
	defer watching.Stop()
	_, err = toolswatch.UntilWithoutRetry(ctx, watching, func(event watch.Event) (bool, error) {
		if event.Type == watch.Error {
			return false, apierrors.FromObject(event.Object)
		}
		change(now, event)
		ok, err := look(now)
		decided = ok || err != nil
		return ok, err
	})
	return decided, err
}

func listed[L runtime.Object](ctx context.Context, source Source[L], selector metav1.ListOptions) (now map[string]Object, version string, err error) {
	list, err := source.List(ctx, selector)
	if err != nil {
		return nil, "", err
	}
	now = map[string]Object{}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		change(now, watch.Event{Type: watch.Added, Object: item})
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	of, err := meta.ListAccessor(list)
	if err != nil {
		return nil, "", err
	}
	return now, of.GetResourceVersion(), nil
}

func change(now map[string]Object, event watch.Event) {
	object, ok := event.Object.(Object)
	switch {
	case !ok:
	case event.Type == watch.Deleted:
		delete(now, keyOf(object))
	default:
		now[keyOf(object)] = object
	}
}

func keyOf(object Object) string { return object.GetNamespace() + "/" + object.GetName() }

func sorted(objects map[string]Object) []Object {
	return slices.SortedFunc(maps.Values(objects), func(a, b Object) int { return strings.Compare(keyOf(a), keyOf(b)) })
}

func typed[T Object](objects []Object) []T {
	result := make([]T, len(objects))
	for i, object := range objects {
		result[i] = object.(T) // a source lists one kind
	}
	return result
}

// kindOf names an object's kind, which typed clients leave out.
func kindOf(object runtime.Object) string {
	if kind := object.GetObjectKind().GroupVersionKind().Kind; kind != "" {
		return strings.ToLower(kind)
	}
	name := fmt.Sprintf("%T", object)
	return strings.ToLower(name[strings.LastIndex(name, ".")+1:])
}
