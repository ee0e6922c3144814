package facts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// Level is how bad something is.
type Level string

const (
	Problem Level = "problem" // something does not work
	Warning Level = "warning" // something will surprise a user
	Note    Level = "note"    // something is worth knowing
	Fine    Level = "fine"
)

// Unwell is a volume or snapshot that is not as it should be.
type Unwell struct {
	Kind     string                       `json:"kind"`
	Name     string                       `json:"name"`
	ClaimRef *v1beta1.NamespacedReference `json:"claimRef,omitempty"`
	Node     string                       `json:"node"`
	Pool     string                       `json:"pool,omitempty"`
	Phase    v1beta1.Phase                `json:"phase"`
	Message  string                       `json:"message"`

	Conditions []metav1.Condition `json:"-"`
}

// Unwell are the volumes and snapshots that are not well.
func (f *Facts) Unwell() []Unwell {
	all := []Unwell{}
	for _, v := range f.Volumes {
		if message, bad := OfVolume(v, f.Now); bad {
			all = append(all, Unwell{"Volume", v.Name, v.Spec.ClaimRef, v.Spec.Node, v.PoolName(), cmp.Or(v.Status.Phase, v1beta1.PhasePending), message, v.Status.Conditions})
		}
	}
	for _, s := range f.Snapshots {
		if message, bad := OfSnapshot(s, f.Now); bad {
			all = append(all, Unwell{"Snapshot", s.Name, nil, s.Spec.Node, s.Status.Pool, cmp.Or(s.Status.Phase, v1beta1.PhasePending), message, s.Status.Conditions})
		}
	}
	return all
}

// slow is how long something may take to be made or removed before it counts as not well.
const slow = 5 * time.Minute

// OfVolume says whether a volume needs attention, and what is wrong with it.
func OfVolume(v *v1beta1.Volume, now time.Time) (message string, bad bool) {
	return trouble(v, v.Status.Phase, v.Status.Conditions, v.Status.Error, now)
}

// OfSnapshot says whether a snapshot needs attention, and what is wrong with it.
func OfSnapshot(s *v1beta1.Snapshot, now time.Time) (message string, bad bool) {
	return trouble(s, s.Status.Phase, s.Status.Conditions, s.Status.Error, now)
}

func trouble(o v1beta1.Object, phase v1beta1.Phase, conditions []metav1.Condition, failed *v1beta1.Error, now time.Time) (message string, bad bool) {
	if err := o.Unreadable(); err != nil {
		return "its object cannot be read: " + err.Error(), true
	}
	message = Said(conditions, failed)
	for _, kind := range []string{v1beta1.HealthyCondition, v1beta1.ReadyCondition} {
		c := meta.FindStatusCondition(conditions, kind)
		if c != nil && c.Status != metav1.ConditionTrue {
			// While something is made or removed it is not ready, as it should be.
			bad = bad || kind == v1beta1.HealthyCondition && c.Status == metav1.ConditionFalse || phase == v1beta1.PhaseReady
		}
	}
	created, deleted := o.GetCreationTimestamp(), o.GetDeletionTimestamp()
	switch {
	case phase == v1beta1.PhaseFailed, phase == v1beta1.PhaseUnreachable, phase == v1beta1.PhaseLost:
		bad = true
	case deleted != nil && now.Sub(deleted.Time) > slow:
		return cmp.Or(message, fmt.Sprintf("it is being removed since %s", deleted.UTC().Format(time.RFC3339))), true
	case deleted == nil && (phase == "" || phase == v1beta1.PhasePending) && now.Sub(created.Time) > slow:
		return cmp.Or(message, fmt.Sprintf("it is being made since %s; look at the agent of its node", created.UTC().Format(time.RFC3339))), true
	}
	return message, bad
}

// Said is the message about a volume or snapshot: by the error of the last operation, then by the conditions that say no.
func Said(conditions []metav1.Condition, failed *v1beta1.Error) (message string) {
	if failed != nil {
		message = failed.Message
	}
	for _, kind := range []string{v1beta1.HealthyCondition, v1beta1.ReadyCondition} {
		if c := meta.FindStatusCondition(conditions, kind); c != nil && c.Status != metav1.ConditionTrue {
			message = cmp.Or(message, c.Message)
		}
	}
	return message
}

// Message is what the conditions of a StorageCluster or an NFSServer say when it is not well.
func Message(conditions []metav1.Condition) string {
	var said []string
	for _, kind := range []string{v1beta1.AvailableCondition, v1beta1.DegradedCondition, v1beta1.ProgressingCondition} {
		c := meta.FindStatusCondition(conditions, kind)
		bad := metav1.ConditionTrue
		if kind == v1beta1.AvailableCondition {
			bad = metav1.ConditionFalse
		}
		if c != nil && c.Status == bad && c.Message != "" && !slices.Contains(said, c.Message) {
			said = append(said, c.Message)
		}
	}
	return strings.Join(said, "; ")
}

// Runs says whether a StorageCluster in this phase is as it should be.
func Runs(phase v1beta1.ClusterPhase) bool {
	return phase == v1beta1.ClusterRunning || phase == v1beta1.ClusterPaused || phase == v1beta1.ClusterUpgrading
}

// Unseen says whether no controller has looked at the last change of an NFS server.
func Unseen(s *v1beta1.NFSServer) bool {
	return s.Status.Phase == "" || s.Status.ObservedGeneration < s.Generation
}

// OfServer says what is wrong with an NFS server; nothing if it is well.
func OfServer(s *v1beta1.NFSServer) (level Level, what string) {
	said := cmp.Or(Message(s.Status.Conditions), "its conditions say no more")
	switch {
	case Unseen(s):
		return Problem, "no controller has looked at its last change"
	case s.Status.Phase == v1beta1.NFSTerminating:
		if waits := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ProgressingCondition); waits != nil {
			said = cmp.Or(waits.Message, said) // what it waits for, rather than what else is wrong
		}
		return Warning, "it is being removed: " + said
	case s.Status.Phase == v1beta1.NFSPending:
		return Warning, "it has not served yet: " + said
	case s.Status.Phase == v1beta1.NFSDegraded:
		return Problem, said
	}
	return Fine, ""
}

// fullAt is the share of a pool's file system from which on it counts as full.
const fullAt = 0.95

// OfPool says what is wrong with a pool, and what to do where its own message does not; nothing if it is well.
func OfPool(p *v1beta1.Pool) (level Level, what, do string) {
	capacity, used := p.Capacity.AsApproximateFloat64(), p.Used.AsApproximateFloat64()
	switch {
	case p.Message != "":
		return Problem, p.Message, ""
	case capacity > 0 && used >= fullAt*capacity:
		return Problem, fmt.Sprintf("its file system is full to %.0f%%", 100*used/capacity), "Delete what is not needed, or add a disk: volumes that are made thin fail when it is full."
	case p.Available.Sign() <= 0 || p.Available.Cmp(p.Smallest) < 0:
		return Warning, "all of it is promised: no volume can be made there", "Delete volumes or snapshots, add a disk, or raise overcommit."
	}
	return Fine, "", ""
}

// Ready says whether the agent of a node or NFS server is ready, and why not; unknown while it is not heard of.
func Ready(n *v1beta1.StorageNode) (ready metav1.ConditionStatus, why string) {
	c := meta.FindStatusCondition(n.Status.Conditions, v1beta1.ReadyCondition)
	switch {
	case c == nil:
		return metav1.ConditionUnknown, "the agent has not said yet whether it is ready"
	case c.Status == metav1.ConditionTrue:
		return c.Status, ""
	}
	return c.Status, c.Message
}

// Ailing says what errors the file systems of the pools of a node or NFS server have met; nothing without any.
func Ailing(n *v1beta1.StorageNode) (why string) {
	if c := meta.FindStatusCondition(n.Status.Conditions, v1beta1.HealthyCondition); c != nil && c.Status == metav1.ConditionFalse {
		return cmp.Or(c.Message, "its file systems have met errors")
	}
	return ""
}

// Fence is a node that is shut out of all Ceph clusters, is to be, or cannot be.
type Fence struct {
	Level  Level
	Reason string // of the condition Fenced
	What   string // with the time since when, and the clients
	Do     string // where the condition does not say it
}

// OfFence says how far the fencing of a node is; nil where none is under way.
func OfFence(n *v1beta1.StorageNode) *Fence {
	c := meta.FindStatusCondition(n.Status.Conditions, v1beta1.FencedCondition)
	if c == nil {
		return nil
	}
	since := c.LastTransitionTime.Time
	if n.Spec.Fence != nil {
		since = n.Spec.Fence.RequestedAt.Time
	}
	f := &Fence{Level: Problem, Reason: c.Reason}
	switch c.Reason {
	case v1beta1.ReasonNotFenced, v1beta1.ReasonTooManySilent:
		f.What = "it is lost and cannot be shut out of the Ceph clusters"
	case v1beta1.ReasonFencing:
		f.What = "it is lost and being shut out of the Ceph clusters"
	case v1beta1.ReasonFenced:
		f.Level, f.What, f.Do = Warning, "it is shut out of the Ceph clusters", "Repair it and take the taint from it, or delete its Node if it will not return."
	case v1beta1.ReasonReleasing:
		f.Level, f.What = Warning, "it is back and still shut out of the Ceph clusters"
	default:
		return nil
	}
	f.What += fmt.Sprintf(", since %s: %s", since.UTC().Format(time.RFC3339), cmp.Or(c.Message, "its condition says no more"))
	if clients := clientsOf(n); clients != "" {
		f.What += "; its clients are " + clients
	}
	return f
}

// mostClients of a node are named.
const mostClients = 8

func clientsOf(n *v1beta1.StorageNode) string {
	var all []string
	for _, c := range n.Status.CephClients {
		all = append(all, c.ID+" of cluster "+c.FSID)
	}
	return kube.Few(all, mostClients, ", ", ", %d more")
}

// KeyRefused says why a pool in a Ceph cluster is served with a key from before, and will not be for long; nothing if it is not.
func KeyRefused(n *v1beta1.StorageNode) (why string) {
	if c := meta.FindStatusCondition(n.Status.Conditions, v1beta1.KeyRefusedCondition); c != nil && c.Status == metav1.ConditionTrue {
		return "it is served over a connection from before, and will not be for long, since the key of its secret cannot be used: " + c.Message
	}
	return ""
}

// NodeUserRefused says why nodes cannot use the volumes of a pool in a Ceph cluster; nothing if they can.
func NodeUserRefused(n *v1beta1.StorageNode) (why string) {
	if c := meta.FindStatusCondition(n.Status.Conditions, v1beta1.NodeUserRefusedCondition); c != nil && c.Status == metav1.ConditionTrue {
		return "nodes cannot use its volumes: " + c.Message
	}
	return ""
}

// NoCephClients says why a node cannot use volumes of Ceph pools, for each engine of which it cannot.
func NoCephClients(n *v1beta1.StorageNode) (why []string) {
	for _, condition := range []string{v1beta1.RBDVolumesCondition, v1beta1.CephFSVolumesCondition} {
		if c := meta.FindStatusCondition(n.Status.Conditions, condition); c != nil && c.Status == metav1.ConditionFalse {
			why = append(why, c.Message)
		}
	}
	return why
}

// Unreadable is an object that has a field which this program cannot decode.
type Unreadable struct {
	Object ObjectReference
	Err    error
}

// Unreadable are all such objects.
func (f *Facts) Unreadable() (all []Unreadable) {
	unreadable(&all, "StorageCluster", f.Clusters)
	unreadable(&all, "StorageNode", f.StorageNodes)
	unreadable(&all, "Volume", f.Volumes)
	unreadable(&all, "Snapshot", f.Snapshots)
	unreadable(&all, "NFSServer", f.Servers)
	unreadable(&all, "NodeJob", f.Jobs)
	unreadable(&all, "StorageUpgrade", f.Upgrades)
	return all
}

func unreadable[O v1beta1.Object](found *[]Unreadable, kind string, all []O) {
	for _, o := range all {
		if err := o.Unreadable(); err != nil {
			*found = append(*found, Unreadable{ObjectReference{kind, o.GetNamespace(), o.GetName()}, err})
		}
	}
}
