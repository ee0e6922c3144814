package nfsserver

import (
	"errors"
	"fmt"
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

// working is a server at work, changed as a test needs it.
func working(changes ...func(*round)) *round {
	claim := claimFor(server(nil))
	claim.Status.Phase, claim.Status.Capacity = core.ClaimBound, core.ResourceList{core.ResourceStorage: resource.MustParse("10Gi")}
	claim.Spec.StorageClassName = new("fast")
	r := &round{desired: desired{server: server(nil), cluster: allowing("team"), holdfast: "holdfast-system"}, observed: observed{
		now: time.Unix(5000, 0), entitled: true, claim: claim, service: "10.0.0.9",
		namespace: &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}},
		set:       &apps.StatefulSet{Status: apps.StatefulSetStatus{UpdatedReplicas: 1, ReadyReplicas: 1, CurrentRevision: "a", UpdateRevision: "a"}},
		pods: []*core.Pod{{
			ObjectMeta: metav1.ObjectMeta{Name: "nfs-data-0"}, Spec: core.PodSpec{NodeName: "node1"},
			Status: core.PodStatus{Conditions: []core.PodCondition{{Type: core.PodReady, Status: core.ConditionTrue}}},
		}},
		storage: &v1beta1.StorageNode{
			Status: v1beta1.StorageNodeStatus{Pools: []v1beta1.Pool{{Name: "default", Capacity: resource.MustParse("9Gi"), Promised: resource.MustParse("3Gi")}}},
		},
		volumes: 2, exports: 2,
	}}
	r.server.Status.Clients = 4
	for _, change := range changes {
		change(r)
	}
	return r
}

func TestStatus_ReportsTheExistingObjects(t *testing.T) {
	publishes := func(r *round) { publishing(&r.server.Spec); r.storage, r.volumes, r.exports = nil, 0, 0 }
	const data, numbers = "ReadWrite nfs-data of fast on node1: ", "2 exports, 4 clients, 9Gi and 3Gi"
	const at = "10.0.0.9, 10.0.0.9:2049, " + data
	const usual, away = at + numbers, at + "2 exports, 0 clients, 9Gi and 3Gi"
	const published = "10.0.0.9, 10.0.0.9:2049/photos, ReadOnly photos of fast on node1: "
	for name, test := range map[string]struct {
		changes do
		want    string
	}{
		"at work":                    {nil, usual},
		"a volume is yet to be made": {do{func(r *round) { r.volumes = 3 }}, usual},
		"it has reported nothing":    {do{func(r *round) { r.storage = nil }}, at + "2 exports, 4 clients, 10Gi and "},
		"of IPv6":                    {do{func(r *round) { r.service = "fd00::9" }}, "fd00::9, [fd00::9]:2049, " + data + numbers},
		"it does not serve":          {do{unready}, away},
		// A directory of a node would be looked for on any.
		"no pod, after one":     {do{noPod, func(r *round) { r.server.Status.Node = "node1" }}, away},
		"published":             {do{publishes}, published + "1 exports, 4 clients, 10Gi and "},
		"published, never":      {do{publishes, unready}, published + "0 exports, 0 clients, 10Gi and "},
		"published, being away": {do{publishes, unready, served}, published + "1 exports, 0 clients, 10Gi and "},
	} {
		s := working(test.changes...).status()
		got := fmt.Sprintf("%s, %s%s, %s %s of %s on %s: %d exports, %d clients, %s and %s", s.Address(), s.Endpoint, s.Path, s.Access,
			s.ClaimName, s.StorageClassName, s.Node, s.Exports, s.Clients, s.Columns.Capacity, s.Columns.Promised)
		if got != test.want || s.ObservedGeneration != 3 {
			t.Errorf("%s: it is %s, want %s; observed is %d", name, got, test.want, s.ObservedGeneration)
		}
	}
}

func TestStatus_PhaseAndConditionsFollowTheObservedState(t *testing.T) {
	const allow = `kubectl patch storageclusters.holdfast.dev holdfast --type=merge --patch='{"spec":{"nfs":{"namespaces":["other","team"]}}}'`
	unscheduled := func(r *round) {
		r.pods[0].Status.Conditions = []core.PodCondition{{
			Type: core.PodScheduled, Status: core.ConditionFalse, Message: "0/1 nodes are available: 1 Insufficient holdfast.dev/loop-set.",
		}}
	}
	for name, test := range map[string]struct {
		changes do
		want    string // the phase, and the reasons of Available, Progressing and Degraded
		says    string // of one condition
	}{
		"at work":         {nil, "Running: Serving UpToDate Healthy", "10.0.0.9:2049"},
		"nothing yet":     {do{func(r *round) { r.set, r.pods = nil, nil }}, "Pending: Creating RollingOut Healthy", "to be created"},
		"no pod yet":      {do{noPod}, "Pending: Creating RollingOut Healthy", "StatefulSet nfs-data"},
		"a pod starts":    {do{unready}, "Pending: PodNotReady RollingOut Healthy", "nfs-data-0 on node node1: it starts"},
		"it has stopped":  {do{served, unready}, "Degraded: NotServing RollingOut NotServing", "nfs-data-0"},
		"no loop devices": {do{unready, unscheduled}, "Pending: PodNotReady RollingOut Healthy", "engine Directory"},
		"an old revision": {do{served, func(r *round) {
			r.set.Status.UpdatedReplicas = 0
		}}, "Running: Serving RollingOut Healthy", "to be replaced"},
		"none that are guarded": {do{unready, unscheduled, func(r *round) {
			r.unguarded = true
		}}, "Pending: PodNotReady RollingOut Healthy", "is switched off in the API server"},
		"a strict namespace": {
			do{noPod, strict},
			"Pending: PodSecurity RollingOut Healthy",
			"kubectl label --overwrite namespace team pod-security.kubernetes.io/enforce=privileged",
		},
		"strict, with a pod": {do{strict}, "Running: Serving UpToDate Healthy", ""},
		"a claim that is not there": {
			do{noPod, givenClaim},
			"Pending: ClaimNotUsable RollingOut Healthy",
			"there is no claim mine in namespace team: create it",
		},
		"a lost claim": {do{unready, func(r *round) {
			r.claim.Status.Phase = core.ClaimLost
		}}, "Pending: ClaimNotUsable RollingOut Healthy", "lost its volume"},
		"a block claim": {do{unready, func(r *round) {
			r.claim.Spec.VolumeMode = new(core.PersistentVolumeBlock)
		}}, "Pending: ClaimNotUsable RollingOut Healthy", "volumeMode Filesystem"},
		"a larger size":          {do{served, larger}, "Running: Serving Growing Healthy", "has 10Gi and should have 20Gi"},
		"a size that is refused": {do{served, claimRefused}, "Degraded: Serving NotApplied NotApplied", "no"},
		"a foreign claim": {do{noPod, func(r *round) {
			r.claimErr = errForeignClaim
		}}, "Pending: NameTaken NameTaken NameTaken Stalled", "not created for this server"},
		"a foreign service": {do{noPod, func(r *round) {
			r.Failures = []apply.Failure{{Err: apply.ErrForeign}}
		}}, "Pending: NameTaken NameTaken NameTaken Stalled", "delete it"},
		"refused":         {do{noPod, refused}, "Pending: NotApplied NotApplied NotApplied", "no"},
		"a bad spec":      {do{noPod, invalid}, "Pending: InvalidSpec InvalidSpec InvalidSpec Stalled", "spec.x: bad"},
		"a spec gone bad": {do{served, invalid}, "Degraded: Serving InvalidSpec InvalidSpec Stalled", "spec.x: bad"},
		"failing storage": {do{served, func(r *round) {
			r.storage.Status.Pools[0].Message = "read only"
		}}, "Degraded: Serving UpToDate StorageFailing", "read only"},
		"paused": {do{served, pause}, "Running: Serving Paused Healthy", "spec.paused"},
		"a namespace that ends": {do{served, noPod, func(r *round) {
			r.namespace.DeletionTimestamp = new(metav1.Now())
		}}, "Degraded: NotServing RollingOut NotServing", "is being deleted"},
		"deleted in use": {
			do{served, deleted},
			"Terminating: Serving ExportsInUse Healthy",
			"it has 2 volumes; delete their claims first: kubectl get volumes.holdfast.dev --field-selector spec.node=team.data.nfs.holdfast.dev",
		},
		"deleted with snapshots": {do{served, deleted, func(r *round) {
			r.snapshots = 1
		}}, "Terminating: Serving ExportsInUse Healthy", "it has 2 volumes and 1 snapshot;"},
		"leaving": {do{served, deleted, func(r *round) {
			r.leaving = "its pod to end"
		}}, "Terminating: Terminating Terminating Healthy", "its pod to end"},
		"not allowed": {
			do{nothing, unlisted, unentitled},
			"Pending: NamespaceNotAllowed NamespaceNotAllowed NamespaceNotAllowed Stalled",
			"no objects are created for it. To allow it: " + allow,
		},
		"allowed before": {do{unlisted}, "Degraded: Serving UpToDate NamespaceNotAllowed", "it gets no new ones. To allow it: " + allow},
		"a policy is missing": {do{func(r *round) {
			r.unlimited = []string{"Policy x"}
		}}, "Running: Serving UpToDate Healthy", "False PoliciesMissing: Policy x is missing"},
		"no policies": {do{func(r *round) {
			r.unlimited, r.unguarded = []string{"Policy x"}, true
		}}, "Running: Serving UpToDate Healthy", "False PoliciesUnknown: "},
	} {
		s := working(test.changes...).status()
		got := string(s.Phase) + ":"
		for _, kind := range []string{v1beta1.AvailableCondition, v1beta1.ProgressingCondition, v1beta1.DegradedCondition} {
			got += " " + find(&s, kind).Reason
		}
		if find(&s, v1beta1.StalledCondition).Status == metav1.ConditionTrue {
			got += " Stalled"
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
		said := ""
		for _, c := range s.Conditions {
			said += fmt.Sprintf("%s %s: %s\n", c.Status, c.Reason, c.Message)
		}
		if !strings.Contains(said, test.says) {
			t.Errorf("%s: it says\n%s, nothing of %q", name, said, test.says)
		}
	}
}

func TestStatus_EventIsWrittenOncePerTransition(t *testing.T) {
	var old v1beta1.NFSServerStatus
	follow := func(changes do) []string {
		r := working(changes...)
		r.server.Status = old
		next := r.status()
		var all []string
		for _, e := range transitions(&old, &next) {
			all = append(all, e.kind+" "+e.reason)
		}
		old = next
		return all
	}
	leaves := func(r *round) { r.volumes, r.leaving = 0, "its pod to end" }
	worse := func(r *round) { r.invalid = errors.New("worse") }
	for i, step := range []struct {
		changes do
		want    string
	}{
		{do{noPod, strict}, "Warning FailedCreation"},
		{do{noPod, strict}, ""},
		{do{unready}, ""},
		{nil, "Normal ChangedStatus"},
		{do{func(r *round) { r.volumes = 9 }}, ""},
		{do{unready}, "Warning ChangedStatus"},
		{do{unready}, ""},
		{nil, "Normal ChangedStatus"},
		{do{invalid}, "Warning FailedCreation"},
		{do{invalid}, ""},
		{do{worse}, "Warning FailedCreation"},
		{nil, ""},
		{do{unlisted}, "Warning NamespaceNotAllowed"},
		{nil, ""},
		{do{deleted}, "Warning Terminating"},
		{do{deleted, func(r *round) { r.volumes = 1 }}, ""},
		{do{deleted, leaves}, "Normal Terminating"},
		{do{deleted, leaves, noPod}, ""},
	} {
		if got := strings.Join(follow(step.changes), ", "); got != step.want {
			t.Errorf("step %d: the events are %q, want %q", i, got, step.want)
		}
	}
}
