package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// noStreams is an API server that does not stream lists.
type noStreams struct{ http.RoundTripper }

func (s noStreams) RoundTrip(r *http.Request) (*http.Response, error) {
	if !r.URL.Query().Has("sendInitialEvents") {
		return s.RoundTripper.RoundTrip(r)
	}
	return answer(r, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid), nil
}

func answer(q *http.Request, code int, reason metav1.StatusReason) *http.Response {
	body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":"no","code":%d}`, reason, code)
	header := http.Header{"Content-Type": {"application/json"}}
	return &http.Response{StatusCode: code, Header: header, Request: q, Body: io.NopCloser(strings.NewReader(body))}
}

type warningRig struct {
	*testing.T
	client kubernetes.Interface
	cached cache.SharedIndexInformer
}

// eachWay runs a test with an API server that streams lists, and with one that does not.
func eachWay(t *testing.T, test func(r *warningRig, config *rest.Config)) {
	for name, wrap := range map[string]func(http.RoundTripper) http.RoundTripper{
		"streamed": nil, "listed": func(next http.RoundTripper) http.RoundTripper { return noStreams{next} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := miniapi.New(t).Config()
				r := &warningRig{T: t, client: kubernetes.NewForConfigOrDie(config)}
				if wrap != nil {
					config.Wrap(wrap)
				}
				test(r, config)
			})
		})
	}
}

// watch caches the warnings of a cluster whose Holdfast is in holdfast-system.
func (r *warningRig) watch(config *rest.Config) {
	r.Helper()
	w := NewWatches(r.Context(), holdfast.NewForConfigOrDie(config), kubernetes.NewForConfigOrDie(config), "holdfast-system")
	r.cached = w.Warnings()
	registered := check.Got(r.cached.AddEventHandler(cache.ResourceEventHandlerFuncs{}))(r)
	w.Start()
	if !cache.WaitFor(r.Context(), "", registered.HasSyncedChecker()) {
		r.Fatal("they were not listed")
	}
}

func (r *warningRig) names() (names []string) {
	for _, o := range r.cached.GetStore().List() {
		names = append(names, o.(*core.Event).Name)
	}
	slices.Sort(names)
	return names
}

// eventually waits until the cache has what it should.
func (r *warningRig) eventually(so func() bool) {
	r.Helper()
	wait.For(r, "the cache with what it should have", func() error {
		if !so() {
			return fmt.Errorf("cached are %v", r.names())
		}
		return nil
	})
}

func (r *warningRig) create(e *core.Event) {
	r.Helper()
	check.Got(r.client.CoreV1().Events(e.Namespace).Create(r.Context(), e, metav1.CreateOptions{}))(r)
}

// warning is one of Holdfast about a claim, that many seconds after the first.
func warning(namespace, name string, after int) *core.Event {
	return &core.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: core.EventTypeWarning, Reason: "NoRoom", Message: "of " + name,
		LastTimestamp: metav1.Unix(1e9+int64(after), 0), Count: 3, Source: core.EventSource{Component: "holdfast-controller"},
		InvolvedObject: core.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: "data"},
	}
}

func TestWarnings_OfHoldfastAloneAreCached(t *testing.T) {
	eachWay(t, func(r *warningRig, config *rest.Config) {
		warn := func(name, namespace, component, apiVersion string) {
			r.create(&core.Event{
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Type: core.EventTypeWarning, Source: core.EventSource{Component: component},
				InvolvedObject: core.ObjectReference{APIVersion: apiVersion},
			})
		}
		warn("a-in-our-namespace", "holdfast-system", "kubelet", "v1")
		warn("b-by-us", "shop", "holdfast", "v1")
		warn("c-by-the-provisioner", "shop", "csi.holdfast.dev_pod_1", "v1")
		warn("d-by-the-nfs-provisioner", "shop", "nfs.holdfast.dev", "v1")
		warn("e-about-ours", "shop", "kubelet", "holdfast.dev/v1beta1")
		warn("of-another", "shop", "kubelet", "v1")
		r.watch(config)
		if names := r.names(); len(names) != 5 || slices.Contains(names, "of-another") {
			r.Errorf("cached are %v", names)
		}
		warn("another-later", "shop", "kubelet", "v1")
		warn("f-later", "shop", "holdfast", "v1")
		r.eventually(func() bool { return slices.Contains(r.names(), "f-later") })
		if names := r.names(); len(names) != 6 {
			r.Errorf("cached are %v", names)
		}
		check.OK(r, r.client.CoreV1().Events("shop").Delete(r.Context(), "f-later", metav1.DeleteOptions{}))
		r.eventually(func() bool { return !slices.Contains(r.names(), "f-later") })
	})
}

// A user who may create events in a namespace decides what is in them.
func TestWarnings_HugeOnesAreCachedWithoutWhatIsNotShown(t *testing.T) {
	eachWay(t, func(r *warningRig, config *rest.Config) {
		huge := strings.Repeat("é", 1<<14)
		e := warning("shop", "huge", 5)
		e.Message, e.Reason, e.Action, e.ReportingController, e.ReportingInstance = huge, huge, huge, huge, huge
		e.Source = core.EventSource{Component: "holdfast-" + huge, Host: huge}
		e.InvolvedObject = core.ObjectReference{APIVersion: huge, Kind: huge, Namespace: "shop", Name: huge, UID: types.UID(huge), FieldPath: huge, ResourceVersion: huge}
		e.Related, e.Series = &core.ObjectReference{Name: huge}, &core.EventSeries{Count: 7, LastObservedTime: metav1.NewMicroTime(time.Unix(2e9, 0))}
		e.Annotations, e.Labels, e.Finalizers = map[string]string{"a": huge}, map[string]string{"a": huge}, []string{huge}
		r.create(e)
		r.create(warning("shop", strings.Repeat("n", longestEventName+1), 5))
		r.watch(config)
		r.create(warning("shop", "small", 6))
		r.eventually(func() bool { return slices.Contains(r.names(), "small") })
		if names := r.names(); len(names) != 2 {
			r.Fatalf("%d are cached", len(names))
		}
		for _, o := range r.cached.GetStore().List() {
			got := o.(*core.Event)
			document, err := json.Marshal(got)
			if err != nil || len(document) > 4<<10 || !utf8.ValidString(got.Message) {
				r.Errorf("%s has %d bytes, %v", got.Name, len(document), err)
			}
			switch got.Name {
			case "small":
				want := warning("shop", "small", 6)
				want.UID, want.ResourceVersion, want.CreationTimestamp = got.UID, got.ResourceVersion, got.CreationTimestamp
				if string(check.Got(json.Marshal(want))(r)) != string(document) {
					r.Errorf("nothing was to be cut: %+v", got)
				}
			case "huge":
				if !strings.HasPrefix(got.Message, "ééé") || len(got.Message) < 1000 || len(got.Message) > 1024 || got.Series.Count != 7 || !WarnsOfHoldfast(got, "holdfast-system") {
					r.Errorf("%d bytes: %+v", len(got.Message), got)
				}
			}
		}
	})
}

func TestWarnings_NewestOfEachNamespaceAreCached(t *testing.T) {
	eachWay(t, func(r *warningRig, config *rest.Config) {
		const more = 20
		for i := range warningsPerNamespace + more {
			r.create(warning("loud", fmt.Sprintf("%03d", i), i*7919%(warningsPerNamespace+more))) // the order of names is not that of time
		}
		r.create(warning("quiet", "old", -1000))
		r.watch(config)
		oldest := func() (at time.Time) {
			at = time.Unix(2e9, 0)
			for _, o := range r.cached.GetStore().List() {
				if e := o.(*core.Event); e.Namespace == "loud" && e.LastTimestamp.Time.Before(at) {
					at = e.LastTimestamp.Time
				}
			}
			return at
		}
		if names := r.names(); len(names) != warningsPerNamespace+1 || names[len(names)-1] != "old" || oldest().Unix() != 1e9+more {
			r.Errorf("%d are cached, the oldest of %d", len(names), oldest().Unix()-1e9)
		}
		r.create(warning("loud", "late", 5000))
		r.eventually(func() bool { return slices.Contains(r.names(), "late") && len(r.names()) == warningsPerNamespace+1 })
		if oldest().Unix() != 1e9+more+1 {
			r.Errorf("the oldest is of %d", oldest().Unix()-1e9)
		}
		r.create(warning("loud", "from-before", 0))
		r.create(warning("quiet", "later", 0))
		r.eventually(func() bool { return slices.Contains(r.names(), "later") })
		if names := r.names(); len(names) != warningsPerNamespace+2 || slices.Contains(names, "from-before") {
			r.Errorf("%d are cached", len(names))
		}
	})
}

// inPages answers a list as the API server does.
type inPages struct {
	typed.EventInterface
	all     []core.Event
	largest int
}

func (p *inPages) List(_ context.Context, o metav1.ListOptions) (*core.EventList, error) {
	from, _ := strconv.Atoi(o.Continue) // empty: from the beginning
	to := len(p.all)
	list := &core.EventList{ListMeta: metav1.ListMeta{ResourceVersion: "77"}}
	if o.Limit > 0 && from+int(o.Limit) < to {
		to = from + int(o.Limit)
		list.Continue = strconv.Itoa(to)
	}
	list.Items = p.all[from:to]
	p.largest = max(p.largest, to-from)
	return list, nil
}

func TestWarnings_AreListedInSmallPages(t *testing.T) {
	pages := &inPages{}
	for i := range 1000 {
		pages.all = append(pages.all, *warning("shop", strconv.Itoa(i), i))
	}
	w := &warnings{events: pages, namespace: "holdfast-system"}
	list := check.Got(w.list(t.Context(), metav1.ListOptions{ResourceVersion: "0", Limit: 500}))(t)
	if l := list.(*core.EventList); len(l.Items) != warningsPerNamespace || l.ResourceVersion != "77" || l.Continue != "" {
		t.Errorf("%d of version %s, continued at %q", len(l.Items), l.ResourceVersion, l.Continue)
	}
	if pages.largest != warningsPerPage {
		t.Errorf("a page has %d", pages.largest)
	}
}

func TestWarnings_WatchAdvancesWithThoseThatAreNotCached(t *testing.T) {
	w := &warnings{namespace: "holdfast-system", cached: map[string]map[string]time.Time{}}
	at := func(e *core.Event, version string) *core.Event { e.ResourceVersion = version; return e }
	other := func(version string) *core.Event {
		e := at(warning("shop", "a", 0), version)
		e.Source.Component = "kubelet"
		return e
	}
	for i, step := range []struct {
		kind watch.EventType
		of   *core.Event
		want watch.EventType
	}{
		{watch.Added, other("1"), watch.Bookmark},
		{watch.Modified, at(warning("shop", "a", 0), "2"), watch.Modified},
		{watch.Modified, other("3"), watch.Deleted},
		{watch.Modified, other("4"), watch.Bookmark},
		{watch.Added, at(warning("shop", "b", 0), "5"), watch.Added},
		{watch.Deleted, at(warning("shop", "b", 0), "6"), watch.Deleted},
	} {
		got := w.changes(watch.Event{Type: step.kind, Object: step.of})
		if len(got) != 1 || got[0].Type != step.want || got[0].Object.(*core.Event).ResourceVersion != step.of.ResourceVersion {
			t.Errorf("step %d: %+v", i, got)
		}
	}
	if len(w.cached) > 0 {
		t.Errorf("remembered are %v", w.cached)
	}
	end := &metav1.Status{Code: http.StatusGone}
	if got := w.changes(watch.Event{Type: watch.Error, Object: end}); len(got) != 1 || got[0].Type != watch.Error || got[0].Object != end {
		t.Errorf("an error became %+v", got)
	}
}
