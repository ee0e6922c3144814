package cluster

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"golang.org/x/sync/errgroup"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/definitions"
	"github.com/holdfast-storage/holdfast/test/rig/alongside"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/recorder"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestMain(m *testing.M) { os.Exit(realapi.Main(m)) }

// rig is a controller over a real API server.
type rig struct {
	*testing.T
	config  *rest.Config
	ours    holdfast.Interface
	theirs  kubernetes.Interface
	objects dynamic.Interface
	about   metadata.Interface
	mapper  meta.RESTMapper
	set     *apply.Set
	events  *recorder.Recorder
	traffic *traffic
	log     *slog.Logger
	// served is the discovery of an API in memory, which has none; nil asks the API server.
	served func(groupVersion string) (*metav1.APIResourceList, error)

	controller *Controller
	stop       func()

	remakeAfter time.Duration // of the controller; 0 is a moment
}

var background = context.Background() // for what cleans up

const namespace = realapi.Namespace

// newRig has clients, and takes away in the end what was made. start begins the controller.
func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t, config: realapi.Config(t), events: &recorder.Recorder{}, traffic: &traffic{}}
	r.config.QPS = -1
	r.ours, r.theirs = holdfast.NewForConfigOrDie(r.config), kubernetes.NewForConfigOrDie(r.config)
	r.objects, r.about = dynamic.NewForConfigOrDie(r.config), metadata.NewForConfigOrDie(r.config)
	r.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(r.theirs.Discovery()))
	r.install()
	t.Cleanup(r.sweep)
	return r
}

// running is a rig whose controller has applied a StorageCluster.
func running(t *testing.T, change func(*v1beta1.StorageClusterSpec)) *rig {
	t.Helper()
	r := newRig(t).start()
	r.create("holdfast", change)
	r.reconciled("holdfast")
	return r
}

// install makes what is there before the operator: the namespace and the kinds. A test before may have removed them.
func (r *rig) install() {
	r.Helper()
	wait.Until(r, "the namespace", func() bool {
		_, err := r.theirs.CoreV1().Namespaces().Create(r.Context(), home(), metav1.CreateOptions{})
		if err == nil {
			return true
		}
		ns, err := r.theirs.CoreV1().Namespaces().Get(r.Context(), namespace, metav1.GetOptions{})
		return err == nil && ns.DeletionTimestamp == nil
	})
	wait.Until(r, "the controller's account", func() bool {
		account := &core.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: v1beta1.ControllerName}}
		_, err := r.theirs.CoreV1().ServiceAccounts(namespace).Create(r.Context(), account, metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err)
	})
	wait.Until(r, "the definitions", func() bool { return r.define() == nil })
	wait.Until(r, "the kinds being served", func() bool {
		for _, name := range slices.Concat(ownDefinitions, dataDefinitions) {
			plural, _, _ := strings.Cut(name, ".")
			kind := r.objects.Resource(v1beta1.SchemeGroupVersion.WithResource(plural))
			if _, err := kind.List(r.Context(), metav1.ListOptions{Limit: 1}); err != nil {
				return false
			}
		}
		return true
	})
}

// home is the namespace as the manifest has it.
func home() *core.Namespace {
	labels := map[string]string{v1beta1.NameLabel: v1beta1.AppName, v1beta1.PartOfLabel: v1beta1.AppName}
	return &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: labels}}
}

// defined is what the definitions were when the rig had applied them, by name.
var defined = map[string]string{}

// contentOf changes with an object, but not with its metadata.
func contentOf(o metav1.Object) string { return fmt.Sprint(o.GetUID(), o.GetGeneration()) }

// define applies the definitions, but for those that are as it left them: they are large.
func (r *rig) define() error {
	r.Helper()
	there, err := r.definitions(r.Context())
	if err != nil {
		return err
	}
	for _, name := range slices.Concat(ownDefinitions, dataDefinitions) {
		if was, ok := there[name]; ok && defined[name] == contentOf(&was) && was.DeletionTimestamp == nil {
			continue
		}
		plural, group, _ := strings.Cut(name, ".")
		d := decodeFile(r.T, fmt.Sprintf("../../deploy/crds/%s_%s.yaml", group, plural))[0]
		now, err := r.objects.Resource(kube.Definitions).Apply(r.Context(), name, d, metav1.ApplyOptions{FieldManager: "test", Force: true})
		if err != nil {
			return err
		}
		defined[name] = contentOf(now)
	}
	return nil
}

// definitions returns what of the definitions of this package is no part of their content.
func (r *rig) definitions(ctx context.Context) (map[string]metav1.PartialObjectMetadata, error) {
	all, err := r.about.Resource(kube.Definitions).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	ours := map[string]metav1.PartialObjectMetadata{}
	for _, d := range all.Items {
		if slices.Contains(ownDefinitions, d.Name) || slices.Contains(dataDefinitions, d.Name) {
			ours[d.Name] = d
		}
	}
	return ours, nil
}

// start runs a controller until the test ends or stop is called.
func (r *rig) start() *rig {
	r.Helper()
	config := rest.CopyConfig(r.config)
	config.Wrap(r.traffic.wrap)
	ours, theirs := holdfast.NewForConfigOrDie(config), kubernetes.NewForConfigOrDie(config)
	log := r.log
	if log == nil {
		log = slog.New(slog.NewTextHandler(r.Output(), nil))
	}
	served := r.served
	if served == nil {
		served = theirs.Discovery().ServerResourcesForGroupVersion
	}
	var err error
	r.set, err = apply.New(apply.Config{
		Client: dynamic.NewForConfigOrDie(config), Resources: served,
		Kinds: Kinds(), Name: "cluster", Namespace: namespace, Stranger: apply.TellOfStranger(theirs), Log: log,
	})
	check.OK(r, err)
	kinds, err := definitions.New(definitions.Config{
		Client: ours, Kubernetes: theirs, Dynamic: dynamic.NewForConfigOrDie(config), Namespace: namespace, Owners: []definitions.Owner{r.set}, Log: log,
	})
	check.OK(r, err)
	ctx, cancel := context.WithCancel(context.Background())
	c := Config{
		Kinds:  kinds,
		Client: ours, Kubernetes: theirs, Owned: r.set, Namespace: namespace, Driver: "csi.holdfast.dev", Events: r.events, Log: log,
		Watches:     kube.NewWatches(ctx, ours, theirs, namespace),
		StatusDelay: 50 * time.Millisecond, RemakeAfter: cmp.Or(r.remakeAfter, 300*time.Millisecond),
	}
	controller, err := New(c)
	check.OK(r, err)
	r.controller = controller
	c.Watches.Start()
	for _, start := range []func(context.Context) error{kinds.Start, r.set.Start} {
		check.OK(r, start(ctx))
	}
	r.stop = alongside.Run(ctx, r, cancel, func(ctx context.Context) error {
		var both errgroup.Group
		both.Go(func() error { return kinds.Run(ctx) })
		both.Go(func() error { return controller.Run(ctx) })
		return both.Wait()
	})
	return r
}

// sweep removes what a test left, by hand: the controller may be what is broken.
func (r *rig) sweep() {
	if r.Failed() {
		r.Log(r.describe())
	}
	if r.stop != nil {
		r.stop()
	}
	ctx := context.Background()
	// Or the garbage collector would remove what the next test needs.
	stray := []byte(`{"metadata":{"ownerReferences":null,"labels":{"app.kubernetes.io/managed-by":null}}}`)
	definitions, err := r.definitions(ctx)
	check.Report(r, err)
	for name, d := range definitions {
		if _, managed := d.Labels[apply.ManagedByLabel]; managed || len(d.OwnerReferences) > 0 {
			_, _ = r.about.Resource(kube.Definitions).Patch(ctx, name, types.MergePatchType, stray, metav1.PatchOptions{})
		}
	}
	_, _ = r.theirs.CoreV1().Namespaces().Patch(ctx, namespace, types.MergePatchType, stray, metav1.PatchOptions{})
	free := []byte(`{"metadata":{"finalizers":null}}`)
	for _, resource := range []string{"storageclusters", "storageupgrades", "nodejobs", "volumes", "snapshots", "storagenodes"} {
		kind := r.objects.Resource(v1beta1.SchemeGroupVersion.WithResource(resource))
		all, err := kind.List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for _, o := range all.Items {
			if resource == "storagenodes" { // with clients of Ceph clusters it stays
				_, _ = kind.Patch(ctx, o.GetName(), types.MergePatchType, []byte(`{"status":{"cephClients":null}}`), metav1.PatchOptions{}, "status")
			}
			_ = kind.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
			_, _ = kind.Patch(ctx, o.GetName(), types.MergePatchType, free, metav1.PatchOptions{})
		}
	}
	for _, kind := range Kinds() {
		if kind == definitionKind || kind == namespaceKind {
			continue
		}
		mapping, err := r.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			continue
		}
		_ = r.client(mapping).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: apply.ManagedByLabel + "=" + apply.FieldManager})
	}
}

func (r *rig) client(m *meta.RESTMapping) dynamic.ResourceInterface {
	if m.Scope.Name() == meta.RESTScopeNameNamespace {
		return r.objects.Resource(m.Resource).Namespace(namespace)
	}
	return r.objects.Resource(m.Resource)
}

// of returns the client for the kind of an object.
func (r *rig) of(o *unstructured.Unstructured) dynamic.ResourceInterface {
	r.Helper()
	mapping := check.Got(r.mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version))(r)
	return r.client(mapping)
}

// create makes a StorageCluster.
func (r *rig) create(name string, change func(*v1beta1.StorageClusterSpec)) *v1beta1.StorageCluster {
	r.Helper()
	c := &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.Images.Holdfast = "holdfast.test/pause:1"
	if change != nil {
		change(&c.Spec)
	}
	return check.Got(r.ours.HoldfastV1beta1().StorageClusters().Create(r.Context(), c, metav1.CreateOptions{}))(r)
}

func (r *rig) cluster(name string) *v1beta1.StorageCluster {
	r.Helper()
	return wait.Get(r, r.ours.HoldfastV1beta1().StorageClusters().Get, name)
}

// change writes a spec.
func (r *rig) change(name string, change func(*v1beta1.StorageClusterSpec)) {
	r.Helper()
	clusters := r.ours.HoldfastV1beta1().StorageClusters()
	wait.Modify(r, clusters.Get, clusters.Update, name, func(c *v1beta1.StorageCluster) { change(&c.Spec) })
}

// condition waits until a condition has a reason and its message some words, and returns the message.
func (r *rig) condition(name, kind, reason string, words ...string) string {
	r.Helper()
	message := ""
	wait.Until(r, fmt.Sprintf("the reason %s of %s, with %q", reason, kind, words), func() bool {
		c := r.cluster(name)
		if c == nil || c.Status.ObservedGeneration != c.Generation {
			return false
		}
		found := meta.FindStatusCondition(c.Status.Conditions, kind)
		if found == nil || found.Reason != reason {
			return false
		}
		message = found.Message
		return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(message, word) })
	})
	return message
}

// says fails unless a text, such as of an error, has all parts.
func (r *rig) says(what string, text any, parts ...string) {
	r.Helper()
	for _, part := range parts {
		if !strings.Contains(fmt.Sprint(text), part) {
			r.Errorf("%s: %q is not in %q", what, part, text)
		}
	}
}

// reconciled waits until every desired object exists and the spec was observed.
func (r *rig) reconciled(name string) {
	r.Helper()
	wait.Until(r, "StorageCluster "+name+" being applied", func() bool {
		c := r.cluster(name)
		p := meta.FindStatusCondition(c.Status.Conditions, v1beta1.ProgressingCondition)
		return c.Status.ObservedGeneration == c.Generation && p != nil && !slices.Contains([]string{reasonInvalid, reasonNotApplied, reasonForeign}, p.Reason)
	})
}

// cordonReal keeps pods from the nodes that are not simulated, or lets them go there again.
func (r *rig) cordonReal(cordon bool) {
	r.Helper()
	all := check.Got(r.theirs.CoreV1().Nodes().List(background, metav1.ListOptions{LabelSelector: "!" + simulated}))(r)
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, cordon)
	for _, n := range all.Items {
		_, err := r.theirs.CoreV1().Nodes().Patch(background, n.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		check.Report(r, err)
	}
}

// costs returns what is asked within that time, or as soon as it is more than the most.
func (r *rig) costs(within time.Duration, most int) (all []string) {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	_ = realapi.Until(ctx, func() bool { all = append(all, r.traffic.take()...); return len(all) > most })
	return append(all, r.traffic.take()...) // of the end, too
}

func (r *rig) describe() string {
	all, err := r.ours.HoldfastV1beta1().StorageClusters().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, c := range all.Items {
		text, _ := json.Marshal(c.Status)
		fmt.Fprintf(&b, "%s %s\n", c.Name, text)
	}
	return b.String()
}

func decodeFile(t *testing.T, file string) (all []*unstructured.Unstructured) {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(check.Got(os.ReadFile(file))(t)), 4096)
	for {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(o)
		if errors.Is(err, io.EOF) {
			return all
		}
		check.OK(t, err)
		if len(o.Object) > 0 {
			all = append(all, o)
		}
	}
}

// traffic counts requests that are no watches, Leases or events.
type traffic struct {
	mu     sync.Mutex
	all    []string
	before map[string]func() // what is done once before a request, given as METHOD PATH, is sent
}

func (f *traffic) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(q *http.Request) (*http.Response, error) {
		if q.URL.Query().Get("watch") == "" {
			request := q.Method + " " + q.URL.Path
			f.mu.Lock()
			f.all = append(f.all, request)
			do := f.before[request]
			delete(f.before, request)
			f.mu.Unlock()
			if do != nil {
				do()
			}
		}
		return next.RoundTrip(q)
	})
}

func (f *traffic) onceBefore(request string, do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = map[string]func(){request: do}
}

// take returns what was asked since it was called last.
func (f *traffic) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.all
	f.all = nil
	return all
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }
