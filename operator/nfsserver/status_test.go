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

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

// working is a server at work, changed as a test wants it.
func working(change func(*situation)) *situation {
	claim := claimFor(server(nil))
	claim.Status = core.PersistentVolumeClaimStatus{Phase: core.ClaimBound, Capacity: core.ResourceList{core.ResourceStorage: resource.MustParse("10Gi")}}
	claim.Spec.StorageClassName = new("fast")
	o := &situation{
		now: time.Unix(5000, 0), server: server(nil), cluster: allowing("team"), holdfast: "holdfast-system", entitled: true, claim: claim, address: "10.0.0.9",
		namespace: &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}},
		set:       &apps.StatefulSet{Status: apps.StatefulSetStatus{UpdatedReplicas: 1, ReadyReplicas: 1, CurrentRevision: "a", UpdateRevision: "a"}},
		pods:      []*core.Pod{readyPod()},
		storage: &v1.StorageNode{
			Status: v1.StorageNodeStatus{Pools: []v1.Pool{{Name: "default", Capacity: resource.MustParse("9Gi"), Promised: resource.MustParse("3Gi")}}},
		},
		volumes: 2, exports: 2,
	}
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

func unready(o *situation) {
	o.pods = []*core.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "nfs-data-0"}, Spec: core.PodSpec{NodeName: "node1"}}}
	o.set.Status.ReadyReplicas = 0
}

func noPod(o *situation) { o.pods, o.set.Status = nil, apps.StatefulSetStatus{} }

func TestAStatusTellsWhatThereIs(t *testing.T) {
	s := working(func(o *situation) { o.volumes = 3 }).status() // of which one is yet to be made
	if s.Phase != v1.NFSRunning || s.Endpoint != "10.0.0.9:2049" || s.Address() != "10.0.0.9" || s.AccessModes != "RW" || s.Claim != "nfs-data" ||
		s.StorageClassName != "fast" || s.Node != "node1" || s.Exports != 2 || s.Clients != 4 || s.ObservedGeneration != 3 {
		t.Errorf("it is %+v", s)
	}
	if s.Columns.Capacity != "9Gi" || s.Columns.Promised != "3Gi" {
		t.Errorf("the columns are %+v", s.Columns)
	}
	early := working(func(o *situation) { o.storage = nil }).status()
	if early.Columns.Capacity != "10Gi" || early.Promised != nil {
		t.Errorf("before the server has said anything it is %+v", early)
	}
	six := working(func(o *situation) { o.address = "fd00::9" }).status()
	if six.Endpoint != "[fd00::9]:2049" || six.Address() != "fd00::9" {
		t.Errorf("the endpoint is %s, of the address %s", six.Endpoint, six.Address())
	}
	publishes := func(o *situation) { publishing(&o.server.Spec); o.storage, o.volumes, o.exports = nil, 0, 0 }
	published := working(publishes).status()
	if published.Path != "/photos" || published.AccessModes != "RO" || published.Exports != 1 || published.Clients != 4 || published.Claim != "photos" {
		t.Errorf("of what is published it is %+v", published)
	}
	never := working(func(o *situation) { publishes(o); unready(o) })
	if s := never.status(); s.Exports != 0 {
		t.Errorf("before it has ever served there are %d exports", s.Exports)
	}
	never.server.Status.Conditions = []metav1.Condition{{Type: v1.AvailableCondition, Status: metav1.ConditionTrue, Reason: reasonServing}}
	if s := never.status(); s.Exports != 1 {
		t.Errorf("while it is away there are %d exports", s.Exports)
	}
}

func TestThePhaseAndTheConditionsFollowFromWhatIsSeen(t *testing.T) {
	served := func(o *situation) {
		o.server.Status.Conditions = []metav1.Condition{{Type: v1.AvailableCondition, Status: metav1.ConditionTrue, Reason: reasonServing}}
	}
	for name, test := range map[string]struct {
		change                           []func(*situation)
		phase                            v1.NFSPhase
		available, progressing, degraded string // reasons
		says                             string // one of the messages
	}{
		"at work":         {nil, v1.NFSRunning, reasonServing, reasonUpToDate, reasonHealthy, "10.0.0.9:2049"},
		"nothing yet":     {[]func(*situation){func(o *situation) { o.set, o.pods = nil, nil }}, v1.NFSPending, reasonCreating, reasonRollingOut, reasonHealthy, "to be made"},
		"no pod yet":      {[]func(*situation){noPod}, v1.NFSPending, reasonCreating, reasonRollingOut, reasonHealthy, "StatefulSet nfs-data"},
		"a pod starts":    {[]func(*situation){unready}, v1.NFSPending, reasonPod, reasonRollingOut, reasonHealthy, "nfs-data-0 on node node1: it starts"},
		"it has stopped":  {[]func(*situation){served, unready}, v1.NFSDegraded, reasonNotServing, reasonRollingOut, reasonNotServing, "nfs-data-0"},
		"an old revision": {[]func(*situation){served, func(o *situation) { o.set.Status.UpdatedReplicas = 0 }}, v1.NFSRunning, reasonServing, reasonRollingOut, reasonHealthy, "to be replaced"},
		"no loop devices": {[]func(*situation){unready, func(o *situation) {
			o.pods[0].Status.Conditions = []core.PodCondition{{Type: core.PodScheduled, Status: core.ConditionFalse, Message: "0/1 nodes are available: 1 Insufficient holdfast.dev/loop-set."}}
		}}, v1.NFSPending, reasonPod, reasonRollingOut, reasonHealthy, "engine directory"},
		"none that are guarded": {[]func(*situation){unready, func(o *situation) {
			o.unguarded = true
			o.pods[0].Status.Conditions = []core.PodCondition{{Type: core.PodScheduled, Status: core.ConditionFalse, Message: "0/1 nodes are available: 1 Insufficient holdfast.dev/loop-set."}}
		}}, v1.NFSPending, reasonPod, reasonRollingOut, reasonHealthy, "Kubernetes 1.30"},
		"a strict namespace": {[]func(*situation){noPod, func(o *situation) {
			o.namespace.Labels = map[string]string{enforceLabel: "restricted"}
		}}, v1.NFSPending, reasonPodSecurity, reasonRollingOut, reasonHealthy, "kubectl label --overwrite namespace team pod-security.kubernetes.io/enforce=privileged"},
		"strict, with a pod": {[]func(*situation){func(o *situation) {
			o.namespace.Labels = map[string]string{enforceLabel: "restricted"}
		}}, v1.NFSRunning, reasonServing, reasonUpToDate, reasonHealthy, ""},
		"a claim that is not there": {[]func(*situation){noPod, func(o *situation) {
			o.server.Spec.Storage, o.claim = &v1.NFSStorage{ClaimName: "mine"}, nil
		}}, v1.NFSPending, reasonClaim, reasonRollingOut, reasonHealthy, "there is no claim mine in namespace team: make it"},
		"a lost claim":  {[]func(*situation){unready, func(o *situation) { o.claim.Status.Phase = core.ClaimLost }}, v1.NFSPending, reasonClaim, reasonRollingOut, reasonHealthy, "lost its volume"},
		"a block claim": {[]func(*situation){unready, func(o *situation) { o.claim.Spec.VolumeMode = new(core.PersistentVolumeBlock) }}, v1.NFSPending, reasonClaim, reasonRollingOut, reasonHealthy, "volumeMode Filesystem"},
		"a larger size": {[]func(*situation){served, func(o *situation) { o.server.Spec.Storage.Size = new(resource.MustParse("20Gi")) }}, v1.NFSRunning, reasonServing, reasonGrowing, reasonHealthy, "has 10Gi and is to have 20Gi"},
		"a size that is refused": {
			[]func(*situation){served, func(o *situation) { o.claimErr = errors.New("claim nfs-data cannot grow: forbidden") }},
			v1.NFSDegraded, reasonServing, reasonNotApplied, reasonNotApplied, "cannot grow",
		},
		"a foreign claim":   {[]func(*situation){noPod, func(o *situation) { o.claimErr = errForeignClaim }}, v1.NFSPending, reasonForeign, reasonForeign, reasonForeign, "not made for this server"},
		"a foreign service": {[]func(*situation){noPod, func(o *situation) { o.failures = []apply.Failure{{Err: apply.ErrForeign}} }}, v1.NFSPending, reasonForeign, reasonForeign, reasonForeign, "delete it"},
		"refused":           {[]func(*situation){noPod, func(o *situation) { o.failures = []apply.Failure{{Err: errors.New("no")}} }}, v1.NFSPending, reasonNotApplied, reasonNotApplied, reasonNotApplied, "no"},
		"a bad spec":        {[]func(*situation){noPod, func(o *situation) { o.invalid = errors.New("spec.x: bad") }}, v1.NFSPending, reasonInvalid, reasonInvalid, reasonInvalid, "spec.x: bad"},
		"a spec gone bad":   {[]func(*situation){served, func(o *situation) { o.invalid = errors.New("spec.x: bad") }}, v1.NFSDegraded, reasonServing, reasonInvalid, reasonInvalid, "spec.x: bad"},
		"failing storage":   {[]func(*situation){served, func(o *situation) { o.storage.Status.Pools[0].Message = "read only" }}, v1.NFSDegraded, reasonServing, reasonUpToDate, reasonStorage, "read only"},
		"paused":            {[]func(*situation){served, func(o *situation) { o.cluster.Spec.Pause = true }}, v1.NFSRunning, reasonServing, reasonPaused, reasonHealthy, "spec.pause"},
		"a namespace that ends": {
			[]func(*situation){served, noPod, func(o *situation) { o.namespace.DeletionTimestamp = new(metav1.Now()) }},
			v1.NFSDegraded, reasonNotServing, reasonRollingOut, reasonNotServing, "is being deleted",
		},
		"deleted in use": {[]func(*situation){served, deleted}, v1.NFSTerminating, reasonServing, reasonInUse, reasonHealthy, "it has 2 volumes; delete their claims first: kubectl get volumes --field-selector spec.node=team.data.nfs.holdfast.dev"},
		"leaving":        {[]func(*situation){served, deleted, func(o *situation) { o.leaving = "its pod to end" }}, v1.NFSTerminating, reasonTerminating, reasonTerminating, reasonHealthy, "its pod to end"},
	} {
		o := working(nil)
		for _, change := range test.change {
			change(o)
		}
		s := o.status()
		have := [3]string{find(&s, v1.AvailableCondition).Reason, find(&s, v1.ProgressingCondition).Reason, find(&s, v1.DegradedCondition).Reason}
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

func deleted(o *situation) { o.server.DeletionTimestamp = new(metav1.Now()) }

func TestAnEventIsWrittenOncePerTransition(t *testing.T) {
	var old v1.NFSServerStatus
	follow := func(change func(*situation)) []string {
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
		change func(*situation)
		want   string
	}{
		{func(o *situation) { noPod(o); o.namespace.Labels = map[string]string{enforceLabel: "baseline"} }, "Warning FailedCreation"},
		{func(o *situation) { noPod(o); o.namespace.Labels = map[string]string{enforceLabel: "baseline"} }, ""},
		{unready, ""},
		{nil, "Normal ChangedStatus"},
		{func(o *situation) { o.volumes = 9 }, ""},
		{unready, "Warning ChangedStatus"},
		{unready, ""},
		{nil, "Normal ChangedStatus"},
		{func(o *situation) { o.invalid = errors.New("bad") }, "Warning FailedCreation"},
		{func(o *situation) { o.invalid = errors.New("bad") }, ""},
		{func(o *situation) { o.invalid = errors.New("worse") }, "Warning FailedCreation"},
		{nil, ""},
		{deleted, "Warning Terminating"},
		{func(o *situation) { deleted(o); o.volumes = 1 }, ""},
		{func(o *situation) { deleted(o); o.volumes, o.leaving = 0, "its pod to end" }, "Normal Terminating"},
		{func(o *situation) { deleted(o); noPod(o); o.volumes, o.leaving = 0, "objects to go" }, ""},
	} {
		if got := strings.Join(follow(step.change), ", "); got != step.want {
			t.Errorf("step %d: the events are %q, want %q", i, got, step.want)
		}
	}
}

func TestTheNodeOfAServerIsKeptWhileItHasNone(t *testing.T) {
	o := working(noPod)
	o.server.Status.Node = "node1"
	if got := o.status().Node; got != "node1" {
		t.Errorf("it is %q: a directory of a node would be looked for on any", got)
	}
}

func TestAServerThatDoesNotServeHasNoClients(t *testing.T) {
	if got := working(unready).status().Clients; got != 0 {
		t.Errorf("it has %d clients", got)
	}
}
