package nfsserver

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// steps are what a plan does, in its order.
func (p *plan) steps() string {
	var all []string
	add := func(planned bool, step ...string) {
		if planned {
			all = append(all, strings.Join(step, " "))
		}
	}
	add(p.finalizer, "finalizer")
	for _, o := range p.delete {
		add(true, "delete", o.GetKind())
	}
	if patch := p.patchVolume; patch != nil {
		policy, _ := patch.spec["persistentVolumeReclaimPolicy"].(core.PersistentVolumeReclaimPolicy)
		back, _ := patch.spec["persistentVolumeReclaimPolicy"].(string)
		_, rebound := patch.spec["claimRef"]
		add(policy == core.PersistentVolumeReclaimRetain && patch.annotations[dataAnnotation] == "team/data", "keep", patch.pv.Name)
		add(rebound, "free", patch.pv.Name)
		add(policy == "" && !rebound, "release", patch.pv.Name, back)
	}
	for word, claim := range map[string]*core.PersistentVolumeClaim{"make": p.makeClaim, "grow": p.growClaim, "delete": p.deleteClaim} {
		if claim != nil {
			add(true, word, "claim", claim.Spec.VolumeName, claim.Spec.Resources.Requests.Storage().String())
		}
	}
	add(p.grant, "grant")
	for _, o := range slices.Concat(p.network, p.workload) {
		add(true, o.GetKind())
	}
	add(p.prune, "prune")
	add(p.leaving != "", "wait for", p.leaving)
	add(p.finish, "finish")
	add(p.silent, "say nothing")
	return strings.Join(all, ", ")
}

// look is a server at work of which all is observed, changed as a test wants it.
func look(changes ...func(*round)) *round {
	r := working(nil)
	r.kinds = map[schema.GroupKind]bool{networkPolicy: true}
	r.shut = true
	r.statefulSet = part("StatefulSet")
	for _, change := range changes {
		change(r)
	}
	return r
}

func part(kind string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": "nfs-data", "namespace": "team"}}}
}

// persistentVolume is that of the claim of a server, with the reclaim policy that it has, and that it had.
func persistentVolume(claim *core.PersistentVolumeClaim, policy, before core.PersistentVolumeReclaimPolicy) *core.PersistentVolume {
	pv := &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", Annotations: map[string]string{}}}
	pv.Spec = core.PersistentVolumeSpec{
		ClaimRef: &core.ObjectReference{Namespace: "team", Name: "nfs-data", UID: claim.UID}, PersistentVolumeReclaimPolicy: policy,
		Capacity: core.ResourceList{core.ResourceStorage: resource.MustParse("4Gi")},
	}
	if before != "" {
		pv.Annotations[dataAnnotation], pv.Annotations[policyAnnotation] = "team/data", string(before)
	}
	return pv
}

const (
	retained = core.PersistentVolumeReclaimRetain
	removed  = core.PersistentVolumeReclaimDelete
)

func nothing(r *round) {
	r.statefulSet, r.set, r.pods, r.claim, r.service, r.storage, r.shut = nil, nil, nil, nil, "", nil, false
}

func pause(r *round) { r.cluster.Spec.Paused = true }

// going is a server that is being deleted, and its pod with it.
func going(r *round) {
	deleted(r)
	r.server.Finalizers = []string{v1beta1.OperatorFinalizer}
	r.statefulSet, r.set, r.pods = nil, nil, nil
}

func inUse(r *round) {
	going(r)
	r.remains.inUse = true
}

func TestPlan_WhatIsDoneFollowsFromWhatIsObserved(t *testing.T) {
	const all = "finalizer, grant, Service, NetworkPolicy, StatefulSet, prune"
	for name, test := range map[string]struct {
		changes []func(*round)
		want    string
		again   time.Duration
		reason  string // of the condition Progressing, when nothing fails
	}{
		"at work":           {nil, all, 0, reasonUpToDate},
		"nothing yet":       {[]func(*round){nothing}, "finalizer, make claim  10Gi, grant, Service, NetworkPolicy", 0, reasonRollingOut},
		"a Service is gone": {[]func(*round){func(r *round) { r.service, r.server.Status.Endpoint = "", "10.0.0.9:2049" }}, "finalizer, grant, Service, NetworkPolicy", 0, reasonUpToDate},
		"not allowed":       {[]func(*round){nothing, func(r *round) { r.cluster, r.entitled = allowing("other"), false }}, "", 0, reasonNotAllowed},
		"allowed before":    {[]func(*round){func(r *round) { r.cluster = allowing("other") }}, all, 0, reasonUpToDate},
		"a bad spec":        {[]func(*round){func(r *round) { r.server.Spec.Exports.Clients = []string{"x"} }}, "finalizer", kube.RetryRefused, reasonInvalid},
		"storage of another": {[]func(*round){func(r *round) {
			other := server(nil)
			other.Name, other.UID, other.Spec.Storage = "a", "other", &v1beta1.NFSStorage{ClaimName: "nfs-data"}
			r.others = []*v1beta1.NFSServer{r.server, other}
		}}, "finalizer", kube.RetryRefused, reasonInvalid},

		"paused":                      {[]func(*round){nothing, pause}, "", 0, reasonPaused},
		"paused, with a bad spec":     {[]func(*round){pause, func(r *round) { r.server.Spec.Storage = nil }}, "", 0, reasonPaused},
		"an upgrade, which pauses":    {[]func(*round){pause, func(r *round) { r.image = "nfs:2" }}, all, 0, reasonPaused},
		"an unreadable cluster":       {[]func(*round){func(r *round) { r.cluster.DecodeError = "spec.x" }}, "", 0, reasonUpToDate},
		"an upgrade of an unreadable": {[]func(*round){func(r *round) { r.cluster.DecodeError, r.image = "spec.x", "nfs:2" }}, "", 0, reasonUpToDate},

		"a foreign claim": {[]func(*round){func(r *round) { r.claim.Labels = nil }}, "finalizer, grant, Service, NetworkPolicy", 0, reasonUpToDate},
		"a smaller claim": {[]func(*round){func(r *round) { r.server.Spec.Storage.Size = new(resource.MustParse("20Gi")) }}, "finalizer, grow claim  20Gi, " + all[len("finalizer, "):], 0, reasonGrowing},
		"a claim that cannot be read": {[]func(*round){func(r *round) {
			r.claimUnread = errors.New("no")
			r.server.Spec.Storage.Size = new(resource.MustParse("20Gi"))
		}}, all, 0, reasonGrowing},
		"data that goes with its claim": {[]func(*round){func(r *round) { r.volume = persistentVolume(r.claim, removed, "") }}, "finalizer, keep pv, " + all[len("finalizer, "):], 0, reasonUpToDate},
		"data that is kept":             {[]func(*round){func(r *round) { r.volume = persistentVolume(r.claim, retained, removed) }}, all, 0, reasonUpToDate},
		"data to be looked at again":    {[]func(*round){func(r *round) { r.volumeAgain = keptFor }}, all, keptFor, reasonUpToDate},
		"data of another claim": {[]func(*round){func(r *round) {
			r.volume = persistentVolume(r.claim, removed, "")
			r.volume.Spec.ClaimRef.UID = "other"
		}}, all, 0, reasonUpToDate},
		"a claim that is gone": {[]func(*round){func(r *round) {
			r.data = persistentVolume(r.claim, retained, removed)
			r.claim = nil
		}}, "finalizer, free pv, make claim pv 4Gi, " + all[len("finalizer, "):], 0, reasonUpToDate},
		"a claim that is named": {[]func(*round){func(r *round) { r.server.Spec.Storage, r.claim = &v1beta1.NFSStorage{ClaimName: "mine"}, nil }}, all, 0, reasonUpToDate},

		"no policies wanted": {[]func(*round){func(r *round) { r.cluster.Spec.NFS.NetworkPolicies = new(false) }}, "finalizer, grant, Service, StatefulSet, prune", 0, reasonUpToDate},
		"Cilium":             {[]func(*round){func(r *round) { r.kinds[ciliumPolicy], r.kinds[ciliumNode] = true, true }}, "finalizer, grant, Service, NetworkPolicy, CiliumNetworkPolicy, StatefulSet, prune", 0, reasonUpToDate},
		"Cilium alone":       {[]func(*round){func(r *round) { r.kinds[ciliumNode] = true }}, "finalizer, grant, Service, StatefulSet, prune", 0, reasonUpToDate},
		"open, and a node that is not known": {[]func(*round){func(r *round) {
			r.shut, r.nodes, r.agents = false, []*core.Node{nodeAt("a", nil)}, map[string]*v1beta1.StorageNode{"a": {}}
		}}, "finalizer, grant, Service, StatefulSet, prune", 0, reasonUpToDate},
		"shut, and a node that is not known": {[]func(*round){func(r *round) {
			r.nodes, r.agents = []*core.Node{nodeAt("a", nil)}, map[string]*v1beta1.StorageNode{"a": {}}
		}}, all, 0, reasonUpToDate},
		"new, and a node that is not known": {[]func(*round){nothing, func(r *round) {
			r.nodes, r.agents = []*core.Node{nodeAt("a", nil)}, map[string]*v1beta1.StorageNode{"a": {}}
		}}, "finalizer, make claim  10Gi, grant, Service, NetworkPolicy", 0, reasonRollingOut},

		"deleted, of which nothing was made": {[]func(*round){deleted}, "say nothing", 0, ""},
		"deleted with its kind":              {[]func(*round){going, func(r *round) { r.incomplete = true }}, "say nothing", kube.LookAgain, ""},
		"deleted in use":                     {[]func(*round){inUse}, all[len("finalizer, "):], 0, reasonInUse},
		"deleted in use, not counted yet":    {[]func(*round){inUse, func(r *round) { r.volumes = 0 }}, all[len("finalizer, "):], kube.LookAgain, reasonInUse},
		"deleted in use, with a bad spec":    {[]func(*round){inUse, func(r *round) { r.server.Spec.Storage = nil }}, "", kube.RetryRefused, reasonInUse},
		"deleted in use and paused":          {[]func(*round){inUse, pause}, "", kube.LookAgain, reasonInUse},
		"deleted, with its pod": {[]func(*round){going, func(r *round) {
			r.statefulSet, r.remains = part("StatefulSet"), remains{pod: true, parts: []*unstructured.Unstructured{part("Service"), part("StatefulSet")}}
		}}, "delete StatefulSet, wait for its pod to end", kube.LookAgain, reasonTerminating},
		"deleted and paused": {[]func(*round){going, pause, func(r *round) {
			r.statefulSet, r.remains = part("StatefulSet"), remains{pod: true, parts: []*unstructured.Unstructured{part("Service"), part("StatefulSet")}}
		}}, "", 0, reasonPaused},
		"deleted with its data, and paused": {[]func(*round){going, pause, func(r *round) {
			r.server.Spec.ReclaimPolicy, r.data = removed, persistentVolume(r.claim, retained, removed)
		}}, "", 0, reasonPaused},
		"deleted, of a cluster that is unreadable": {[]func(*round){going, func(r *round) { r.cluster.DecodeError = "spec.x" }}, "", 0, reasonPaused},
		"deleted, with a StatefulSet that has no pod": {[]func(*round){going, func(r *round) {
			r.statefulSet, r.remains.parts = part("StatefulSet"), []*unstructured.Unstructured{part("StatefulSet")}
		}}, "delete StatefulSet, wait for its pod to end", kube.LookAgain, reasonTerminating},
		"deleted, with its objects": {[]func(*round){going, func(r *round) {
			ending := part("NetworkPolicy")
			ending.SetDeletionTimestamp(new(metav1.Now()))
			r.remains.parts = []*unstructured.Unstructured{part("Service"), ending}
		}}, "delete Service, wait for 2 objects to be deleted", kube.LookAgain, reasonTerminating},
		"deleted, with a foreign StatefulSet": {[]func(*round){going, func(r *round) { r.statefulSet = part("StatefulSet") }}, "delete StatefulSet, finish, say nothing", 0, ""},
		"deleted without its data": {[]func(*round){going, func(r *round) {
			r.data = persistentVolume(r.claim, retained, removed)
		}}, "release pv Delete, finish, say nothing", 0, ""},
		"deleted, with data that has no claim": {[]func(*round){going, func(r *round) {
			r.data = persistentVolume(r.claim, retained, removed)
			r.claim = nil
		}}, "release pv , finish, say nothing", 0, ""},
		"deleted with its data": {[]func(*round){going, func(r *round) {
			r.server.Spec.ReclaimPolicy, r.data = removed, persistentVolume(r.claim, retained, removed)
		}}, "release pv Delete, delete claim  10Gi, wait for claim nfs-data to go", kube.LookAgain, reasonTerminating},
		"deleted, with a claim that goes": {[]func(*round){going, func(r *round) {
			r.server.Spec.ReclaimPolicy, r.claim.DeletionTimestamp = removed, new(metav1.Now())
		}}, "wait for claim nfs-data to go", kube.LookAgain, reasonTerminating},
		"deleted, with a foreign claim": {[]func(*round){going, func(r *round) {
			r.server.Spec.ReclaimPolicy, r.claim.Labels = removed, nil
		}}, "finish, say nothing", 0, ""},
	} {
		r := look(test.changes...)
		before := []any{r.server.DeepCopy(), r.cluster.DeepCopy(), r.claim.DeepCopy(), r.set.DeepCopy()}
		p, err := newPlan(r.desired, r.observed)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		r.plan = p
		if got := r.steps(); got != test.want {
			t.Errorf("%s: it does\n%s, want\n%s", name, got, test.want)
		}
		next, events, again := r.conclude()
		if again != test.again {
			t.Errorf("%s: it looks again after %s", name, again)
		}
		if reason := find(&next, v1beta1.ProgressingCondition).Reason; test.reason != "" && reason != test.reason {
			t.Errorf("%s: the reason is %s", name, reason)
		}
		if after := []any{r.server, r.cluster, r.claim, r.set}; !reflect.DeepEqual(before, after) {
			t.Errorf("%s: what was observed is changed", name)
		}
		twice, err := newPlan(r.desired, r.observed)
		if nextTwice, eventsTwice, _ := r.conclude(); err != nil || p.steps() != twice.steps() || !reflect.DeepEqual(next, nextTwice) || !reflect.DeepEqual(events, eventsTwice) {
			t.Errorf("%s: the same gives another plan or status", name)
		}
	}
}

func TestPlan_RecreatedServiceRequestsItsFormerAddress(t *testing.T) {
	r := look(nothing, func(r *round) { r.server.Status.Endpoint = "10.0.0.9:2049" })
	p := check.Got(newPlan(r.desired, r.observed))(t)
	if got := as[core.Service](t, p.network, "Service").Spec.ClusterIP; got != "10.0.0.9" {
		t.Errorf("it asks for %q", got)
	}
}

func TestPlan_AnUpgradeGivesItsImage(t *testing.T) {
	r := look(pause, func(r *round) { r.image = "nfs:2" })
	p := check.Got(newPlan(r.desired, r.observed))(t)
	if got := render.ImageOf(&as[apps.StatefulSet](t, p.workload, "StatefulSet").Spec.Template.Spec); got != "nfs:2" {
		t.Errorf("the pod is to run %s", got)
	}
}

func TestPlan_APodThatIsOlderThanItsAccountIsReplacedOnce(t *testing.T) {
	at := func(second int64) metav1.Time { return metav1.NewTime(time.Unix(second, 0)) }
	for name, test := range map[string]struct {
		account, pod int64 // when they were made; 0: there is none
		had, want    string
	}{
		"an older account":       {10, 20, "", ""},
		"of the same second":     {20, 20, "", ""},
		"a younger account":      {20, 10, "", "account"},
		"younger once more":      {20, 10, "before", "account"},
		"replaced before":        {20, 30, "account", "account"},
		"an account that is due": {0, 30, "account", "account"},
		"no pod":                 {20, 0, "account", "account"},
	} {
		r := look(func(r *round) {
			r.set.Spec.Template.Annotations = map[string]string{accountAnnotation: test.had}
			r.pods[0].CreationTimestamp = at(test.pod)
			if test.pod == 0 {
				r.pods = nil
			}
			if test.account > 0 {
				r.account = part("ServiceAccount")
				r.account.SetUID("account")
				r.account.SetCreationTimestamp(at(test.account))
			}
		})
		p := check.Got(newPlan(r.desired, r.observed))(t)
		if got := as[apps.StatefulSet](t, p.workload, "StatefulSet").Spec.Template.Annotations[accountAnnotation]; got != test.want {
			t.Errorf("%s: the pod is for account %q, want %q", name, got, test.want)
		}
	}
}

func TestConclude_StatusReportsTheFailuresOfItsPass(t *testing.T) {
	changedSet := func(r *round) { r.Changed = []apply.Ref{refTo(r.server, apps.GroupName, "StatefulSet")} }
	for name, test := range map[string]struct {
		change                func(*round)
		progressing, degraded string
		events                int
		again                 time.Duration
	}{
		"all is applied":               {func(*round) {}, reasonUpToDate, reasonHealthy, 0, 0},
		"the StatefulSet is changed":   {changedSet, reasonRollingOut, reasonHealthy, 0, 0},
		"an object is refused":         {func(r *round) { r.Failures = []apply.Failure{{Err: errors.New("no")}} }, reasonNotApplied, reasonNotApplied, 1, kube.RetryRefused},
		"a claim is refused":           {func(r *round) { r.claimErr = errors.New("no") }, reasonNotApplied, reasonNotApplied, 1, kube.RetryRefused},
		"an object is contested":       {func(r *round) { r.Again = time.Second }, reasonUpToDate, reasonHealthy, 0, time.Second},
		"refused, and contested later": {func(r *round) { r.Failures, r.Again = []apply.Failure{{Err: errors.New("no")}}, time.Hour }, reasonNotApplied, reasonNotApplied, 1, kube.RetryRefused},
	} {
		r := look()
		r.server.Status, _, _ = r.conclude()
		test.change(r)
		next, events, again := r.conclude()
		progressing, degraded := find(&next, v1beta1.ProgressingCondition).Reason, find(&next, v1beta1.DegradedCondition).Reason
		if progressing != test.progressing || degraded != test.degraded || len(events) != test.events || again != test.again {
			t.Errorf("%s: %s, %s, %v, again after %s", name, progressing, degraded, events, again)
		}
	}
}

func TestOutdated_AnUpgradeWaitsUntilTheNewImageServes(t *testing.T) {
	run := func(image string) func(*round) {
		return func(r *round) {
			r.set.Spec.Template.Spec.Containers = []core.Container{{Name: v1beta1.AppName, Image: image}}
			r.image = "nfs:2"
		}
	}
	for name, test := range map[string]struct {
		changes []func(*round)
		want    string
	}{
		"it serves":               {[]func(*round){run("nfs:2")}, ""},
		"its claim cannot grow":   {[]func(*round){run("nfs:2"), func(r *round) { r.claimErr = errors.New("no") }}, ""},
		"the old one":             {[]func(*round){run("nfs:1")}, "to be replaced"},
		"its spec has gone bad":   {[]func(*round){run("nfs:1"), func(r *round) { r.invalid = errors.New("spec.x: bad") }}, "spec.x: bad"},
		"changed by this pass":    {[]func(*round){run("nfs:2"), func(r *round) { r.Changed = []apply.Ref{refTo(r.server, apps.GroupName, "StatefulSet")} }}, "to be replaced"},
		"it does not serve":       {[]func(*round){run("nfs:2"), unready}, "it starts"},
		"what it needs is barred": {[]func(*round){run("nfs:2"), func(r *round) { r.Failures = []apply.Failure{{Err: errors.New("no")}} }}, "no"},
	} {
		if got := look(test.changes...).outdated(); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: it says %q, want %q", name, got, test.want)
		}
	}
}

func TestIsAwaited_AnUpgradeWaitsForServersThatServedWhenItBegan(t *testing.T) {
	began := time.Unix(4000, 0)
	available := func(status metav1.ConditionStatus, reason string, since time.Time) func(*round) {
		return func(r *round) {
			r.server.Status.Conditions = []metav1.Condition{{Type: v1beta1.AvailableCondition, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(since)}}
		}
	}
	serving := available(metav1.ConditionTrue, reasonServing, began.Add(-time.Hour))
	for name, test := range map[string]struct {
		changes []func(*round)
		want    bool
	}{
		"it serves":                {[]func(*round){serving}, true},
		"it served again since":    {[]func(*round){available(metav1.ConditionTrue, reasonServing, began.Add(time.Second))}, true},
		"it stopped since":         {[]func(*round){available(metav1.ConditionFalse, reasonNotServing, began.Add(time.Second))}, true},
		"it stopped just then":     {[]func(*round){available(metav1.ConditionFalse, reasonNotServing, began)}, true},
		"it stopped before":        {[]func(*round){available(metav1.ConditionFalse, reasonNotServing, began.Add(-time.Second))}, false},
		"it has never served":      {[]func(*round){available(metav1.ConditionFalse, reasonPod, began.Add(time.Second))}, false},
		"it is new":                {nil, false},
		"it has a bad spec":        {[]func(*round){serving, func(r *round) { r.server.Spec.Exports.Clients = []string{"x"} }}, false},
		"its claim is another's":   {[]func(*round){serving, func(r *round) { r.claim.Labels = nil }}, false},
		"its claim cannot be read": {[]func(*round){serving, func(r *round) { r.claimUnread = errors.New("no") }}, true},
		"its claim is deleted":     {[]func(*round){serving, func(r *round) { r.claim = nil }}, true}, // and created again
		"its claim does not go":    {[]func(*round){serving, func(r *round) { r.claim.DeletionTimestamp = new(metav1.Now()) }}, false},
		"a given claim is deleted": {[]func(*round){serving, func(r *round) { r.server.Spec.Storage, r.claim = &v1beta1.NFSStorage{ClaimName: "mine"}, nil }}, false},
		"a directory of a node":    {[]func(*round){serving, func(r *round) { r.server.Spec.Storage, r.claim = &v1beta1.NFSStorage{HostPath: "/srv"}, nil }}, true},
		"barred since":             {[]func(*round){serving, func(r *round) { r.barredAt = began.Add(time.Second) }}, false},
		"barred before":            {[]func(*round){serving, func(r *round) { r.barredAt = began.Add(-time.Second) }}, true},
	} {
		r := look(append(test.changes, pause, func(r *round) { r.image = "nfs:2" })...)
		var err error
		if r.plan, err = newPlan(r.desired, r.observed); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := r.isAwaited(began); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestIsBarred_ByUsersOfItsNamespaceAlone(t *testing.T) {
	deletedAt := func(t time.Time) *unstructured.Unstructured {
		o := part("StatefulSet")
		at := metav1.NewTime(t)
		o.SetDeletionTimestamp(&at)
		return o
	}
	mine := refTo(server(nil), apps.GroupName, "StatefulSet")
	shared := apply.Ref{GroupKind: schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}}
	for name, test := range map[string]struct {
		failure apply.Failure
		ago     time.Duration
		want    bool
	}{
		"it is another client's":   {apply.Failure{Ref: mine, Err: apply.ErrForeign}, 0, true},
		"it is contested":          {apply.Failure{Ref: mine, Err: &apply.ContestedError{}}, 0, true},
		"it has just been deleted": {apply.Failure{Ref: mine, Err: apply.ErrLeaving}, time.Second, false},
		"its deletion has no end":  {apply.Failure{Ref: mine, Err: apply.ErrLeaving}, time.Hour, true},
		"it is refused":            {apply.Failure{Ref: mine, Err: errors.New("no")}, 0, false},
		"a role of all servers":    {apply.Failure{Ref: shared, Err: apply.ErrForeign}, 0, false},
	} {
		r := look(func(r *round) { r.Failures = []apply.Failure{test.failure} })
		if got := r.isBarred(func(apply.Ref) *unstructured.Unstructured { return deletedAt(r.now.Add(-test.ago)) }); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
