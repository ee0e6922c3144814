// Package status sums up how a cluster's storage is, for people at a terminal and for scripts.
package status

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	v1 "github.com/holdfast-storage/holdfast/api/v1"
)

// Report is how it is. Sizes are in bytes.
type Report struct {
	Well      bool      `json:"well"`
	Why       []string  `json:"why"` // it is not
	Cluster   *Cluster  `json:"cluster"`
	Nodes     []Node    `json:"nodes"`
	Servers   []Server  `json:"nfsServers"`
	Pools     []Pool    `json:"pools"`
	Volumes   int       `json:"volumes"`
	Snapshots int       `json:"snapshots"`
	Unwell    []Unwell  `json:"unwell"`
	Warnings  []Warning `json:"warnings"` // the last ones, newest first
	Hidden    []string  `json:"hidden"`   // what could not be looked at, and why
}

// Cluster is the StorageCluster.
type Cluster struct {
	Name    string          `json:"name"`
	Phase   v1.ClusterPhase `json:"phase"`
	Ready   string          `json:"ready"` // READY/ALL of the nodes
	Version string          `json:"version"`
	Upgrade string          `json:"upgrade,omitempty"`
	Message string          `json:"message,omitempty"`
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
	Name     string      `json:"name"` // NAMESPACE/NAME
	Phase    v1.NFSPhase `json:"phase"`
	Endpoint string      `json:"endpoint,omitempty"`
	Node     string      `json:"node,omitempty"` // that it runs on
	Exports  int         `json:"exports"`
	Clients  int         `json:"clients"`
	Message  string      `json:"message,omitempty"`
}

// Pool of a node or of an NFS server.
type Pool struct {
	Node      string `json:"node"`
	Name      string `json:"name"`
	Engine    string `json:"engine"`
	Capacity  int64  `json:"capacity"`
	Promised  int64  `json:"promised"`
	Used      int64  `json:"used"`
	Available int64  `json:"available"`
	Volumes   int    `json:"volumes"`
	Message   string `json:"message,omitempty"`
}

// Unwell is a volume or snapshot that is not as it should be.
type Unwell struct {
	Kind    string   `json:"kind"`
	Name    string   `json:"name"`
	Claim   string   `json:"claim,omitempty"`
	Node    string   `json:"node"`
	Pool    string   `json:"pool,omitempty"`
	Phase   v1.Phase `json:"phase"`
	Message string   `json:"message"`
}

// Warning is an event.
type Warning struct {
	Time    time.Time `json:"time"`
	Object  string    `json:"object"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int       `json:"count"`
}

// warningsKept is how many a Report has.
const warningsKept = 10

// Look asks the API server. An error says that there can be no report; what only a part of it needs is in Hidden.
func Look(ctx context.Context, ours holdfast.Interface, theirs kubernetes.Interface, namespace string) (*Report, error) {
	kinds := ours.HoldfastV1()
	clusters, err := kinds.StorageClusters().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("the StorageCluster could not be read (is Holdfast installed here?): %w", err)
	}
	nodes, err := kinds.StorageNodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("the nodes could not be read: %w", err)
	}
	volumes, err := kinds.Volumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("the volumes could not be read: %w", err)
	}
	snapshots, err := kinds.Snapshots().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("the snapshots could not be read: %w", err)
	}
	now := time.Now()
	r := &Report{
		Volumes: len(volumes.Items), Snapshots: len(snapshots.Items), Why: []string{}, Nodes: []Node{}, Servers: []Server{}, Pools: []Pool{},
		Unwell: []Unwell{}, Warnings: []Warning{}, Hidden: []string{},
	}
	r.cluster(clusters.Items)
	r.nodes(Served(clusters.Items), nodes.Items)
	if servers, err := kinds.NFSServers(metav1.NamespaceAll).List(ctx, metav1.ListOptions{}); err != nil {
		r.Hidden = append(r.Hidden, fmt.Sprintf("the NFS servers: %v", err))
	} else {
		r.servers(servers.Items)
	}
	for i := range volumes.Items {
		if u := VolumeTrouble(&volumes.Items[i], now); u != nil {
			r.Unwell = append(r.Unwell, *u)
		}
	}
	for i := range snapshots.Items {
		if u := SnapshotTrouble(&snapshots.Items[i], now); u != nil {
			r.Unwell = append(r.Unwell, *u)
		}
	}
	if n := len(r.Unwell); n > 0 {
		r.whyf("%d volumes or snapshots are not well", n)
	}
	events, err := warnings(ctx, theirs)
	if err != nil {
		r.Hidden = append(r.Hidden, fmt.Sprintf("the events: %v", err))
	}
	r.Warnings = append(r.Warnings, ofHoldfast(events, namespace)...)
	r.Well = len(r.Why) == 0
	return r, nil
}

func (r *Report) whyf(format string, args ...any) {
	r.Why = append(r.Why, fmt.Sprintf(format, args...))
}

// unread tells of an object that cannot be decoded.
func (r *Report) unread(name string, o v1.Object) {
	if message, is := unread(o); is {
		r.whyf("%s: %s", name, message)
	}
}

func (r *Report) cluster(all []v1.StorageCluster) {
	c := Served(all)
	if c == nil {
		r.whyf("there is no StorageCluster")
		return
	}
	r.unread("StorageCluster "+c.Name, c)
	r.Cluster = &Cluster{Name: c.Name, Phase: c.Status.Phase, Ready: c.Status.Ready, Version: c.Status.Version, Upgrade: c.Status.Upgrade}
	switch c.Status.Phase {
	case v1.ClusterRunning, v1.ClusterPaused, v1.ClusterUpgrading:
	case "":
		r.whyf("no controller has looked at StorageCluster %s yet", c.Name)
	default:
		r.Cluster.Message = Message(c.Status.Conditions)
		r.whyf("StorageCluster %s is %s", c.Name, c.Status.Phase)
	}
	if c.Status.Phase != "" && c.Status.ObservedGeneration < c.Generation {
		r.whyf("no controller has looked at the last change of StorageCluster %s yet", c.Name)
	}
}

// nodes that are to store are known from the cluster; those that only have a record are added.
func (r *Report) nodes(c *v1.StorageCluster, all []v1.StorageNode) {
	unready := 0
	seen := map[string]*v1.StorageNode{}
	for i := range all {
		r.pools(&all[i])
		r.unread("StorageNode "+all[i].Name, &all[i])
		if v1.ServerOf(all[i].Name) == "" {
			seen[all[i].Name] = &all[i]
		}
	}
	slices.SortStableFunc(r.Pools, func(a, b Pool) int { return cmp.Compare(a.Node, b.Node) })
	if c != nil {
		for _, h := range c.Status.Nodes {
			n := Node{Name: h.Name, Ready: h.Ready, Version: h.Version, Message: h.Message}
			if has := seen[h.Name]; has != nil {
				n.Volumes = int(has.Status.Columns.Volumes)
				delete(seen, h.Name)
			}
			r.Nodes = append(r.Nodes, n)
		}
	}
	for _, n := range seen {
		ready := meta.FindStatusCondition(n.Status.Conditions, v1.ReadyCondition)
		node := Node{Name: n.Name, Version: n.Status.Version, Volumes: int(n.Status.Columns.Volumes), Ready: ready != nil && ready.Status == metav1.ConditionTrue}
		if ready != nil && !node.Ready {
			node.Message = ready.Message
		}
		r.Nodes = append(r.Nodes, node)
	}
	slices.SortFunc(r.Nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, n := range r.Nodes {
		if !n.Ready {
			unready++
		}
	}
	if unready > 0 {
		r.whyf("%d of %d nodes are not ready", unready, len(r.Nodes))
	}
}

func (r *Report) pools(n *v1.StorageNode) {
	for _, p := range n.Status.Pools {
		r.Pools = append(r.Pools, Pool{
			Node: n.Name, Name: p.Name, Engine: p.Engine, Capacity: p.Capacity.Value(), Promised: p.Promised.Value(), Used: p.Used.Value(),
			Available: p.Available.Value(), Volumes: int(p.Volumes), Message: p.Message,
		})
	}
}

func (r *Report) servers(all []v1.NFSServer) {
	silent := 0
	for i := range all {
		s := &all[i].Status
		server := Server{
			Name: all[i].Namespace + "/" + all[i].Name, Phase: s.Phase, Endpoint: s.Endpoint, Node: s.Node,
			Exports: int(s.Exports), Clients: int(s.Clients),
		}
		if s.Phase != v1.NFSRunning {
			silent++
			server.Message = Message(s.Conditions)
		}
		r.unread("NFSServer "+server.Name, &all[i])
		r.Servers = append(r.Servers, server)
	}
	slices.SortFunc(r.Servers, func(a, b Server) int { return cmp.Compare(a.Name, b.Name) })
	if silent > 0 {
		r.whyf("%d of %d NFS servers are not running", silent, len(all))
	}
}

// Served is the StorageCluster that the operator serves; nil without any.
func Served(all []v1.StorageCluster) *v1.StorageCluster {
	var pointers []*v1.StorageCluster
	for i := range all {
		pointers = append(pointers, &all[i])
	}
	return v1.Served(pointers)
}

// Message is what the conditions of a StorageCluster or an NFSServer say when it is not well.
func Message(conditions []metav1.Condition) string {
	var said []string
	for _, kind := range []string{v1.AvailableCondition, v1.DegradedCondition, v1.ProgressingCondition} {
		c := meta.FindStatusCondition(conditions, kind)
		bad := metav1.ConditionTrue
		if kind == v1.AvailableCondition {
			bad = metav1.ConditionFalse
		}
		if c != nil && c.Status == bad && c.Message != "" && !slices.Contains(said, c.Message) {
			said = append(said, c.Message)
		}
	}
	return strings.Join(said, "; ")
}

// warnings are all of the API server, page by page.
func warnings(ctx context.Context, client kubernetes.Interface) (all []core.Event, err error) {
	options := metav1.ListOptions{FieldSelector: "type=" + core.EventTypeWarning, Limit: 500}
	for {
		page, err := client.CoreV1().Events(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return all, err
		}
		all = append(all, page.Items...)
		if options.Continue = page.Continue; options.Continue == "" {
			return all, nil
		}
	}
}

// ofHoldfast are the newest that Holdfast or its sidecars wrote, or that are about what belongs to it.
func ofHoldfast(all []core.Event, namespace string) []Warning {
	found := []Warning{}
	for i := range all {
		e := &all[i]
		writer := cmp.Or(e.Source.Component, e.ReportingController)
		ours := e.Namespace == namespace || strings.HasPrefix(writer, "holdfast") || strings.HasPrefix(writer, v1.DriverName) ||
			strings.HasPrefix(writer, v1.ProvisionerName) || strings.HasPrefix(e.InvolvedObject.APIVersion, v1.GroupName+"/")
		if e.Type != core.EventTypeWarning || !ours {
			continue
		}
		object := e.InvolvedObject.Kind + " " + e.InvolvedObject.Name
		if e.InvolvedObject.Namespace != "" {
			object = e.InvolvedObject.Kind + " " + e.InvolvedObject.Namespace + "/" + e.InvolvedObject.Name
		}
		found = append(found, Warning{When(e), object, e.Reason, e.Message, max(int(e.Count), 1)})
	}
	slices.SortStableFunc(found, func(a, b Warning) int { return b.Time.Compare(a.Time) })
	found = together(found)
	return found[:min(len(found), warningsKept)]
}

// together makes one of those that warn of the same thing again and again: the newest, with the number of all.
func together(all []Warning) []Warning {
	type same struct{ object, reason string }
	at := map[same]int{}
	kept := []Warning{}
	for _, w := range all {
		i, known := at[same{w.Object, w.Reason}]
		if known {
			kept[i].Count += w.Count
			continue
		}
		at[same{w.Object, w.Reason}] = len(kept)
		kept = append(kept, w)
	}
	return kept
}

// When an event happened last.
func When(e *core.Event) time.Time {
	last := e.LastTimestamp.Time
	for _, t := range []time.Time{e.EventTime.Time, e.FirstTimestamp.Time, e.CreationTimestamp.Time} {
		if last.IsZero() {
			last = t
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(last) {
		last = e.Series.LastObservedTime.Time
	}
	return last
}
