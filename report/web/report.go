package web

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/report/facts"
)

// maxEvents bounds the events of a report. The watch keeps 500 of each namespace, and there may be many namespaces.
const maxEvents = 2000

// hiddenFields are the names under which a report says why a kind could not be read.
var hiddenFields = map[string]string{
	facts.Servers: "nfsServers", facts.Warnings: "events", facts.Jobs: "nodeJobs", facts.Upgrades: "storageUpgrades",
}

// report returns all that is known, sorted: while nothing changes, the answer is the same at every replica.
func (s *Server) report() *Report {
	f := s.known()
	sortByName(f.StorageNodes)
	sortByName(f.Volumes)
	sortByName(f.Snapshots)
	sortByName(f.Servers)
	sortByName(f.Jobs)
	sortByName(f.Upgrades)
	sortByName(f.Warnings)
	r := &Report{
		Cluster:    showCluster(f),
		Nodes:      shown(f.StorageNodes, showNode),
		Volumes:    shown(f.Volumes, func(v *v1beta1.Volume) Volume { return showVolume(v, f.Now) }),
		Snapshots:  shown(f.Snapshots, func(o *v1beta1.Snapshot) Snapshot { return showSnapshot(o, f.Now) }),
		NFSServers: shown(f.Servers, showServer),
		Findings:   append([]facts.Finding{}, f.Findings()...),
		Operations: append([]facts.Operation{}, f.Operations()...),
		Events:     f.Events(maxEvents),
		Hidden:     map[string]string{},
	}
	for kind, why := range f.Hidden {
		r.Hidden[hiddenFields[kind]] = why.Error()
	}
	// An empty list would say that there is nothing.
	if f.Hidden[facts.Servers] != nil {
		r.NFSServers = nil
	}
	if f.Hidden[facts.Warnings] != nil {
		r.Events = nil
	}
	return r
}

func sortByName[O metav1.Object](all []O) {
	slices.SortFunc(all, func(a, b O) int {
		return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
	})
}

func shown[O, T any](all []O, show func(O) T) []T {
	items := make([]T, 0, len(all))
	for _, o := range all {
		items = append(items, show(o))
	}
	return items
}

func showCluster(f *facts.Facts) *Cluster {
	c := f.Served()
	if c == nil {
		return nil
	}
	s := &Cluster{
		Name: c.Name, Phase: c.Status.Phase, ReadyNodes: int(c.Status.ReadyNodes), DesiredNodes: int(c.Status.DesiredNodes), Version: c.Status.Version, OldestVersion: c.Status.OldestVersion, Upgrade: c.Status.Upgrade,
		Nodes: append([]v1beta1.NodeHealth{}, c.Status.Nodes...), Conditions: append([]metav1.Condition{}, c.Status.Conditions...),
	}
	for _, n := range f.StorageNodes {
		for i := range n.Status.Pools {
			if p := &n.Status.Pools[i]; p.Message == "" && v1beta1.ServerOf(n.Name) == "" {
				s.Usage = s.plus(usageOf(p))
			}
		}
	}
	return s
}
