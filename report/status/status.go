// Package status sums up how a cluster's storage is, for people at a terminal and for scripts.
package status

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/report/facts"
)

// Report is how it is. Sizes are in bytes.
type Report struct {
	Well      bool           `json:"well"`
	Why       []string       `json:"why"` // it is not
	Cluster   *Cluster       `json:"cluster"`
	Nodes     []Node         `json:"nodes"`
	Servers   []Server       `json:"nfsServers"`
	CephPools []Node         `json:"cephPools"` // by the agents that make their volumes
	Pools     []Pool         `json:"pools"`
	Volumes   int            `json:"volumes"`
	Snapshots int            `json:"snapshots"`
	Unwell    []facts.Unwell `json:"unwell"`
	Warnings  []facts.Event  `json:"warnings"` // the last ones, newest first
	Hidden    []string       `json:"hidden"`   // what could not be looked at, and why
}

// Cluster is the StorageCluster.
type Cluster struct {
	Name  string               `json:"name"`
	Phase v1beta1.ClusterPhase `json:"phase"`
	// How many nodes are selected, and are ready.
	DesiredNodes int32 `json:"desiredNodes"`
	ReadyNodes   int32 `json:"readyNodes"`
	// Version is the newest of the nodes; OldestVersion is there while they differ.
	Version       string `json:"version"`
	OldestVersion string `json:"oldestVersion,omitempty"`
	Upgrade       string `json:"upgrade,omitempty"`
	Message       string `json:"message,omitempty"`
}

// Node that is to store.
type Node struct {
	Name    string `json:"name"`
	Ready   bool   `json:"ready"`
	Version string `json:"version"`
	Volumes int    `json:"volumes"`
	Message string `json:"message,omitempty"`
}

// Server is an NFSServer.
type Server struct {
	Namespace string           `json:"namespace"`
	Name      string           `json:"name"`
	Phase     v1beta1.NFSPhase `json:"phase"`
	Endpoint  string           `json:"endpoint,omitempty"`
	Node      string           `json:"node,omitempty"` // that it runs on
	Exports   int              `json:"exports"`
	Clients   int              `json:"clients"`
	Message   string           `json:"message,omitempty"`
}

// Pool of a node, of an NFS server or in a Ceph cluster.
type Pool struct {
	Node      string `json:"node"`               // POOL.ceph.holdfast.dev for a Ceph pool
	CephPool  string `json:"cephPool,omitempty"` // its name, if it is in a Ceph cluster
	Name      string `json:"name"`
	Engine    string `json:"engine"`
	Snapshot  string `json:"snapshotCost,omitempty"` // what one takes: Shared or Full
	Capacity  int64  `json:"capacity"`
	Promised  int64  `json:"promised"`
	Used      int64  `json:"used"`
	Available int64  `json:"available"`
	Volumes   int    `json:"volumes"`
	Message   string `json:"message,omitempty"`
}

// warningsKept is how many a Report has.
const warningsKept = 10

// Look sums up what was read. An error says that there can be no report; what only a part of it needs is in Hidden.
func Look(f *facts.Facts) (*Report, error) {
	if err := f.Unread(); err != nil {
		return nil, err
	}
	r := &Report{
		Volumes: len(f.Volumes), Snapshots: len(f.Snapshots), Why: []string{}, Nodes: []Node{}, CephPools: []Node{}, Servers: []Server{}, Pools: []Pool{},
		Unwell: f.Unwell(), Warnings: f.Events(warningsKept), Hidden: []string{},
	}
	r.cluster(f.Served())
	for _, o := range f.Unreadable() {
		if o.Object.Kind != "Volume" && o.Object.Kind != "Snapshot" { // which are not well
			r.whyf("%s: its object cannot be read: %v", o.Object, o.Err)
		}
	}
	r.nodes(f)
	r.pools(f.StorageNodes)
	r.servers(f)
	if n := len(r.Unwell); n > 0 {
		r.whyf("%d volumes or snapshots are not well", n)
	}
	for _, kind := range []string{facts.Servers, facts.Jobs, facts.Upgrades, facts.Warnings} {
		if err := cmp.Or(f.Hidden[kind], f.Unknown[kind]); err != nil {
			r.Hidden = append(r.Hidden, fmt.Sprintf("the %s: %v", kind, err))
		}
	}
	r.Well = len(r.Why) == 0
	return r, nil
}

func (r *Report) whyf(format string, args ...any) {
	r.Why = append(r.Why, fmt.Sprintf(format, args...))
}

func (r *Report) cluster(c *v1beta1.StorageCluster) {
	if c == nil {
		r.whyf("there is no StorageCluster")
		return
	}
	r.Cluster = &Cluster{Name: c.Name, Phase: c.Status.Phase, ReadyNodes: c.Status.ReadyNodes, DesiredNodes: c.Status.DesiredNodes, Version: c.Status.Version, OldestVersion: c.Status.OldestVersion, Upgrade: c.Status.Upgrade}
	switch {
	case c.Status.Phase == "":
		r.whyf("no controller has looked at StorageCluster %s yet", c.Name)
	case !facts.Runs(c.Status.Phase):
		r.Cluster.Message = facts.Message(c.Status.Conditions)
		r.whyf("StorageCluster %s is %s", c.Name, c.Status.Phase)
	}
	if c.Status.Phase != "" && c.Status.ObservedGeneration < c.Generation {
		r.whyf("no controller has looked at the last change of StorageCluster %s yet", c.Name)
	}
}

// nodes that need attention are known from the cluster, the others by what they have recorded.
func (r *Report) nodes(f *facts.Facts) {
	records := map[string]*v1beta1.StorageNode{}
	ailing, fenced := 0, 0
	for _, n := range f.StorageNodes {
		if facts.Ailing(n) != "" {
			ailing++
		}
		if facts.OfFence(n) != nil {
			fenced++
		}
		switch site := v1beta1.SiteOf(n.Name); site.Kind {
		case "":
			records[n.Name] = n
		case v1beta1.SiteCephPool:
			pool := Node{Name: site.Name, Ready: true, Version: n.Status.Version}
			pool.add(n)
			r.CephPools = append(r.CephPools, pool)
		}
	}
	if c := f.Served(); c != nil {
		for _, h := range c.Status.Nodes {
			n := Node{Name: h.Name, Ready: h.Ready, Version: h.Version, Message: h.Message}
			if record := records[h.Name]; record != nil {
				n.add(record)
				delete(records, h.Name)
			}
			r.Nodes = append(r.Nodes, n)
		}
	}
	for _, record := range records {
		n := Node{Name: record.Name, Ready: true, Version: record.Status.Version}
		n.add(record)
		r.Nodes = append(r.Nodes, n)
	}
	byName := func(a, b Node) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortFunc(r.Nodes, byName)
	slices.SortFunc(r.CephPools, byName)
	r.unready("nodes", r.Nodes)
	r.unready("Ceph pools", r.CephPools)
	if fenced > 0 {
		r.whyf("%d nodes are shut out of Ceph clusters, are to be, or cannot be", fenced)
	}
	if ailing > 0 {
		r.whyf("the file systems of %d of %d nodes and NFS servers have met errors", ailing, len(f.StorageNodes))
	}
}

func (r *Report) unready(what string, all []Node) {
	if unready := count(all, func(n Node) bool { return !n.Ready }); unready > 0 {
		r.whyf("%d of %d %s are not ready", unready, len(all), what)
	}
}

// add what a node says of itself.
func (n *Node) add(record *v1beta1.StorageNode) {
	ready, why := facts.Ready(record)
	n.Volumes = int(record.Status.Columns.Volumes)
	n.Ready = n.Ready && ready == metav1.ConditionTrue
	if fence := facts.OfFence(record); fence != nil { // it follows from what else is wrong with it, and is the most urgent
		n.Message = fence.What
	}
	n.Message = cmp.Or(n.Message, why, facts.Ailing(record), facts.NodeUserRefused(record), facts.KeyRefused(record))
}

func (r *Report) pools(all []*v1beta1.StorageNode) {
	bad := 0
	for _, n := range all {
		for i := range n.Status.Pools {
			p := &n.Status.Pools[i]
			level, what, _ := facts.OfPool(p)
			if level == facts.Problem {
				bad++
			}
			r.Pools = append(r.Pools, Pool{
				Node: n.Name, CephPool: v1beta1.CephPoolOf(n.Name), Name: p.Name, Engine: string(p.Engine), Snapshot: string(p.SnapshotCost), Capacity: p.Capacity.Value(), Promised: p.Promised.Value(), Used: p.Used.Value(),
				Available: p.Available.Value(), Volumes: int(p.Volumes), Message: what,
			})
		}
	}
	slices.SortStableFunc(r.Pools, func(a, b Pool) int { return cmp.Compare(a.Node, b.Node) })
	if bad > 0 {
		r.whyf("%d of %d pools are full or cannot be used", bad, len(r.Pools))
	}
}

func (r *Report) servers(f *facts.Facts) {
	silent, unseen := 0, 0
	for _, o := range f.Servers {
		s := &o.Status
		level, what := facts.OfServer(o)
		switch {
		case s.Phase != v1beta1.NFSRunning:
			silent++
		case level == facts.Problem:
			unseen++
		}
		if i := slices.IndexFunc(f.StorageNodes, func(n *v1beta1.StorageNode) bool { return n.Name == o.NodeName() }); i >= 0 {
			what = cmp.Or(what, facts.Ailing(f.StorageNodes[i]))
		}
		r.Servers = append(r.Servers, Server{
			Namespace: o.Namespace, Name: o.Name, Phase: s.Phase, Endpoint: s.Endpoint, Node: s.Node,
			Exports: int(s.Exports), Clients: int(s.Clients), Message: what,
		})
	}
	slices.SortFunc(r.Servers, func(a, b Server) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	if silent > 0 {
		r.whyf("%d of %d NFS servers are not running", silent, len(r.Servers))
	}
	if unseen > 0 {
		r.whyf("no controller has looked at the last change of %d of %d NFS servers yet", unseen, len(r.Servers))
	}
}
