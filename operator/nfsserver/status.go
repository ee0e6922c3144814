package nfsserver

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/kube/podstatus"
	"github.com/holdfast-storage/holdfast/operator/render"
)

// The reasons of the conditions.
const (
	reasonServing     = "Serving"
	reasonNotServing  = "NotServing" // it has served before
	reasonCreating    = "Creating"
	reasonUpToDate    = "UpToDate"
	reasonHealthy     = "Healthy"
	reasonRollingOut  = "RollingOut"
	reasonGrowing     = "Growing"
	reasonInvalid     = "InvalidSpec"
	reasonNotApplied  = "NotApplied"
	reasonForeign     = "NameTaken"
	reasonNotAllowed  = "NamespaceNotAllowed"
	reasonClaim       = "ClaimNotUsable"
	reasonPodSecurity = "PodSecurity"
	reasonPod         = "PodNotReady"
	reasonStorage     = "StorageFailing"
	reasonNode        = "NodeNotSelected"
	reasonPaused      = "Paused"
	reasonInUse       = "ExportsInUse"
	reasonTerminating = "Terminating"
	reasonInPlace     = "PoliciesInPlace"
	reasonMissing     = "PoliciesMissing"
	reasonNoPolicies  = "PoliciesUnknown" // to the API server
)

// conclude computes the result of a pass: the status, the events, and when to run again.
func (r *round) conclude() (next v1beta1.NFSServerStatus, events []event, again time.Duration) {
	next, again = r.status(), kube.Sooner(r.again, r.Again)
	if len(r.Failures) > 0 || r.claimErr != nil || r.unknownBeside { // pods are not watched
		again = kube.Sooner(again, kube.RetryRefused)
	}
	return next, transitions(&r.server.Status, &next), again
}

// status computes the status from what is observed and from the previous status.
func (r *round) status() v1beta1.NFSServerStatus {
	s := r.server
	next := *s.Status.DeepCopy()
	next.ObservedGeneration = s.Generation
	if address := r.address(); address != "" {
		next.Endpoint = net.JoinHostPort(address, strconv.Itoa(int(s.Spec.Port())))
	}
	next.Access = s.Spec.Access()
	next.ClaimName, next.StorageClassName = claimName(s), ""
	if r.claim != nil && r.claim.Spec.StorageClassName != nil {
		next.StorageClassName = *r.claim.Spec.StorageClassName
	}
	node := r.node()
	next.Node = cmp.Or(node, next.Node) // without a pod, it still names the node with the data
	if pod := r.pod(); pod != nil && pod.Spec.NodeName != "" && node == "" {
		next.Node = pod.Spec.NodeName
	}
	ever := hasServed(&s.Status)
	next.Exports, next.Snapshots = int32(r.exports), int32(r.snapshots)
	if s.Spec.Publish != nil {
		next.Path = "/" + path(&s.Spec)
		if ever || r.serves() {
			next.Exports = 1
		}
	}
	if !r.serves() {
		next.Clients = 0 // otherwise the server writes it
	}
	next.AllowedClients = nil
	if len(s.Spec.Exports.Clients) == 0 {
		next.AllowedClients = r.clients()
	}
	r.room(&next)
	for _, c := range []metav1.Condition{r.available(ever, &next), r.progressing(), r.degraded(ever), r.protected()} {
		c.ObservedGeneration, c.LastTransitionTime = s.Generation, metav1.NewTime(r.now.Truncate(time.Second))
		c.Message = kube.Shorten(c.Message, kube.LongestMessage)
		meta.SetStatusCondition(&next.Conditions, c)
	}
	stalls := []string{reasonInvalid, reasonForeign}
	if !r.entitled { // of one that was, volumes are still served
		stalls = append(stalls, reasonNotAllowed)
	}
	kube.Stall(&next.Conditions, stalls...)
	ready := kube.Ready(next.Conditions)
	ready.LastTransitionTime = metav1.NewTime(r.now.Truncate(time.Second))
	meta.SetStatusCondition(&next.Conditions, ready)
	next.Phase = r.phase(ever, &next)
	next.SetColumns()
	return next
}

// room is the capacity that the server reports of its pool, or that of the claim.
func (r *round) room(next *v1beta1.NFSServerStatus) {
	next.Capacity, next.Promised = nil, nil
	if r.claim != nil {
		if capacity, has := r.claim.Status.Capacity[core.ResourceStorage]; has {
			next.Capacity = &capacity
		}
	}
	if r.storage != nil && len(r.storage.Status.Pools) > 0 {
		pool := r.storage.Status.Pools[0].DeepCopy()
		next.Capacity, next.Promised = &pool.Capacity, &pool.Promised
	}
}

func (r *round) phase(ever bool, next *v1beta1.NFSServerStatus) v1beta1.NFSPhase {
	switch {
	case r.server.DeletionTimestamp != nil:
		return v1beta1.NFSTerminating
	case r.serves() && meta.IsStatusConditionFalse(next.Conditions, v1beta1.DegradedCondition):
		return v1beta1.NFSRunning
	case r.serves() || ever:
		return v1beta1.NFSDegraded
	}
	return v1beta1.NFSPending
}

func hasServed(old *v1beta1.NFSServerStatus) bool {
	c := meta.FindStatusCondition(old.Conditions, v1beta1.AvailableCondition)
	return c != nil && (c.Status == metav1.ConditionTrue || c.Reason == reasonNotServing)
}

func (r *round) available(ever bool, next *v1beta1.NFSServerStatus) metav1.Condition {
	var is bool
	var reason, message string
	switch {
	case r.leaving != "":
		reason, message = reasonTerminating, "waiting for "+r.leaving
	case !r.entitled:
		reason, message = reasonNotAllowed, r.stranger()
	case r.serves() && next.Path != "":
		is, reason, message = true, reasonServing, fmt.Sprintf("clients mount %s of %s", next.Path, r.address())
	case r.serves():
		is, reason, message = true, reasonServing, "clients reach it at "+next.Endpoint
	default:
		if reason, message = r.trouble(); ever {
			reason = reasonNotServing
		}
	}
	return kube.NewCondition(v1beta1.AvailableCondition, is, reason, message)
}

func (r *round) progressing() metav1.Condition {
	is := func(status bool, reason, message string) metav1.Condition {
		return kube.NewCondition(v1beta1.ProgressingCondition, status, reason, message)
	}
	reason, fault := r.fault()
	switch {
	case r.leaving != "":
		return is(true, reasonTerminating, "waiting for "+r.leaving)
	case r.server.DeletionTimestamp != nil && !r.remains.inUse && r.isPaused():
		return is(false, reasonPaused, fmt.Sprintf("StorageCluster %s is paused or cannot be read: the server is removed after that", r.cluster.Name))
	case r.server.DeletionTimestamp != nil:
		return is(false, reasonInUse, r.kept())
	case !r.entitled:
		return is(false, reasonNotAllowed, r.stranger())
	case r.cluster.Spec.Paused:
		return is(false, reasonPaused, fmt.Sprintf("spec.paused of StorageCluster %s is set: nothing is changed or repaired", r.cluster.Name))
	case reason != "":
		return is(false, reason, fault)
	case r.growing() != "":
		return is(true, reasonGrowing, r.growing())
	case !r.isCurrent():
		_, message := r.trouble()
		return is(true, reasonRollingOut, message)
	}
	return is(false, reasonUpToDate, "all objects match the spec")
}

func (r *round) degraded(ever bool) metav1.Condition {
	is := func(reason, message string) metav1.Condition {
		return kube.NewCondition(v1beta1.DegradedCondition, true, reason, message)
	}
	reason, fault := r.fault()
	switch {
	case r.leaving != "":
	case reason != "":
		return is(reason, fault)
	case !r.entitled:
		return is(reasonNotAllowed, r.stranger())
	case ever && !r.serves():
		_, message := r.trouble()
		return is(reasonNotServing, message)
	case r.storage != nil && len(r.storage.Status.Pools) > 0 && r.storage.Status.Pools[0].Message != "":
		return is(reasonStorage, r.storage.Status.Pools[0].Message)
	case r.strayed() != "":
		return is(reasonNode, r.strayed())
	case r.stranger() != "":
		return is(reasonNotAllowed, r.stranger())
	}
	return kube.NewCondition(v1beta1.DegradedCondition, false, reasonHealthy, "")
}

// protected says whether the API server keeps pods from mounting the volumes by themselves, and accounts from what is not
// theirs.
func (r *round) protected() metav1.Condition {
	switch {
	case r.unguarded:
		return kube.NewCondition(v1beta1.ProtectedCondition, false, reasonNoPolicies, render.WithoutPolicies)
	case len(r.unlimited) > 0:
		return kube.NewCondition(v1beta1.ProtectedCondition, false, reasonMissing, fmt.Sprintf(
			"%s is missing or was changed: any pod may mount the volumes of this server by itself, or an account write what is not its own, until the operator has repaired it", strings.Join(r.unlimited, ", ")))
	}
	return kube.NewCondition(v1beta1.ProtectedCondition, true, reasonInPlace, "pods mount volumes by claims alone, but in namespaces of spec.nfs.inlineVolumeNamespaces, and accounts write only their own objects")
}

func (r *round) fault() (reason, message string) {
	switch {
	case r.invalid != nil:
		return reasonInvalid, r.invalid.Error()
	case errors.Is(r.claimErr, errForeignClaim):
		return reasonForeign, r.claimErr.Error()
	case r.claimErr != nil:
		return reasonNotApplied, r.claimErr.Error()
	case len(r.Failures) == 0:
		return "", ""
	}
	reason = reasonForeign
	var texts []string
	for _, f := range r.Failures {
		if !errors.Is(f, apply.ErrForeign) {
			reason = reasonNotApplied
		}
		texts = append(texts, f.Error())
	}
	return reason, strings.Join(texts, "; ")
}

// stranger says why a server may not be in its namespace, and how to allow it; "" if it may.
func (r *round) stranger() string {
	namespace := r.server.Namespace
	if r.cluster.AllowsNFSServers(namespace, r.holdfast) {
		return ""
	}
	do := r.cluster.AllowNFSServers(namespace)
	if r.entitled {
		return fmt.Sprintf("namespace %s is not among those that may have NFS servers. Its volumes are still served, and it gets no new ones. "+
			"To allow it: %s", namespace, do)
	}
	return fmt.Sprintf("namespace %s is not among those that may have NFS servers, so no objects are created for it. To allow it: %s. "+
		"Or create the NFSServer in namespace %s", namespace, do, r.holdfast)
}

// kept says what prevents the deletion of a server.
func (r *round) kept() string {
	var parts []string
	if r.volumes > 0 {
		parts = append(parts, kube.Count(r.volumes, "volume"))
	}
	if r.snapshots > 0 {
		parts = append(parts, kube.Count(r.snapshots, "snapshot"))
	}
	switch what := strings.Join(parts, " and "); {
	case what == "" && r.remains.promised > 0:
		return fmt.Sprintf("exports are in use: its last report has %s for volumes and snapshots whose objects are missing; the server writes them again when it runs. "+
			"If its storage is lost for good: kubectl delete storagenodes.holdfast.dev %s", v1beta1.Readable(v1beta1.Quantity(r.remains.promised)), r.server.NodeName())
	case what == "":
		return "exports are in use by PersistentVolumes of this server: delete their claims first; once they are gone, it is deleted within a moment"
	case r.isNamespaceLeaving():
		return fmt.Sprintf("exports are in use: it has %s, which nothing serves: namespace %s is being deleted, so no pod can be created in it. "+
			"The data is kept; docs/nfs-servers.md says how it is served again", what, r.server.Namespace)
	default:
		return fmt.Sprintf("exports are in use: it has %s; delete their claims first: kubectl get volumes.holdfast.dev --field-selector spec.node=%s", what, r.server.NodeName())
	}
}

// isNamespaceLeaving says whether no pod can be created because the namespace is being deleted.
func (r *round) isNamespaceLeaving() bool {
	return r.namespace != nil && r.namespace.DeletionTimestamp != nil && r.pod() == nil
}

func (r *round) pod() *core.Pod {
	if len(r.pods) == 0 {
		return nil
	}
	return r.pods[len(r.pods)-1]
}

func (r *round) serves() bool { return slices.ContainsFunc(r.pods, podstatus.IsReady) }

// isCurrent says whether the pod that serves has the newest revision. That is unknown right after this pass has changed
// the StatefulSet.
func (r *round) isCurrent() bool {
	return r.set != nil && r.set.Status.ObservedGeneration >= r.set.Generation && r.set.Status.UpdatedReplicas == 1 && r.set.Status.ReadyReplicas == 1 &&
		r.set.Status.CurrentRevision == r.set.Status.UpdateRevision && !slices.Contains(r.Changed, refTo(r.server, apps.GroupName, "StatefulSet"))
}

type event struct{ kind, reason, message string }

// faults are the reasons that need an action by a user.
var faults = map[string]bool{
	reasonInvalid: true, reasonNotApplied: true, reasonForeign: true, reasonClaim: true, reasonPodSecurity: true,
	reasonNotAllowed: true,
}

func transitions(old, next *v1beta1.NFSServerStatus) (all []event) {
	was := func(kind string) metav1.Condition { return find(old, kind) }
	is := func(kind string) metav1.Condition { return find(next, kind) }
	progressing, available, degraded := is(v1beta1.ProgressingCondition), is(v1beta1.AvailableCondition), is(v1beta1.DegradedCondition)
	switch {
	case progressing.Reason == reasonInUse && was(v1beta1.ProgressingCondition).Reason != reasonInUse:
		all = append(all, event{core.EventTypeWarning, "Terminating", "not deleted yet: " + progressing.Message})
	case progressing.Reason == reasonTerminating && was(v1beta1.ProgressingCondition).Reason != reasonTerminating:
		all = append(all, event{core.EventTypeNormal, "Terminating", "removing its objects"})
	}
	for _, c := range []metav1.Condition{available, degraded} {
		before := was(c.Type)
		if faults[c.Reason] && (before.Reason != c.Reason || before.Message != c.Message) {
			reason := "FailedCreation"
			if c.Reason == reasonNotAllowed { // it may serve nevertheless
				reason = reasonNotAllowed
			}
			return append(all, event{core.EventTypeWarning, reason, c.Message})
		}
	}
	switch before := was(v1beta1.AvailableCondition); {
	case available.Status == metav1.ConditionTrue && before.Status != metav1.ConditionTrue:
		all = append(all, event{core.EventTypeNormal, "ChangedStatus", "the NFS server works: " + available.Message})
	case available.Reason == reasonNotServing && before.Status == metav1.ConditionTrue:
		all = append(all, event{core.EventTypeWarning, "ChangedStatus", "the NFS server does not serve: " + available.Message})
	}
	return all
}

func find(s *v1beta1.NFSServerStatus, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(s.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}
