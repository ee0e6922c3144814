package nfsserver

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
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
	reasonPaused      = "Paused"
	reasonInUse       = "ExportsInUse"
	reasonTerminating = "Terminating"
)

// status says where a server stands, by what is observed and by what it said before.
func (o *situation) status() v1.NFSServerStatus {
	s := o.server
	next := *s.Status.DeepCopy()
	next.ObservedGeneration = s.Generation
	if o.address != "" {
		next.Endpoint = net.JoinHostPort(o.address, strconv.Itoa(v1.NFSPort))
	}
	next.AccessModes = map[v1.NFSAccess]string{v1.NFSReadWrite: "RW", v1.NFSReadOnly: "RO", v1.NFSNone: "None"}[s.Spec.Access()]
	next.Claim, next.StorageClassName = claimName(s), ""
	if o.claim != nil && o.claim.Spec.StorageClassName != nil {
		next.StorageClassName = *o.claim.Spec.StorageClassName
	}
	next.Node = cmp.Or(o.node, next.Node) // one that has no pod now must find the node where its data is
	if pod := o.pod(); pod != nil && pod.Spec.NodeName != "" && o.node == "" {
		next.Node = pod.Spec.NodeName
	}
	ever := hasServed(&s.Status)
	next.Exports = int32(o.exports)
	if s.Spec.Publish != nil {
		next.Path = "/" + path(&s.Spec)
		if ever || o.serves() {
			next.Exports = 1
		}
	}
	if !o.serves() {
		next.Clients = 0 // else the server has written it
	}
	next.AllowedClients = nil
	if len(s.Spec.Exports.Clients) == 0 {
		next.AllowedClients = o.clients
	}
	o.room(&next)
	for _, c := range []metav1.Condition{o.available(ever, &next), o.progressing(), o.degraded(ever)} {
		c.ObservedGeneration = s.Generation
		c.Message = kube.Shorten(c.Message, kube.LongestMessage)
		meta.SetStatusCondition(&next.Conditions, c)
	}
	next.Phase = o.phase(ever, &next)
	next.SetColumns()
	return next
}

// room is what the server says of its pool, or what the claim has.
func (o *situation) room(next *v1.NFSServerStatus) {
	next.Capacity, next.Promised = nil, nil
	if o.claim != nil {
		if capacity, has := o.claim.Status.Capacity[core.ResourceStorage]; has {
			next.Capacity = &capacity
		}
	}
	if o.storage != nil && len(o.storage.Status.Pools) > 0 {
		pool := o.storage.Status.Pools[0].DeepCopy()
		next.Capacity, next.Promised = &pool.Capacity, &pool.Promised
	}
}

func (o *situation) phase(ever bool, next *v1.NFSServerStatus) v1.NFSPhase {
	switch {
	case o.server.DeletionTimestamp != nil:
		return v1.NFSTerminating
	case o.serves() && meta.IsStatusConditionFalse(next.Conditions, v1.DegradedCondition):
		return v1.NFSRunning
	case o.serves() || ever:
		return v1.NFSDegraded
	}
	return v1.NFSPending
}

// hasServed says whether a server has ever served.
func hasServed(old *v1.NFSServerStatus) bool {
	c := meta.FindStatusCondition(old.Conditions, v1.AvailableCondition)
	return c != nil && (c.Status == metav1.ConditionTrue || c.Reason == reasonNotServing)
}

func (o *situation) available(ever bool, next *v1.NFSServerStatus) metav1.Condition {
	reason, message := o.trouble()
	switch {
	case o.leaving != "":
		return kube.NewCondition(v1.AvailableCondition, false, reasonTerminating, "waiting for "+o.leaving)
	case !o.entitled:
		return kube.NewCondition(v1.AvailableCondition, false, reasonNotAllowed, o.stranger())
	case o.serves() && next.Path != "":
		return kube.NewCondition(v1.AvailableCondition, true, reasonServing, fmt.Sprintf("clients mount %s of %s", next.Path, o.address))
	case o.serves():
		return kube.NewCondition(v1.AvailableCondition, true, reasonServing, "clients reach it at "+next.Endpoint)
	case ever:
		return kube.NewCondition(v1.AvailableCondition, false, reasonNotServing, message)
	}
	return kube.NewCondition(v1.AvailableCondition, false, reason, message)
}

func (o *situation) progressing() metav1.Condition {
	is := func(status bool, reason, message string) metav1.Condition {
		return kube.NewCondition(v1.ProgressingCondition, status, reason, message)
	}
	reason, fault := o.fault()
	switch {
	case o.leaving != "":
		return is(true, reasonTerminating, "waiting for "+o.leaving)
	case o.server.DeletionTimestamp != nil:
		return is(false, reasonInUse, o.kept())
	case !o.entitled:
		return is(false, reasonNotAllowed, o.stranger())
	case o.cluster.Spec.Pause:
		return is(false, reasonPaused, fmt.Sprintf("spec.pause of StorageCluster %s is set: nothing is changed or repaired", o.cluster.Name))
	case reason != "":
		return is(false, reason, fault)
	case o.growing() != "":
		return is(true, reasonGrowing, o.growing())
	case !o.current():
		_, message := o.trouble()
		return is(true, reasonRollingOut, message)
	}
	return is(false, reasonUpToDate, "all is as it is asked for")
}

func (o *situation) degraded(ever bool) metav1.Condition {
	is := func(reason, message string) metav1.Condition {
		return kube.NewCondition(v1.DegradedCondition, true, reason, message)
	}
	reason, fault := o.fault()
	switch {
	case o.leaving != "":
	case reason != "":
		return is(reason, fault)
	case !o.entitled:
		return is(reasonNotAllowed, o.stranger())
	case ever && !o.serves():
		_, message := o.trouble()
		return is(reasonNotServing, message)
	case o.storage != nil && len(o.storage.Status.Pools) > 0 && o.storage.Status.Pools[0].Message != "":
		return is(reasonStorage, o.storage.Status.Pools[0].Message)
	case o.stranger() != "":
		return is(reasonNotAllowed, o.stranger())
	}
	return kube.NewCondition(v1.DegradedCondition, false, reasonHealthy, "")
}

// fault is what keeps the spec from being made.
func (o *situation) fault() (reason, message string) {
	switch {
	case o.invalid != nil:
		return reasonInvalid, o.invalid.Error()
	case errors.Is(o.claimErr, errForeignClaim):
		return reasonForeign, o.claimErr.Error()
	case o.claimErr != nil:
		return reasonNotApplied, o.claimErr.Error()
	case len(o.failures) == 0:
		return "", ""
	}
	reason = reasonForeign
	var texts []string
	for _, f := range o.failures {
		if !errors.Is(f, apply.ErrForeign) {
			reason = reasonNotApplied
		}
		texts = append(texts, f.Error())
	}
	return reason, strings.Join(texts, "; ")
}

// kept is what keeps a server from being deleted.
func (o *situation) kept() string {
	var parts []string
	for _, p := range []struct {
		count int
		one   string
	}{{o.volumes, "volume"}, {o.snapshots, "snapshot"}} {
		switch p.count {
		case 0:
		case 1:
			parts = append(parts, "1 "+p.one)
		default:
			parts = append(parts, fmt.Sprintf("%d %ss", p.count, p.one))
		}
	}
	if len(parts) == 0 {
		return "exports are in use: there are PersistentVolumes of it, or have been a moment ago; delete their claims first"
	}
	return fmt.Sprintf("exports are in use: it has %s; delete their claims first: kubectl get volumes --field-selector spec.node=%s", strings.Join(parts, " and "), o.server.NodeName())
}
