package web

import (
	"net/http"
	"path"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/report/facts"
)

func (s *Server) cluster(*query) (any, error) {
	f := s.known()
	c := f.Served()
	if c == nil {
		return nil, refuse(http.StatusNotFound, "there is no StorageCluster; kubectl apply one")
	}
	shown := Cluster{
		Name: c.Name, Phase: c.Status.Phase, ReadyNodes: int(c.Status.ReadyNodes), DesiredNodes: int(c.Status.DesiredNodes), Version: c.Status.Version, OldestVersion: c.Status.OldestVersion, Upgrade: c.Status.Upgrade,
		Volumes: len(f.Volumes), Snapshots: len(f.Snapshots), Nodes: []NodeHealth{}, Conditions: showConditions(c.Status.Conditions),
	}
	for _, n := range c.Status.Nodes {
		shown.Nodes = append(shown.Nodes, NodeHealth{n.Name, n.Ready, n.Version, n.Message})
	}
	for _, n := range f.StorageNodes {
		for i := range n.Status.Pools {
			if p := &n.Status.Pools[i]; p.Message == "" && v1beta1.ServerOf(n.Name) == "" {
				shown.Usage = shown.plus(usageOf(p))
			}
		}
	}
	return shown, nil
}

func (s *Server) listNodes(q *query) (any, error) {
	all := slices.DeleteFunc(s.known().StorageNodes, func(n *v1beta1.StorageNode) bool {
		has := slices.ContainsFunc(n.Status.Pools, func(p v1beta1.Pool) bool { return q.wants(poolParameter, p.Name) })
		_, asked := q.text[poolParameter.name]
		return !q.wants(nodeParameter, n.Name) || asked && !has || !q.wants(nodePhaseParameter, string(phaseOf(n))) ||
			!q.finds(n.Name, v1beta1.SiteOf(n.Name).Name, string(phaseOf(n)), n.Status.Version)
	})
	return page(q, all, nodeOrders, func(n *v1beta1.StorageNode) string { return n.Name }, showNode), nil
}

func (s *Server) listPools(q *query) (any, error) {
	var all []Pool
	for _, n := range s.known().StorageNodes {
		for i := range n.Status.Pools {
			p := &n.Status.Pools[i]
			if q.wants(nodeParameter, n.Name) && q.wants(poolParameter, p.Name) && q.finds(n.Name, v1beta1.SiteOf(n.Name).Name, p.Name, p.Path, string(p.Engine)) {
				all = append(all, showPool(n.Name, p))
			}
		}
	}
	return page(q, all, poolOrders, func(p Pool) string { return p.Node + "/" + p.Name }, func(p Pool) Pool { return p }), nil
}

func (s *Server) listVolumes(q *query) (any, error) {
	f := s.known()
	all := slices.DeleteFunc(f.Volumes, func(v *v1beta1.Volume) bool {
		phase := string(orPending(v.Status.Phase))
		return !q.wants(nodeParameter, v.Spec.Node) || !q.wants(poolParameter, v.PoolName()) || !q.wants(phaseParameter, phase) ||
			!q.wantsAttention(facts.OfVolume(v, f.Now)) || !q.finds(v.Name, v.Spec.ClaimRef.String(), v.Spec.Node, v1beta1.SiteOf(v.Spec.Node).Name, v.PoolName(), phase)
	})
	show := func(v *v1beta1.Volume) Volume { return showVolume(v, f.Now) }
	return page(q, all, volumeOrders, func(v *v1beta1.Volume) string { return v.Name }, show), nil
}

func (s *Server) listSnapshots(q *query) (any, error) {
	f := s.known()
	all := slices.DeleteFunc(f.Snapshots, func(o *v1beta1.Snapshot) bool {
		phase := string(orPending(o.Status.Phase))
		return !q.wants(nodeParameter, o.Spec.Node) || !q.wants(poolParameter, o.Status.Pool) || !q.wants(phaseParameter, phase) ||
			!q.wants(volumeParameter, o.Spec.SourceRef.Name) || !q.wantsAttention(facts.OfSnapshot(o, f.Now)) ||
			!q.finds(o.Name, o.Spec.SourceRef.Name, o.Status.Group, o.Spec.Node, o.Status.Pool, phase)
	})
	show := func(o *v1beta1.Snapshot) Snapshot { return showSnapshot(o, f.Now) }
	return page(q, all, snapshotOrders, func(o *v1beta1.Snapshot) string { return o.Name }, show), nil
}

func (s *Server) listServers(q *query) (any, error) {
	f := s.known()
	if err := hidden(f, facts.Servers); err != nil {
		return nil, err
	}
	all := slices.DeleteFunc(f.Servers, func(o *v1beta1.NFSServer) bool {
		return !q.wants(nodeParameter, o.Status.Node) || !q.wants(serverPhase, string(o.Status.Phase)) ||
			!q.finds(o.Namespace+"/"+o.Name, string(o.Status.Phase), o.Status.Node, o.Status.Endpoint, o.Status.ClaimName)
	})
	return page(q, all, serverOrders, func(o *v1beta1.NFSServer) string { return o.Namespace + "/" + o.Name }, showServer), nil
}

func (s *Server) listFindings(q *query) (any, error) {
	return inOrder(q, s.known().Findings(), func(f facts.Finding) []string {
		return []string{f.Kind, path.Join(f.Namespace, f.Node, f.Name), string(f.Level), string(f.Phase), f.Message}
	}), nil
}

func (s *Server) listOperations(q *query) (any, error) {
	return inOrder(q, s.known().Operations(), func(o facts.Operation) []string {
		return []string{string(o.Verb), o.Kind, path.Join(o.Namespace, o.Name), path.Join(o.Node, o.Name), o.ClaimRef.String(), o.Message}
	}), nil
}

func (s *Server) listEvents(q *query) (any, error) {
	f := s.known()
	if err := hidden(f, facts.Warnings); err != nil {
		return nil, err
	}
	return inOrder(q, f.Events(0), func(e facts.Event) []string { return []string{e.InvolvedObject.String(), e.Reason, e.Message} }), nil
}

// hidden refuses a list of what could not be read: an empty one would say that there is nothing.
func hidden(f *facts.Facts, kind string) error {
	if err := f.Hidden[kind]; err != nil {
		return refuse(http.StatusServiceUnavailable, "the %s are not known: %v", kind, err)
	}
	return nil
}

func (s *Server) node(q *query) (any, error) {
	return one(q, "node", s.nodes.Get, showNode)
}

func (s *Server) volume(q *query) (any, error) {
	return one(q, "volume", s.volumes.Get, func(v *v1beta1.Volume) Volume { return showVolume(v, s.clock.Now()) })
}

func (s *Server) snapshot(q *query) (any, error) {
	return one(q, "snapshot", s.snapshots.Get, func(o *v1beta1.Snapshot) Snapshot { return showSnapshot(o, s.clock.Now()) })
}

func one[O, T any](q *query, kind string, get func(string) (*O, error), show func(*O) T) (any, error) {
	o, err := get(q.name)
	if apierrors.IsNotFound(err) {
		return nil, refuse(http.StatusNotFound, "there is no %s %q; /api/v1/%ss lists what there is", kind, q.name, kind)
	}
	if err != nil {
		return nil, err
	}
	return show(o), nil
}
