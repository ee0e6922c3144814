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
)

// Verb is what an operation does.
type Verb string

const (
	Create   Verb = "Create"
	Grow     Verb = "Grow"
	Delete   Verb = "Delete"
	Restore  Verb = "Restore" // a deleted volume, from the trash
	Replace  Verb = "Replace" // a pool that was given up
	Upgrade  Verb = "Upgrade"
	RollBack Verb = "RollBack"
	Run      Verb = "Run"
)

// Operation is what is being done now.
type Operation struct {
	Verb         Verb                         `json:"verb"`
	Kind         string                       `json:"kind"`                // also Pool
	Namespace    string                       `json:"namespace,omitempty"` // of an NFS server
	Name         string                       `json:"name"`
	ClaimRef     *v1beta1.NamespacedReference `json:"claimRef,omitempty"` // of a volume
	Node         string                       `json:"node,omitempty"`     // on which it is done
	Message      string                       `json:"message,omitempty"`  // where it stands
	DoneNodes    int                          `json:"doneNodes"`
	DesiredNodes int                          `json:"desiredNodes"`        // 0 where it does not go from node to node
	StartTime    *time.Time                   `json:"startTime,omitempty"` // as far as known
}

// small kinds come after those that are of the whole cluster.
var small = map[string]int{"StorageUpgrade": 1, "NodeJob": 2, "NFSServer": 3, "Pool": 4, "Volume": 4, "Snapshot": 4}

// Operations are all that is being done: what is of the whole cluster first, then the longest.
func (f *Facts) Operations() []Operation {
	all := slices.Concat(f.upgrading(), f.running(), f.serversChanging(), f.onNodes(), f.volumesChanging(), f.snapshotsChanging())
	if c := f.Served(); c != nil {
		switch c.Status.Phase {
		case v1beta1.ClusterCreating:
			all = append(all, Operation{Verb: Create, Kind: "StorageCluster", Name: c.Name, Message: Message(c.Status.Conditions), StartTime: since(c.CreationTimestamp)})
		case v1beta1.ClusterTerminating:
			all = append(all, Operation{Verb: Delete, Kind: "StorageCluster", Name: c.Name, Message: Message(c.Status.Conditions), StartTime: whenDeleted(c)})
		}
	}
	slices.SortStableFunc(all, func(a, b Operation) int {
		return cmp.Or(cmp.Compare(small[a.Kind], small[b.Kind]), began(a).Compare(began(b)),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Node, b.Node))
	})
	return all
}

// began is the zero time of what has none: it comes first, as it may be the longest.
func began(o Operation) time.Time {
	if o.StartTime == nil {
		return time.Time{}
	}
	return *o.StartTime
}

func since(t metav1.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	utc := t.UTC()
	return &utc
}

func whenDeleted(o metav1.Object) *time.Time {
	if t := o.GetDeletionTimestamp(); t != nil {
		return since(*t)
	}
	return nil
}

func (f *Facts) upgrading() (all []Operation) {
	for _, u := range f.Upgrades {
		s := &u.Status
		o := Operation{Verb: Upgrade, Kind: "StorageUpgrade", Name: u.Name, Node: s.Node, DoneNodes: int(s.UpgradedNodes), DesiredNodes: int(s.DesiredNodes), Message: string(s.Step), StartTime: since(u.CreationTimestamp)}
		switch s.Phase {
		case v1beta1.UpgradeRunning:
		case v1beta1.UpgradeRollingBack:
			o.Verb = RollBack
		case v1beta1.UpgradeWaiting:
			o.Message = "it waits for another upgrade"
		default:
			continue
		}
		all = append(all, o)
	}
	return all
}

func (f *Facts) running() (all []Operation) {
	for _, j := range f.Jobs {
		s := &j.Status
		if s.Phase == v1beta1.JobCompleted || s.Phase == v1beta1.JobFailed {
			continue
		}
		o := Operation{Verb: Run, Kind: "NodeJob", Name: j.Name, DoneNodes: int(s.SucceededNodes), DesiredNodes: int(s.DesiredNodes), StartTime: since(j.CreationTimestamp)}
		for _, n := range s.Nodes {
			if n.Phase == v1beta1.JobRunning {
				o.Node, o.Message = n.Name, fmt.Sprintf("attempt %d", max(n.Attempts, 1))
				break
			}
		}
		all = append(all, o)
	}
	return all
}

func (f *Facts) serversChanging() (all []Operation) {
	for _, s := range f.Servers {
		o := Operation{Kind: "NFSServer", Namespace: s.Namespace, Name: s.Name, Node: s.Status.Node}
		_, o.Message = OfServer(s)
		switch {
		case s.DeletionTimestamp != nil || s.Status.Phase == v1beta1.NFSTerminating:
			o.Verb, o.StartTime = Delete, whenDeleted(s)
		case s.Status.Phase == "" || s.Status.Phase == v1beta1.NFSPending:
			o.Verb, o.StartTime = Create, since(s.CreationTimestamp)
		default:
			continue
		}
		all = append(all, o)
	}
	return all
}

// onNodes are the requests that agents have not carried out yet.
func (f *Facts) onNodes() (all []Operation) {
	for _, n := range f.StorageNodes {
		for _, r := range n.Spec.Restore {
			if r.Error != "" {
				continue
			}
			o := Operation{Verb: Restore, Kind: "Volume", Name: r.Name, Node: n.Name}
			if r.RequestedAt != nil {
				o.StartTime = since(metav1.Time{Time: r.RequestedAt.Time})
			}
			all = append(all, o)
		}
		for _, p := range n.Spec.ReplacePools {
			all = append(all, Operation{Verb: Replace, Kind: "Pool", Name: p.Name, Node: n.Name, Message: "pool " + p.ID + " is given up"})
		}
	}
	return all
}

func (f *Facts) volumesChanging() (all []Operation) {
	for _, v := range f.Volumes {
		if v.Unreadable() != nil {
			continue
		}
		o := Operation{Kind: "Volume", Name: v.Name, ClaimRef: v.Spec.ClaimRef, Node: v.Spec.Node}
		if !o.change(v, v.Status.Phase) {
			want := v.Spec.Size.Required
			if v.Status.Phase != v1beta1.PhaseReady || want == nil || v.Status.Size == nil || want.Cmp(*v.Status.Size) <= 0 {
				continue
			}
			o.Verb, o.Message = Grow, fmt.Sprintf("from %s to %s", v1beta1.Readable(v.Status.Size), v1beta1.Readable(want))
			if c := meta.FindStatusCondition(v.Status.Conditions, v1beta1.ReadyCondition); c != nil && c.Reason == v1beta1.ReasonExpanding {
				o.StartTime = since(c.LastTransitionTime)
			}
		}
		o.Message = cmp.Or(Said(v.Status.Conditions, v.Status.Error), o.Message)
		if c := v.Status.Copy; c != nil && o.Verb == Create {
			o.Message = strings.TrimSuffix(c.String()+": "+c.Message, ": ")
		}
		all = append(all, o)
	}
	return all
}

func (f *Facts) snapshotsChanging() (all []Operation) {
	for _, s := range f.Snapshots {
		o := Operation{Kind: "Snapshot", Name: s.Name, Node: s.Spec.Node}
		if s.Unreadable() == nil && o.change(s, s.Status.Phase) {
			o.Message = Said(s.Status.Conditions, s.Status.Error)
			all = append(all, o)
		}
	}
	return all
}

// change says whether a volume or snapshot is being made or removed. What failed, or is out of reach, is neither.
func (o *Operation) change(of metav1.Object, phase v1beta1.Phase) bool {
	switch {
	case phase == v1beta1.PhaseFailed, phase == v1beta1.PhaseLost, phase == v1beta1.PhaseUnreachable:
		return false
	case of.GetDeletionTimestamp() != nil || phase == v1beta1.PhaseDeleting:
		o.Verb, o.StartTime = Delete, whenDeleted(of)
	case phase == "" || phase == v1beta1.PhasePending:
		o.Verb, o.StartTime = Create, since(of.GetCreationTimestamp())
	default:
		return false
	}
	return true
}
