package kube

import (
	"cmp"
	"context"
	"io"
	"strings"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// The limits of the cache of warnings. A user who may create events in one namespace can write any number of them, give
// Holdfast as their source, and fill each field: the API server limits only the whole object, to 1.5 MiB.
const (
	warningsPerNamespace = 500 // the newest
	warningsPerPage      = 8   // a page of a list is decoded as a whole
	longestField         = 256 // bytes
	longestEventName     = 512 // bytes; an event with a longer name is ignored, since the name cannot be cut
)

// WarnsOfHoldfast returns whether an event is a warning that Holdfast or one of its sidecars recorded, or that concerns
// an object of Holdfast. namespace is that of Holdfast.
func WarnsOfHoldfast(e *core.Event, namespace string) bool {
	writer := cmp.Or(e.Source.Component, e.ReportingController)
	return e.Type == core.EventTypeWarning && (e.Namespace == namespace || strings.HasPrefix(writer, v1beta1.AppName) ||
		strings.HasPrefix(writer, v1beta1.DriverName) || strings.HasPrefix(writer, v1beta1.ProvisionerName) ||
		strings.HasPrefix(e.InvolvedObject.APIVersion, v1beta1.GroupName+"/"))
}

// slimWarning returns of a warning what is shown, each text cut.
func slimWarning(e *core.Event) *core.Event {
	short := func(text string) string { return Shorten(text, longestField) }
	slim := &core.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name, UID: e.UID, ResourceVersion: e.ResourceVersion, CreationTimestamp: e.CreationTimestamp},
		InvolvedObject: core.ObjectReference{
			APIVersion: short(e.InvolvedObject.APIVersion), Kind: short(e.InvolvedObject.Kind),
			Namespace: short(e.InvolvedObject.Namespace), Name: short(e.InvolvedObject.Name),
		},
		Type: e.Type, Reason: short(e.Reason), Message: Shorten(e.Message, longestMessage), Count: e.Count,
		Source: core.EventSource{Component: short(e.Source.Component)}, ReportingController: short(e.ReportingController),
		FirstTimestamp: e.FirstTimestamp, LastTimestamp: e.LastTimestamp, EventTime: e.EventTime,
	}
	if e.Series != nil {
		slim.Series = &core.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return slim
}

// warnings lists and watches the events of type Warning of all namespaces for an informer, and passes on those of
// Holdfast alone, without what is not shown, and of each namespace the newest. An informer that did this with a
// transform would cache the names of all, and read lists of them as a whole. No selector could exclude those of other
// programs: Holdfast records warnings on claims and pods in all namespaces, and its sidecars use names of their own.
type warnings struct {
	events    typed.EventInterface
	namespace string // of Holdfast

	mu     sync.Mutex                      // a watch that was stopped may still be at its last event
	cached map[string]map[string]time.Time // by namespace and name, when they occurred last
}

// newWarnings is for InformerFor of a factory.
func newWarnings(namespace string) func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
	return func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		w := &warnings{events: client.CoreV1().Events(metav1.NamespaceAll), namespace: namespace}
		source := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{ListWithContextFunc: w.list, WatchFuncWithContext: w.watch}, client)
		return cache.NewSharedIndexInformer(source, &core.Event{}, resync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	}
}

const onlyWarnings = "type=" + core.EventTypeWarning

// list is for API servers that do not stream lists. It reads all pages itself, since the informer would keep them until
// it has the last.
func (w *warnings) list(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	w.forget()
	found := map[types.NamespacedName]*core.Event{}
	options := metav1.ListOptions{FieldSelector: onlyWarnings, Limit: warningsPerPage}
	for {
		page, err := w.events.List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			for _, change := range w.changes(watch.Event{Type: watch.Added, Object: &page.Items[i]}) {
				e := change.Object.(*core.Event)
				switch name := (types.NamespacedName{Namespace: e.Namespace, Name: e.Name}); change.Type {
				case watch.Added:
					found[name] = e
				case watch.Deleted:
					delete(found, name)
				}
			}
		}
		if options.Continue = page.Continue; page.Continue == "" {
			all := &core.EventList{ListMeta: metav1.ListMeta{ResourceVersion: page.ResourceVersion}}
			for _, e := range found {
				all.Items = append(all.Items, *e)
			}
			return all, nil
		}
	}
}

func (w *warnings) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if options.SendInitialEvents != nil && *options.SendInitialEvents {
		w.forget()
	}
	options.FieldSelector = onlyWarnings
	all, err := w.events.Watch(ctx, options)
	if err != nil {
		return nil, err
	}
	return watch.NewStreamWatcher(&warningStream{Interface: all, changes: w.changes}, nil), nil
}

func (w *warnings) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cached = map[string]map[string]time.Time{}
}

// changes returns what an event of the watch changes in the cache.
func (w *warnings) changes(in watch.Event) []watch.Event {
	e, is := in.Object.(*core.Event)
	if !is || in.Type == watch.Bookmark {
		return []watch.Event{in}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	of := w.cached[e.Namespace]
	_, known := of[e.Name]
	ours := in.Type != watch.Deleted && len(e.Name) <= longestEventName && WarnsOfHoldfast(e, w.namespace)
	switch {
	case !ours && (known || in.Type == watch.Deleted):
		delete(of, e.Name)
		if len(of) == 0 {
			delete(w.cached, e.Namespace)
		}
		return []watch.Event{{Type: watch.Deleted, Object: slimWarning(e)}}
	case !ours:
		return []watch.Event{passed(e)}
	case of == nil:
		of = map[string]time.Time{}
		w.cached[e.Namespace] = of
	}
	of[e.Name] = LastOccurrence(e)
	if len(of) <= warningsPerNamespace {
		return []watch.Event{{Type: in.Type, Object: slimWarning(e)}}
	}
	return displace(of, in.Type, e)
}

// displace removes the oldest for a new warning, which may be the oldest itself. The removal comes last: the version of
// the new one is then the last only after it has arrived.
func displace(of map[string]time.Time, kind watch.EventType, e *core.Event) []watch.Event {
	oldest := e.Name
	for name, at := range of {
		if at.Before(of[oldest]) {
			oldest = name
		}
	}
	delete(of, oldest)
	if oldest == e.Name {
		return []watch.Event{passed(e)}
	}
	gone := &core.Event{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: oldest, ResourceVersion: e.ResourceVersion}}
	return []watch.Event{{Type: kind, Object: slimWarning(e)}, {Type: watch.Deleted, Object: gone}}
}

// passed advances the version from which a watch is continued, and changes nothing else: the API server sends no
// bookmarks for events, and forgets versions after some minutes.
func passed(e *core.Event) watch.Event {
	return watch.Event{Type: watch.Bookmark, Object: &core.Event{ObjectMeta: metav1.ObjectMeta{ResourceVersion: e.ResourceVersion}}}
}

// warningStream decodes what is to be cached out of a watch of all warnings.
type warningStream struct {
	watch.Interface
	changes func(watch.Event) []watch.Event
	next    []watch.Event
}

// Decode waits for the next change.
func (s *warningStream) Decode() (watch.EventType, runtime.Object, error) {
	for len(s.next) == 0 {
		in, open := <-s.ResultChan()
		if !open {
			return "", nil, io.EOF
		}
		s.next = s.changes(in)
	}
	e := s.next[0]
	s.next = s.next[1:]
	return e.Type, e.Object, nil
}

// Close ends Decode.
func (s *warningStream) Close() { s.Stop() }
