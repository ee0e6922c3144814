package facts

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// Finding is what needs the attention of a person now. Volumes and snapshots in the same phase are one finding, since a
// node that is lost has hundreds of them.
type Finding struct {
	Level     Level         `json:"level"`               // Problem: something does not work; Warning: something will surprise a user
	Kind      string        `json:"kind"`                // also Pool and CephPool
	Namespace string        `json:"namespace,omitempty"` // of an NFS server
	Name      string        `json:"name,omitempty"`      // missing where there are several
	Node      string        `json:"node,omitempty"`      // of a pool
	Count     int           `json:"count"`               // of objects
	Phase     v1beta1.Phase `json:"phase,omitempty"`     // of volumes and snapshots
	Message   string        `json:"message"`             // what is wrong and what to do; of several, what is wrong with the first
}

// Findings are all that the objects of Holdfast show, problems first, and else in the order of the objects.
func (f *Facts) Findings() []Finding {
	found := slices.Concat(ofCluster(f.Served()), ofNodes(f), ofPools(f.StorageNodes), ofServers(f), ofUnwell(f.Unwell()), ofWork(f))
	for _, o := range f.Unreadable() {
		if o.Object.Kind != "Volume" && o.Object.Kind != "Snapshot" { // which are not well
			one := finding(Problem, o.Object.Kind, o.Object.Name, "its object cannot be read: "+o.Err.Error())
			one.Namespace = o.Object.Namespace
			found = append(found, one)
		}
	}
	slices.SortStableFunc(found, func(a, b Finding) int { return cmp.Compare(a.Level, b.Level) }) // problem, warning
	return found
}

func finding(level Level, kind, name, message string) Finding {
	return Finding{Level: level, Kind: kind, Name: name, Count: 1, Message: cmp.Or(message, "its conditions say no more")}
}

// remarkable is the status of those conditions of a StorageCluster that need attention without making it Degraded.
var remarkable = map[string]metav1.ConditionStatus{
	v1beta1.ReleaseIgnoredCondition:      metav1.ConditionTrue,
	v1beta1.EphemeralNotAllowedCondition: metav1.ConditionTrue,
	v1beta1.ProtectedCondition:           metav1.ConditionFalse,
}

func ofCluster(c *v1beta1.StorageCluster) (found []Finding) {
	if c == nil {
		return []Finding{finding(Problem, "StorageCluster", "", "there is no StorageCluster; kubectl apply one")}
	}
	add := func(level Level, message string) {
		found = append(found, finding(level, "StorageCluster", c.Name, message))
	}
	switch s := &c.Status; {
	case s.Phase == "":
		add(Problem, "no controller has looked at it yet")
	case s.ObservedGeneration < c.Generation:
		add(Problem, "no controller has looked at its last change yet")
	case s.Phase == v1beta1.ClusterDegraded || s.Phase == v1beta1.ClusterPending:
		add(Problem, Message(s.Conditions))
	}
	for _, is := range c.Status.Conditions {
		if status, known := remarkable[is.Type]; known && is.Status == status {
			add(Warning, is.Message)
		}
	}
	return found
}

// ofNodes are the nodes that the cluster selects and those that only have a record, and the Ceph pools. NFS servers have
// objects of their own.
func ofNodes(f *Facts) (found []Finding) {
	says := map[string]string{}
	for _, n := range f.StorageNodes {
		if v1beta1.ServerOf(n.Name) != "" {
			continue
		}
		if ready, why := Ready(n); ready != metav1.ConditionTrue {
			says[n.Name] = cmp.Or(why, "it is not ready")
		} else if why := Ailing(n); why != "" {
			says[n.Name] = why
		}
	}
	if c := f.Served(); c != nil {
		for _, n := range c.Status.Nodes {
			if !n.Ready {
				says[n.Name] = cmp.Or(n.Message, says[n.Name], "it is not ready")
			}
		}
	}
	for _, node := range slices.Sorted(maps.Keys(says)) {
		kind, name := "StorageNode", node
		if pool := v1beta1.CephPoolOf(node); pool != "" {
			kind, name = "CephPool", pool
		}
		found = append(found, finding(Problem, kind, name, says[node]))
	}
	return append(found, ofAbilities(f.StorageNodes)...)
}

// sentences joins what is wrong and what to do, if that is said.
func sentences(what, do string) string {
	if do == "" {
		return what
	}
	return what + ". " + do
}

// ofAbilities is what nodes and Ceph pools cannot do, or soon cannot, that are otherwise as they should be, and which are shut
// out of Ceph clusters.
func ofAbilities(nodes []*v1beta1.StorageNode) (found []Finding) {
	for _, n := range nodes {
		if fence := OfFence(n); fence != nil {
			found = append(found, finding(fence.Level, "StorageNode", n.Name, sentences(fence.What, fence.Do)))
		}
		if why := KeyRefused(n); why != "" {
			found = append(found, finding(Warning, "CephPool", v1beta1.CephPoolOf(n.Name), why))
		}
		if why := NodeUserRefused(n); why != "" {
			found = append(found, finding(Warning, "CephPool", v1beta1.CephPoolOf(n.Name), why))
		}
		for _, why := range NoCephClients(n) {
			found = append(found, finding(Warning, "StorageNode", n.Name, why))
		}
		for _, r := range n.Spec.Restore {
			if r.Error != "" {
				found = append(found, finding(Warning, "StorageNode", n.Name, fmt.Sprintf("volume %s was not restored: %s", r.Name, r.Error)))
			}
		}
	}
	return found
}

func ofPools(nodes []*v1beta1.StorageNode) (found []Finding) {
	for _, n := range nodes {
		for i := range n.Status.Pools {
			p := &n.Status.Pools[i]
			if level, what, do := OfPool(p); level != Fine {
				one := finding(level, "Pool", p.Name, sentences(what, do))
				if ceph := v1beta1.CephPoolOf(n.Name); ceph != "" {
					one.Kind, one.Name = "CephPool", ceph
				} else {
					one.Node = n.Name
				}
				found = append(found, one)
			}
		}
	}
	return found
}

func ofServers(f *Facts) (found []Finding) {
	ailing := map[string]string{}
	for _, n := range f.StorageNodes {
		ailing[n.Name] = Ailing(n)
	}
	for _, s := range f.Servers {
		level, what := OfServer(s)
		if level == Fine && ailing[s.NodeName()] != "" {
			level, what = Problem, ailing[s.NodeName()]
		}
		if level != Fine {
			one := finding(level, "NFSServer", s.Name, what)
			one.Namespace = s.Namespace
			found = append(found, one)
		}
	}
	return found
}

// ofUnwell makes one finding of all of a kind in a phase.
func ofUnwell(all []Unwell) (found []Finding) {
	slices.SortFunc(all, func(a, b Unwell) int {
		return cmp.Or(-cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.Name, b.Name))
	})
	for _, u := range all {
		if last := len(found) - 1; last >= 0 && found[last].Kind == u.Kind && found[last].Phase == u.Phase {
			found[last].Count++
			found[last].Name = ""
			continue
		}
		one := finding(Problem, u.Kind, u.Name, u.Message)
		one.Phase = u.Phase
		if u.Phase == v1beta1.PhasePending || u.Phase == v1beta1.PhaseDeleting { // it takes long
			one.Level = Warning
		}
		found = append(found, one)
	}
	return found
}

// ofWork are upgrades and jobs that failed. Of the upgrades only the newest counts; the others are history.
func ofWork(f *Facts) (found []Finding) {
	var newest *v1beta1.StorageUpgrade
	for _, u := range f.Upgrades {
		if newest == nil || newest.CreationTimestamp.Before(&u.CreationTimestamp) {
			newest = u
		}
	}
	if newest != nil && newest.Status.Phase == v1beta1.UpgradeFailed {
		found = append(found, finding(Warning, "StorageUpgrade", newest.Name, failure(newest.Status.Conditions)))
	}
	for _, j := range f.Jobs {
		if j.Status.Phase == v1beta1.JobFailed {
			found = append(found, finding(Warning, "NodeJob", j.Name, failure(j.Status.Conditions)))
		}
	}
	return found
}

func failure(conditions []metav1.Condition) string {
	if c := meta.FindStatusCondition(conditions, v1beta1.FailedCondition); c != nil && c.Message != "" {
		return "it has failed: " + c.Message
	}
	return "it has failed"
}
