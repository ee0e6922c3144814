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

// do are changes of a server at work.
type do = []func(*round)

// look is a server at work of which all is observed, changed as a test needs it.
func look(changes ...func(*round)) *round {
	seen := func(r *round) {
		r.kinds, r.shut, r.statefulSet = map[schema.GroupKind]bool{networkPolicy: true}, true, part("StatefulSet")
	}
	return working(append(do{seen}, changes...)...)
}

func part(kind string) *unstructured.Unstructured {
	metadata := map[string]any{"name": "nfs-data", "namespace": "team"}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind, "metadata": metadata}}
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

// What may be so of a server.
var (
	nothing = func(r *round) {
		r.statefulSet, r.set, r.pods, r.claim, r.service, r.storage, r.shut = nil, nil, nil, nil, "", nil, false
	}
	pause           = func(r *round) { r.cluster.Spec.Paused = true }
	upgrade         = func(r *round) { r.cluster.Spec.Paused, r.image = true, "nfs:2" }
	unreadable      = func(r *round) { r.cluster.DecodeError = "spec.x" }
	unentitled      = func(r *round) { r.entitled = false }
	unlisted        = func(r *round) { r.cluster = allowing("other") }
	smaller         = func(r *round) { r.server.Spec.Storage.Size = new(resource.MustParse("5Gi")) }
	larger          = func(r *round) { r.server.Spec.Storage.Size = new(resource.MustParse("20Gi")) }
	ofAnotherServer = func(r *round) {
		other := server(func(s *v1beta1.NFSServerSpec) { s.Storage = &v1beta1.NFSStorage{ClaimName: claimName(r.server)} })
		other.Name, other.UID = "a", "other"
		r.others = []*v1beta1.NFSServer{r.server, other}
	}
	givenClaim   = func(r *round) { r.server.Spec.Storage, r.claim = &v1beta1.NFSStorage{ClaimName: "mine"}, nil }
	directory    = func(r *round) { r.server.Spec.Storage, r.claim = &v1beta1.NFSStorage{HostPath: "/srv"}, nil }
	foreignClaim = func(r *round) { r.claim.Labels = nil }
	noClaim      = func(r *round) { r.claim = nil }
	kept         = func(r *round) { r.data = persistentVolume(r.claim, retained, removed) }
	ofAnother    = func(r *round) { r.volume.Spec.ClaimRef.UID = "other" }
	withData     = func(r *round) { r.server.Spec.ReclaimPolicy = removed }
	// strange is a node whose agent does not report its addresses.
	strange = func(r *round) {
		r.nodes, r.agents = []*core.Node{nodeAt("a", nil)}, map[string]*v1beta1.StorageNode{"a": {}}
	}
	// closed is a server whose pod admits only the nodes.
	closed = func(r *round) {
		r.set.Spec.Template.Spec.Containers = []core.Container{{Env: []core.EnvVar{{Name: clientsVariable, Value: clientsOfStatus}}}}
	}
	// going is a server that is being deleted, and its pod with it.
	going = func(r *round) {
		deleted(r)
		r.server.Finalizers = []string{v1beta1.OperatorFinalizer}
		r.statefulSet, r.set, r.pods = nil, nil, nil
	}
	inUse   = func(r *round) { r.remains.inUse = true }
	deleted = func(r *round) { r.server.DeletionTimestamp = new(metav1.Now()) }
	noPod   = func(r *round) { r.pods, r.set.Status = nil, apps.StatefulSetStatus{} }
	unready = func(r *round) {
		r.pods = []*core.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "nfs-data-0"}, Spec: core.PodSpec{NodeName: "node1"}}}
		r.set.Status.ReadyReplicas = 0
	}
	served = func(r *round) {
		r.server.Status.Conditions = []metav1.Condition{{Type: v1beta1.AvailableCondition, Status: metav1.ConditionTrue, Reason: reasonServing}}
	}
	invalid      = func(r *round) { r.invalid = errors.New("spec.x: bad") }
	strict       = func(r *round) { r.namespace.Labels = map[string]string{enforceLabel: "restricted"} }
	setChanged   = func(r *round) { r.Changed = []apply.Ref{refTo(r.server, apps.GroupName, "StatefulSet")} }
	refused      = func(r *round) { r.Failures = []apply.Failure{{Err: errors.New("no")}} }
	claimRefused = func(r *round) { r.claimErr = errors.New("no") }
)

// left are objects of a server that is being deleted.
func left(kinds ...string) func(*round) {
	return func(r *round) {
		for _, kind := range kinds {
			r.remains.parts = append(r.remains.parts, part(kind))
			if kind == "StatefulSet" {
				r.statefulSet = part(kind)
			}
		}
	}
}

func TestPlan_WhatIsDoneFollowsFromWhatIsObserved(t *testing.T) {
	const rest = "grant, Service, NetworkPolicy, StatefulSet, prune"
	const all, open = "finalizer, " + rest, "finalizer, grant, Service, StatefulSet, prune"
	const fresh, unmade = "finalizer, make claim  10Gi, grant, Service, NetworkPolicy", "finalizer, grant, Service, NetworkPolicy"
	const ending, waiting = "wait for its pod to end", "wait for claim nfs-data to go"
	const soon, leaving = kube.LookAgain, reasonTerminating
	volume := func(policy, before core.PersistentVolumeReclaimPolicy) func(*round) {
		return func(r *round) { r.volume = persistentVolume(r.claim, policy, before) }
	}
	for name, test := range map[string]struct {
		changes do
		want    string
		again   time.Duration
		reason  string // of the condition Progressing, when nothing fails
	}{
		"at work":            {nil, all, 0, reasonUpToDate},
		"nothing yet":        {do{nothing}, fresh, 0, reasonRollingOut},
		"a Service is gone":  {do{func(r *round) { r.service, r.server.Status.Endpoint = "", "10.0.0.9:2049" }}, unmade, 0, reasonUpToDate},
		"not allowed":        {do{nothing, unlisted, unentitled}, "", 0, reasonNotAllowed},
		"allowed before":     {do{unlisted}, all, 0, reasonUpToDate},
		"storage of another": {do{ofAnotherServer}, "finalizer", kube.RetryRefused, reasonInvalid},

		"paused":                          {do{nothing, pause}, "", 0, reasonPaused},
		"paused, with storage of another": {do{pause, ofAnotherServer}, "", 0, reasonPaused},
		"an upgrade, which pauses":        {do{upgrade}, all, 0, reasonPaused},
		"an unreadable cluster":           {do{unreadable}, "", 0, reasonUpToDate},
		"an upgrade of an unreadable":     {do{unreadable, func(r *round) { r.image = "nfs:2" }}, "", 0, reasonUpToDate},

		"a foreign claim":               {do{foreignClaim}, unmade, 0, reasonUpToDate},
		"a larger claim":                {do{smaller}, all, 0, reasonUpToDate},
		"the claim of another server":   {do{func(r *round) { r.claim.Labels[Label] = "another" }}, unmade, 0, reasonUpToDate},
		"a smaller claim":               {do{larger}, "finalizer, grow claim  20Gi, " + rest, 0, reasonGrowing},
		"a claim that cannot be read":   {do{larger, func(r *round) { r.claimUnread = errors.New("no") }}, all, 0, reasonGrowing},
		"data that goes with its claim": {do{volume(removed, "")}, "finalizer, keep pv, " + rest, 0, reasonUpToDate},
		"data that is kept":             {do{volume(retained, removed)}, all, 0, reasonUpToDate},
		"data to be looked at again":    {do{func(r *round) { r.volumeAgain = keptFor }}, all, keptFor, reasonUpToDate},
		"data of another claim":         {do{volume(removed, ""), ofAnother}, all, 0, reasonUpToDate},
		"a claim that is gone":          {do{kept, noClaim}, "finalizer, free pv, make claim pv 4Gi, " + rest, 0, reasonUpToDate},
		"a claim that is named":         {do{givenClaim}, all, 0, reasonUpToDate},

		"no policies, as the cluster says": {do{func(r *round) { r.cluster.Spec.NFS.NetworkPolicies = new(false) }}, open, 0, reasonUpToDate},
		"Cilium alone":                     {do{func(r *round) { r.kinds[ciliumNode] = true }}, open, 0, reasonUpToDate},
		"Cilium": {do{func(r *round) {
			r.kinds[ciliumPolicy], r.kinds[ciliumNode] = true, true
		}}, strings.Replace(all, "StatefulSet", "CiliumNetworkPolicy, StatefulSet", 1), 0, reasonUpToDate},
		"open, and all nodes are known":            {do{func(r *round) { r.shut = false }}, all, 0, reasonUpToDate},
		"open, and a node that is not known":       {do{strange, func(r *round) { r.shut = false }}, open, 0, reasonUpToDate},
		"shut, and a node that is not known":       {do{strange}, all, 0, reasonUpToDate},
		"shut by its pod, and a node is not known": {do{strange, closed, func(r *round) { r.shut = false }}, all, 0, reasonUpToDate},
		"new, and a node that is not known":        {do{nothing, strange}, fresh, 0, reasonRollingOut},

		"deleted, of which nothing was made":       {do{deleted}, "say nothing", 0, ""},
		"deleted with its kind":                    {do{going, func(r *round) { r.incomplete = true }}, "say nothing", kube.LookAgain, ""},
		"deleted in use":                           {do{going, inUse}, rest, 0, reasonInUse},
		"deleted in use, not counted yet":          {do{going, inUse, func(r *round) { r.volumes = 0 }}, rest, kube.LookAgain, reasonInUse},
		"deleted in use, with storage of another":  {do{going, inUse, ofAnotherServer}, "", kube.RetryRefused, reasonInUse},
		"deleted in use and paused":                {do{going, inUse, pause}, "", kube.LookAgain, reasonInUse},
		"deleted, with its StatefulSet":            {do{going, left("Service", "StatefulSet")}, "delete StatefulSet, " + ending, soon, leaving},
		"deleted, with a pod alone":                {do{going, left("Service"), func(r *round) { r.remains.pod = true }}, ending, soon, leaving},
		"deleted and paused":                       {do{going, pause, left("Service", "StatefulSet")}, "", 0, reasonPaused},
		"deleted with its data, and paused":        {do{going, pause, withData, kept}, "", 0, reasonPaused},
		"deleted, of a cluster that is unreadable": {do{going, unreadable}, "", 0, reasonPaused},
		"deleted, with its objects": {do{going, left("Service", "NetworkPolicy"), func(r *round) {
			r.remains.parts[1].SetDeletionTimestamp(new(metav1.Now()))
		}}, "delete Service, wait for 2 objects to be deleted", soon, leaving},
		"deleted, with a foreign StatefulSet": {do{going, func(r *round) {
			r.statefulSet = part("StatefulSet")
		}}, "delete StatefulSet, finish, say nothing", 0, ""},
		"deleted without its data":             {do{going, kept}, "release pv Delete, finish, say nothing", 0, ""},
		"deleted, with data that has no claim": {do{going, kept, noClaim}, "release pv , finish, say nothing", 0, ""},
		"deleted with its data":                {do{going, withData, kept}, "release pv Delete, delete claim  10Gi, " + waiting, soon, leaving},
		"deleted, with a claim that goes": {do{going, withData, func(r *round) {
			r.claim.DeletionTimestamp = new(metav1.Now())
		}}, waiting, soon, leaving},
		"deleted, with a foreign claim": {do{going, withData, foreignClaim}, "finish, say nothing", 0, ""},
	} {
		r := look(test.changes...)
		before := []any{r.server.DeepCopy(), r.cluster.DeepCopy(), r.claim.DeepCopy(), r.set.DeepCopy()}
		p := newPlan(r.desired, r.observed)
		r.plan = p
		if got := r.steps(); got != test.want {
			t.Errorf("%s: it does\n%s, want\n%s", name, got, test.want)
		}
		if c := p.makeClaim; c != nil && (c.Namespace != "team" || c.Name != "nfs-data" || !isOurs(c, r.server) || len(c.OwnerReferences) > 0) {
			t.Errorf("%s: the claim is %+v", name, c)
		}
		if c := p.makeClaim; c != nil && c.Spec.VolumeName == "" && c.Spec.StorageClassName != nil { // "" would be no class, not the default one
			t.Errorf("%s: the claim is of class %q, and not of the default one", name, *c.Spec.StorageClassName)
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
		twice := newPlan(r.desired, r.observed)
		nextTwice, eventsTwice, _ := r.conclude()
		if p.steps() != twice.steps() || !reflect.DeepEqual(next, nextTwice) || !reflect.DeepEqual(events, eventsTwice) {
			t.Errorf("%s: the same gives another plan or status", name)
		}
	}
}

func TestPlan_RecreatedServiceHasItsFormerAddressAndAnUpgradeGivesItsImage(t *testing.T) {
	r := look(nothing, func(r *round) { r.server.Status.Endpoint = "10.0.0.9:2049" })
	p := newPlan(r.desired, r.observed)
	if got := as[core.Service](t, p.network, "Service").Spec.ClusterIP; got != "10.0.0.9" {
		t.Errorf("it requests %q", got)
	}
	r = look(upgrade)
	p = newPlan(r.desired, r.observed)
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
		p := newPlan(r.desired, r.observed)
		if got := as[apps.StatefulSet](t, p.workload, "StatefulSet").Spec.Template.Annotations[accountAnnotation]; got != test.want {
			t.Errorf("%s: the pod is for account %q, want %q", name, got, test.want)
		}
	}
}

func TestConclude_StatusReportsTheFailuresOfItsPass(t *testing.T) {
	const no = reasonNotApplied
	refusedAndContested := func(r *round) {
		refused(r)
		r.Again = time.Hour
	}
	for name, test := range map[string]struct {
		change                func(*round)
		progressing, degraded string
		events                int
		again                 time.Duration
	}{
		"all is applied":               {func(*round) {}, reasonUpToDate, reasonHealthy, 0, 0},
		"the StatefulSet is changed":   {setChanged, reasonRollingOut, reasonHealthy, 0, 0},
		"an object is refused":         {refused, no, no, 1, kube.RetryRefused},
		"a claim is refused":           {claimRefused, no, no, 1, kube.RetryRefused},
		"an object is contested":       {func(r *round) { r.Again = time.Second }, reasonUpToDate, reasonHealthy, 0, time.Second},
		"refused, and contested later": {refusedAndContested, no, no, 1, kube.RetryRefused},
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
		changes do
		want    string
	}{
		"it serves":               {do{run("nfs:2")}, ""},
		"its claim cannot grow":   {do{run("nfs:2"), claimRefused}, ""},
		"the old one":             {do{run("nfs:1")}, "to be replaced"},
		"its spec has gone bad":   {do{run("nfs:1"), invalid}, "spec.x: bad"},
		"changed by this pass":    {do{run("nfs:2"), setChanged}, "to be replaced"},
		"it is no longer allowed": {do{run("nfs:2"), unlisted}, ""},
		"it does not serve":       {do{run("nfs:2"), unready}, "it starts"},
		"what it needs is barred": {do{run("nfs:2"), refused}, "no"},
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
			r.server.Status.Conditions = []metav1.Condition{{
				Type: v1beta1.AvailableCondition, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(since),
			}}
		}
	}
	serving := available(metav1.ConditionTrue, reasonServing, began.Add(-time.Hour))
	for name, test := range map[string]struct {
		changes do
		want    bool
	}{
		"it serves":                {do{serving}, true},
		"it served again since":    {do{available(metav1.ConditionTrue, reasonServing, began.Add(time.Second))}, true},
		"it stopped since":         {do{available(metav1.ConditionFalse, reasonNotServing, began.Add(time.Second))}, true},
		"it stopped just then":     {do{available(metav1.ConditionFalse, reasonNotServing, began)}, true},
		"it stopped before":        {do{available(metav1.ConditionFalse, reasonNotServing, began.Add(-time.Second))}, false},
		"it has never served":      {do{available(metav1.ConditionFalse, reasonPod, began.Add(time.Second))}, false},
		"it is new":                {nil, false},
		"its storage is another's": {do{serving, ofAnotherServer}, false},
		"its claim is another's":   {do{serving, foreignClaim}, false},
		"its claim cannot be read": {do{serving, func(r *round) { r.claimUnread = errors.New("no") }}, true},
		"its claim is deleted":     {do{serving, noClaim}, true}, // and created again
		"its claim does not go":    {do{serving, func(r *round) { r.claim.DeletionTimestamp = new(metav1.Now()) }}, false},
		"a given claim is deleted": {do{serving, givenClaim}, false},
		"a directory of a node":    {do{serving, directory}, true},
		"barred since":             {do{serving, func(r *round) { r.barredAt = began.Add(time.Second) }}, false},
		"barred before":            {do{serving, func(r *round) { r.barredAt = began.Add(-time.Second) }}, true},
	} {
		r := look(append(test.changes, upgrade)...)
		r.plan = newPlan(r.desired, r.observed)
		if got := r.isAwaited(began); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestIsBarred_ByUsersOfItsNamespaceAlone(t *testing.T) {
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
		leaving := part("StatefulSet")
		leaving.SetDeletionTimestamp(new(metav1.NewTime(r.now.Add(-test.ago))))
		if got := r.isBarred(func(apply.Ref) *unstructured.Unstructured { return leaving }); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
