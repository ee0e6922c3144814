package nfsserver

import (
	"errors"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

// working is a server at work, changed as a test wants it.
func working(change func(*round)) *round {
	claim := claimFor(server(nil))
	claim.Status = core.PersistentVolumeClaimStatus{Phase: core.ClaimBound, Capacity: core.ResourceList{core.ResourceStorage: resource.MustParse("10Gi")}}
	claim.Spec.StorageClassName = new("fast")
	o := &round{desired: desired{server: server(nil), cluster: allowing("team"), holdfast: "holdfast-system"}, observed: observed{
		now: time.Unix(5000, 0), entitled: true, claim: claim, service: "10.0.0.9",
		namespace: &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}},
		set:       &apps.StatefulSet{Status: apps.StatefulSetStatus{UpdatedReplicas: 1, ReadyReplicas: 1, CurrentRevision: "a", UpdateRevision: "a"}},
		pods:      []*core.Pod{readyPod()},
		storage: &v1beta1.StorageNode{
			Status: v1beta1.StorageNodeStatus{Pools: []v1beta1.Pool{{Name: "default", Capacity: resource.MustParse("9Gi"), Promised: resource.MustParse("3Gi")}}},
		},
		volumes: 2, exports: 2,
	}}
	o.server.Status.Clients = 4
	if change != nil {
		change(o)
	}
	return o
}

func readyPod() *core.Pod {
	return &core.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "nfs-data-0"}, Spec: core.PodSpec{NodeName: "node1"},
		Status: core.PodStatus{Conditions: []core.PodCondition{{Type: core.PodReady, Status: core.ConditionTrue}}},
	}
}

func unready(o *round) {
	o.pods = []*core.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "nfs-data-0"}, Spec: core.PodSpec{NodeName: "node1"}}}
	o.set.Status.ReadyReplicas = 0
}

func noPod(o *round) { o.pods, o.set.Status = nil, apps.StatefulSetStatus{} }

func TestStatus_ReportsTheExistingObjects(t *testing.T) {
	s := working(func(o *round) { o.volumes = 3 }).status() // of which one is yet to be made
	if s.Phase != v1beta1.NFSRunning || s.Endpoint != "10.0.0.9:2049" || s.Address() != "10.0.0.9" || s.Access != v1beta1.NFSReadWrite || s.ClaimName != "nfs-data" ||
		s.StorageClassName != "fast" || s.Node != "node1" || s.Exports != 2 || s.Clients != 4 || s.ObservedGeneration != 3 {
		t.Errorf("it is %+v", s)
	}
	if s.Columns.Capacity != "9Gi" || s.Columns.Promised != "3Gi" {
		t.Errorf("the columns are %+v", s.Columns)
	}
	early := working(func(o *round) { o.storage = nil }).status()
	if early.Columns.Capacity != "10Gi" || early.Promised != nil {
		t.Errorf("before the server has said anything it is %+v", early)
	}
	six := working(func(o *round) { o.service = "fd00::9" }).status()
	if six.Endpoint != "[fd00::9]:2049" || six.Address() != "fd00::9" {
		t.Errorf("the endpoint is %s, of the address %s", six.Endpoint, six.Address())
	}
	publishes := func(o *round) { publishing(&o.server.Spec); o.storage, o.volumes, o.exports = nil, 0, 0 }
	published := working(publishes).status()
	if published.Path != "/photos" || published.Access != v1beta1.NFSReadOnly || published.Exports != 1 || published.Clients != 4 || published.ClaimName != "photos" {
		t.Errorf("of what is published it is %+v", published)
	}
	never := working(func(o *round) { publishes(o); unready(o) })
	if s := never.status(); s.Exports != 0 {
		t.Errorf("before it has ever served there are %d exports", s.Exports)
	}
	never.server.Status.Conditions = []metav1.Condition{{Type: v1beta1.AvailableCondition, Status: metav1.ConditionTrue, Reason: reasonServing}}
	if s := never.status(); s.Exports != 1 {
		t.Errorf("while it is away there are %d exports", s.Exports)
	}
}

func TestStatus_PhaseAndConditionsFollowTheObservedState(t *testing.T) {
	served := func(o *round) {
		o.server.Status.Conditions = []metav1.Condition{{Type: v1beta1.AvailableCondition, Status: metav1.ConditionTrue, Reason: reasonServing}}
	}
	for name, test := range map[string]struct {
		change                           []func(*round)
		phase                            v1beta1.NFSPhase
		available, progressing, degraded string // reasons
		says                             string // one of the messages
	}{
		"at work":         {nil, v1beta1.NFSRunning, reasonServing, reasonUpToDate, reasonHealthy, "10.0.0.9:2049"},
		"nothing yet":     {[]func(*round){func(o *round) { o.set, o.pods = nil, nil }}, v1beta1.NFSPending, reasonCreating, reasonRollingOut, reasonHealthy, "to be created"},
		"no pod yet":      {[]func(*round){noPod}, v1beta1.NFSPending, reasonCreating, reasonRollingOut, reasonHealthy, "StatefulSet nfs-data"},
		"a pod starts":    {[]func(*round){unready}, v1beta1.NFSPending, reasonPod, reasonRollingOut, reasonHealthy, "nfs-data-0 on node node1: it starts"},
		"it has stopped":  {[]func(*round){served, unready}, v1beta1.NFSDegraded, reasonNotServing, reasonRollingOut, reasonNotServing, "nfs-data-0"},
		"an old revision": {[]func(*round){served, func(o *round) { o.set.Status.UpdatedReplicas = 0 }}, v1beta1.NFSRunning, reasonServing, reasonRollingOut, reasonHealthy, "to be replaced"},
		"no loop devices": {[]func(*round){unready, func(o *round) {
			o.pods[0].Status.Conditions = []core.PodCondition{{Type: core.PodScheduled, Status: core.ConditionFalse, Message: "0/1 nodes are available: 1 Insufficient holdfast.dev/loop-set."}}
		}}, v1beta1.NFSPending, reasonPod, reasonRollingOut, reasonHealthy, "engine directory"},
		"none that are guarded": {[]func(*round){unready, func(o *round) {
			o.unguarded = true
			o.pods[0].Status.Conditions = []core.PodCondition{{Type: core.PodScheduled, Status: core.ConditionFalse, Message: "0/1 nodes are available: 1 Insufficient holdfast.dev/loop-set."}}
		}}, v1beta1.NFSPending, reasonPod, reasonRollingOut, reasonHealthy, "is switched off in the API server"},
		"a strict namespace": {[]func(*round){noPod, func(o *round) {
			o.namespace.Labels = map[string]string{enforceLabel: "restricted"}
		}}, v1beta1.NFSPending, reasonPodSecurity, reasonRollingOut, reasonHealthy, "kubectl label --overwrite namespace team pod-security.kubernetes.io/enforce=privileged"},
		"strict, with a pod": {[]func(*round){func(o *round) {
			o.namespace.Labels = map[string]string{enforceLabel: "restricted"}
		}}, v1beta1.NFSRunning, reasonServing, reasonUpToDate, reasonHealthy, ""},
		"a claim that is not there": {[]func(*round){noPod, func(o *round) {
			o.server.Spec.Storage, o.claim = &v1beta1.NFSStorage{ClaimName: "mine"}, nil
		}}, v1beta1.NFSPending, reasonClaim, reasonRollingOut, reasonHealthy, "there is no claim mine in namespace team: create it"},
		"a lost claim":  {[]func(*round){unready, func(o *round) { o.claim.Status.Phase = core.ClaimLost }}, v1beta1.NFSPending, reasonClaim, reasonRollingOut, reasonHealthy, "lost its volume"},
		"a block claim": {[]func(*round){unready, func(o *round) { o.claim.Spec.VolumeMode = new(core.PersistentVolumeBlock) }}, v1beta1.NFSPending, reasonClaim, reasonRollingOut, reasonHealthy, "volumeMode Filesystem"},
		"a larger size": {[]func(*round){served, func(o *round) { o.server.Spec.Storage.Size = new(resource.MustParse("20Gi")) }}, v1beta1.NFSRunning, reasonServing, reasonGrowing, reasonHealthy, "has 10Gi and should have 20Gi"},
		"a size that is refused": {
			[]func(*round){served, func(o *round) { o.claimErr = errors.New("claim nfs-data cannot grow: forbidden") }},
			v1beta1.NFSDegraded, reasonServing, reasonNotApplied, reasonNotApplied, "cannot grow",
		},
		"a foreign claim":   {[]func(*round){noPod, func(o *round) { o.claimErr = errForeignClaim }}, v1beta1.NFSPending, reasonForeign, reasonForeign, reasonForeign, "not created for this server"},
		"a foreign service": {[]func(*round){noPod, func(o *round) { o.Failures = []apply.Failure{{Err: apply.ErrForeign}} }}, v1beta1.NFSPending, reasonForeign, reasonForeign, reasonForeign, "delete it"},
		"refused":           {[]func(*round){noPod, func(o *round) { o.Failures = []apply.Failure{{Err: errors.New("no")}} }}, v1beta1.NFSPending, reasonNotApplied, reasonNotApplied, reasonNotApplied, "no"},
		"a bad spec":        {[]func(*round){noPod, func(o *round) { o.invalid = errors.New("spec.x: bad") }}, v1beta1.NFSPending, reasonInvalid, reasonInvalid, reasonInvalid, "spec.x: bad"},
		"a spec gone bad":   {[]func(*round){served, func(o *round) { o.invalid = errors.New("spec.x: bad") }}, v1beta1.NFSDegraded, reasonServing, reasonInvalid, reasonInvalid, "spec.x: bad"},
		"failing storage":   {[]func(*round){served, func(o *round) { o.storage.Status.Pools[0].Message = "read only" }}, v1beta1.NFSDegraded, reasonServing, reasonUpToDate, reasonStorage, "read only"},
		"paused":            {[]func(*round){served, func(o *round) { o.cluster.Spec.Paused = true }}, v1beta1.NFSRunning, reasonServing, reasonPaused, reasonHealthy, "spec.paused"},
		"a namespace that ends": {
			[]func(*round){served, noPod, func(o *round) { o.namespace.DeletionTimestamp = new(metav1.Now()) }},
			v1beta1.NFSDegraded, reasonNotServing, reasonRollingOut, reasonNotServing, "is being deleted",
		},
		"deleted in use": {[]func(*round){served, deleted}, v1beta1.NFSTerminating, reasonServing, reasonInUse, reasonHealthy, "it has 2 volumes; delete their claims first: kubectl get volumes.holdfast.dev --field-selector spec.node=team.data.nfs.holdfast.dev"},
		"leaving":        {[]func(*round){served, deleted, func(o *round) { o.leaving = "its pod to end" }}, v1beta1.NFSTerminating, reasonTerminating, reasonTerminating, reasonHealthy, "its pod to end"},
	} {
		o := working(nil)
		for _, change := range test.change {
			change(o)
		}
		s := o.status()
		have := [3]string{find(&s, v1beta1.AvailableCondition).Reason, find(&s, v1beta1.ProgressingCondition).Reason, find(&s, v1beta1.DegradedCondition).Reason}
		if want := [3]string{test.available, test.progressing, test.degraded}; s.Phase != test.phase || have != want {
			t.Errorf("%s: %s %v, want %s %v", name, s.Phase, have, test.phase, want)
		}
		said := ""
		for _, c := range s.Conditions {
			said += c.Message + "\n"
		}
		if !strings.Contains(said, test.says) {
			t.Errorf("%s: it says\n%s, nothing of %q", name, said, test.says)
		}
	}
}

func deleted(o *round) { o.server.DeletionTimestamp = new(metav1.Now()) }

func TestStatus_EventIsWrittenOncePerTransition(t *testing.T) {
	var old v1beta1.NFSServerStatus
	follow := func(change func(*round)) []string {
		o := working(change)
		o.server.Status = old
		next := o.status()
		var all []string
		for _, e := range transitions(&old, &next) {
			all = append(all, e.kind+" "+e.reason)
		}
		old = next
		return all
	}
	for i, step := range []struct {
		change func(*round)
		want   string
	}{
		{func(o *round) { noPod(o); o.namespace.Labels = map[string]string{enforceLabel: "baseline"} }, "Warning FailedCreation"},
		{func(o *round) { noPod(o); o.namespace.Labels = map[string]string{enforceLabel: "baseline"} }, ""},
		{unready, ""},
		{nil, "Normal ChangedStatus"},
		{func(o *round) { o.volumes = 9 }, ""},
		{unready, "Warning ChangedStatus"},
		{unready, ""},
		{nil, "Normal ChangedStatus"},
		{func(o *round) { o.invalid = errors.New("bad") }, "Warning FailedCreation"},
		{func(o *round) { o.invalid = errors.New("bad") }, ""},
		{func(o *round) { o.invalid = errors.New("worse") }, "Warning FailedCreation"},
		{nil, ""},
		{deleted, "Warning Terminating"},
		{func(o *round) { deleted(o); o.volumes = 1 }, ""},
		{func(o *round) { deleted(o); o.volumes, o.leaving = 0, "its pod to end" }, "Normal Terminating"},
		{func(o *round) { deleted(o); noPod(o); o.volumes, o.leaving = 0, "objects to go" }, ""},
	} {
		if got := strings.Join(follow(step.change), ", "); got != step.want {
			t.Errorf("step %d: the events are %q, want %q", i, got, step.want)
		}
	}
}

func TestStatus_NodeIsKeptWhileThePodHasNone(t *testing.T) {
	o := working(noPod)
	o.server.Status.Node = "node1"
	if got := o.status().Node; got != "node1" {
		t.Errorf("it is %q: a directory of a node would be looked for on any", got)
	}
}

func TestStatus_ServerThatDoesNotServeHasNoClients(t *testing.T) {
	if got := working(unready).status().Clients; got != 0 {
		t.Errorf("it has %d clients", got)
	}
}
