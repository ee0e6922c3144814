package cluster

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// policyNames are those of the policies and of their bindings.
var policyNames = []string{
	"holdfast-applications", "holdfast-cascade", "holdfast-claims", "holdfast-class-parameters", "holdfast-deletion", "holdfast-fencing", "holdfast-held-nodes", "holdfast-held-pools", "holdfast-loop-sets", "holdfast-mirror",
	"holdfast-nfs-exports", "holdfast-nfs-namespaces", "holdfast-node-account", "holdfast-node-clients", "holdfast-node-requests",
	"holdfast-one-storagecluster", "holdfast-population", "holdfast-snapshot-controller", "holdfast-storageclass", "holdfast-storagecluster", "holdfast-uninstall",
}

// asker asks the API server as a user does, and hears its warnings.
type asker struct {
	*rig
	ours     holdfast.Interface
	theirs   kubernetes.Interface
	warnings *warnings
}

type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

func (w *warnings) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := strings.Join(w.all, "\n")
	w.all = nil
	return all
}

func (r *rig) asker() *asker {
	a := &asker{rig: r, warnings: &warnings{}}
	config := rest.CopyConfig(r.config)
	config.WarningHandlerWithContext = a.warnings
	a.ours, a.theirs = holdfast.NewForConfigOrDie(config), kubernetes.NewForConfigOrDie(config)
	return a
}

// try says what the API server would say of a change of the StorageCluster.
func (a *asker) try(change func(*v1beta1.StorageClusterSpec)) error {
	a.Helper()
	var err error
	wait.Until(a, "an answer", func() bool {
		c := a.cluster("holdfast")
		change(&c.Spec)
		_, err = a.ours.HoldfastV1beta1().StorageClusters().Update(a.Context(), c, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return !apierrors.IsConflict(err)
	})
	return err
}

// ruled waits until the API server holds the rules: it reads them some time after they are made.
func (a *asker) ruled() *asker {
	a.Helper()
	wait.Until(a, "the rules being held", func() bool { return a.try(pool("a", "/srv/a", "nowhere")) != nil })
	return a
}

// pool is one pool with a class that names one.
func pool(name, path, named string) func(*v1beta1.StorageClusterSpec) {
	return func(s *v1beta1.StorageClusterSpec) {
		s.Pools = []v1beta1.PoolSpec{{Name: name, Path: path}}
		s.StorageClasses = []v1beta1.StorageClassSpec{{Name: "hb-one", Pool: named}}
	}
}

func pools(paths ...string) func(*v1beta1.StorageClusterSpec) {
	return func(s *v1beta1.StorageClusterSpec) {
		s.Pools = nil
		for i, path := range paths {
			s.Pools = append(s.Pools, v1beta1.PoolSpec{Name: string(rune('a' + i)), Path: path})
		}
	}
}

func parameter(key string) func(*v1beta1.StorageClusterSpec) {
	return func(s *v1beta1.StorageClusterSpec) {
		s.StorageClasses = []v1beta1.StorageClassSpec{{Name: "hb-one"}, {Name: "hb-two", Parameters: map[string]string{key: "x"}}}
	}
}

func TestPolicy_APIServerRefusesWhatTheOperatorRefuses(t *testing.T) {
	r := running(t, nil)
	a := r.asker().ruled()
	taken := func(write func(*v1beta1.StorageClusterSpec)) bool {
		c := r.cluster("holdfast")
		write(&c.Spec)
		_, err := render.Objects(render.Input{Cluster: c, Namespace: namespace})
		return err == nil
	}
	for what, test := range map[string]struct {
		change func(*v1beta1.StorageClusterSpec)
		says   []string // nothing where it is to be taken
	}{
		"a pool of a class": {pool("a", "/srv/a", "a"), nil},
		"no pool but the default": {func(s *v1beta1.StorageClusterSpec) {
			s.StorageClasses = []v1beta1.StorageClassSpec{{Name: "b", Pool: "default"}}
		}, nil},
		"a pool that is not there":   {pool("a", "/srv/a", "nowhere"), []string{"class hb-one", "nowhere", "only a"}},
		"the default that is gone":   {pool("a", "/srv/a", "default"), []string{"class hb-one", "default", "only a"}},
		"pools beside each other":    {pools("/srv/a", "/srv/ab", ""), nil},
		"a pool in another":          {pools("/srv/a", "/srv/a/b"), []string{"/srv/a/, /srv/a/b/", "overlap"}},
		"two pools at one place":     {pools("/srv/a", "/srv/a"), []string{"overlap"}},
		"a pool where a disk's is":   {pools("", "/var/lib/holdfast/pools/a/x"), []string{"overlap"}},
		"a pool of the system":       {pools("/etc/pool"), []string{"/etc/pool/", "not allowed"}},
		"a pool in the kubelet's":    {pools("/var/lib/kubelet/x"), []string{"/var/lib/kubelet/x/"}},
		"a pool around the kubelet":  {pools("/var/lib"), []string{"/var/lib/"}},
		"a pool that is Holdfast's":  {pools("/var/lib/holdfast"), []string{"/var/lib/holdfast/"}},
		"a pool like the system's":   {pools("/etcetera", "/srv/dev"), nil},
		"a pool in another kubelet":  {func(s *v1beta1.StorageClusterSpec) { pools("/data/x")(s); s.CSI.KubeletDir = "/data" }, []string{"/data/x/"}},
		"the usual when it is not":   {func(s *v1beta1.StorageClusterSpec) { pools("/var/lib/kubelet/x")(s); s.Distribution = "microk8s" }, nil},
		"a parameter":                {parameter("csi.storage.k8s.io/of-next-year"), nil},
		"a parameter with a field":   {parameter("pool"), []string{"class hb-two", "fields"}},
		"another that has one":       {parameter("csi.storage.k8s.io/fstype"), []string{"class hb-two"}},
		"one of two that says it":    {parameter("onNodeLoss"), []string{"class hb-two"}},
		"nothing of these changed":   {func(s *v1beta1.StorageClusterSpec) { s.Debug = true }, nil},
		"only that it is not paused": {func(s *v1beta1.StorageClusterSpec) { s.Paused = false }, nil},
	} {
		err := a.try(test.change)
		if refused := len(test.says) > 0; refused != (err != nil) || taken(test.change) == refused {
			t.Errorf("%s: the API server says %v; the operator takes it: %t", what, err, taken(test.change))
		}
		r.says(what, err, test.says...)
	}
	if text := a.warnings.take(); text != "" {
		t.Errorf("it warns: %s", text)
	}
}

func TestPolicy_ObjectAdmittedBeforeTheRulesCanBeWrittenAndEnds(t *testing.T) {
	r := running(t, pool("a", "/srv/a", "a"))
	a := r.asker().ruled()
	r.stop()
	bindings := a.theirs.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	binding := check.Got(bindings.Get(t.Context(), "holdfast-storagecluster", metav1.GetOptions{}))(t)
	check.OK(t, bindings.Delete(t.Context(), "holdfast-storagecluster", metav1.DeleteOptions{}))
	wait.Until(r, "the rule being gone", func() bool { return a.try(pool("a", "/srv/a", "nowhere")) == nil })
	r.change("holdfast", pool("a", "/srv/a", "nowhere"))
	binding.ResourceVersion, binding.UID = "", ""
	check.Got(bindings.Create(t.Context(), binding, metav1.CreateOptions{}))(t)
	r.start()
	wait.Until(r, "the rule being held again", func() bool { return a.try(pool("a", "/srv/a", "invalid")) != nil })
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Paused = true })
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Paused = false; s.DeletionPolicy = v1beta1.OrphanVolumes })
	check.OK(t, a.ours.HoldfastV1beta1().StorageClusters().Delete(t.Context(), "holdfast", metav1.DeleteOptions{}))
	wait.Until(r, "the StorageCluster being gone", func() bool { return r.cluster("holdfast") == nil })
}

func TestPolicy_SecondStorageClusterAndUnknownPoolOfAClassGiveWarnings(t *testing.T) {
	r := running(t, pool("a", "/srv/a", "a"))
	a := r.asker().ruled()
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	second := func() error {
		_, err := a.ours.HoldfastV1beta1().StorageClusters().Create(t.Context(), &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "second"}}, dryRun)
		return err
	}
	class := func(pool, provisioner string) error {
		_, err := a.theirs.StorageV1().StorageClasses().Create(t.Context(), &storage.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: "hb-by-hand"}, Provisioner: provisioner, Parameters: map[string]string{"pool": pool},
			ReclaimPolicy: new(core.PersistentVolumeReclaimDelete),
		}, dryRun)
		return err
	}
	warned := func(what string, ask func() error, parts ...string) {
		t.Helper()
		text := ""
		wait.Until(r, "the warning of "+what, func() bool {
			if err := ask(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			text = a.warnings.take()
			return text != "" || len(parts) == 0
		})
		r.says(what, text, parts...)
		if len(parts) == 0 && text != "" {
			t.Errorf("%s: it warns: %s", what, text)
		}
	}
	warned("a second StorageCluster", second, "StorageCluster holdfast exists already", "only one is allowed")
	warned("a class of an unknown pool", func() error { return class("b", "csi.holdfast.dev") }, "pool b", "StorageCluster holdfast", "only a")
	warned("a class of a pool", func() error { return class("a", "csi.holdfast.dev") })
	warned("a class of another driver", func() error { return class("b", "example.com") })
}

func TestPolicy_RulesCompileInTheAPIServer(t *testing.T) {
	r := running(t, nil)
	kinds := r.theirs.AdmissionregistrationV1()
	wait.Until(r, "every policy being checked, without a complaint", func() bool {
		all := check.Got(kinds.ValidatingAdmissionPolicies().List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=holdfast"}))(t)
		var names []string
		for _, p := range all.Items {
			if p.Status.TypeChecking == nil || p.Status.ObservedGeneration != p.Generation {
				return false
			}
			for _, w := range p.Status.TypeChecking.ExpressionWarnings {
				t.Errorf("%s: %s: %s", p.Name, w.FieldRef, w.Warning)
			}
			names = append(names, p.Name)
		}
		slices.Sort(names)
		return slices.Equal(names, policyNames)
	})
	bindings, err := kinds.ValidatingAdmissionPolicyBindings().List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=holdfast"})
	if err != nil || len(bindings.Items) != len(policyNames) {
		t.Errorf("%d bindings, %v", len(bindings.Items), err)
	}
	check.OK(t, r.ours.HoldfastV1beta1().StorageClusters().Delete(t.Context(), "holdfast", metav1.DeleteOptions{}))
	wait.Until(r, "the rules going with the StorageCluster", func() bool {
		left, err := kinds.ValidatingAdmissionPolicies().List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=holdfast"})
		return err == nil && len(left.Items) == 0
	})
}
