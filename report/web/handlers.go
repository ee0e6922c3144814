package web

import (
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/report/facts"
)

// known is what the watches have, of which reading has no error. The caller may change the lists, and not what is in them.
func (s *Server) known() *facts.Facts {
	f := &facts.Facts{}
	f.Clusters, _ = s.clusters.List(labels.Everything())
	f.StorageNodes, _ = s.nodes.List(labels.Everything())
	f.Volumes, _ = s.volumes.List(labels.Everything())
	f.Snapshots, _ = s.snapshots.List(labels.Everything())
	return f
}

func (s *Server) cluster(*query) (any, error) {
	f := s.known()
	c := f.Served()
	if c == nil {
		return nil, refuse(http.StatusNotFound, "there is no StorageCluster; kubectl apply one")
	}
	shown := Cluster{
		Name: c.Name, Phase: c.Status.Phase, ReadyNodes: int(c.Status.ReadyNodes), DesiredNodes: int(c.Status.DesiredNodes), Version: c.Status.Version, Upgrade: c.Status.Upgrade,
		Volumes: len(f.Volumes), Snapshots: len(f.Snapshots), Nodes: []Health{}, Conditions: showConditions(c.Status.Conditions),
	}
	for _, n := range c.Status.Nodes {
		shown.Nodes = append(shown.Nodes, Health{n.Name, n.Ready, n.Version, n.Message})
	}
	for _, n := range f.StorageNodes {
		for i := range n.Status.Pools {
			if p := &n.Status.Pools[i]; p.Message == "" && v1beta1.ServerOf(n.Name) == "" {
				shown.Room = shown.Room.plus(roomOf(p))
			}
		}
	}
	return shown, nil
}

func (s *Server) listNodes(q *query) (any, error) {
	all := slices.DeleteFunc(s.known().StorageNodes, func(n *v1beta1.StorageNode) bool {
		has := slices.ContainsFunc(n.Status.Pools, func(p v1beta1.Pool) bool { return q.wants(poolParameter, p.Name) })
		_, asked := q.text[poolParameter.name]
		return !q.wants(nodeParameter, n.Name) || asked && !has || !q.wants(nodePhaseParameter, string(phaseOf(n)))
	})
	return page(q, all, func(n *v1beta1.StorageNode) string { return n.Name }, showNode), nil
}

func (s *Server) listPools(q *query) (any, error) {
	var all []Pool
	for _, n := range s.known().StorageNodes {
		for i := range n.Status.Pools {
			if p := &n.Status.Pools[i]; q.wants(nodeParameter, n.Name) && q.wants(poolParameter, p.Name) {
				all = append(all, showPool(n.Name, p))
			}
		}
	}
	return page(q, all, func(p Pool) string { return p.Node + "/" + p.Name }, func(p Pool) Pool { return p }), nil
}

func (s *Server) listVolumes(q *query) (any, error) {
	all := slices.DeleteFunc(s.known().Volumes, func(v *v1beta1.Volume) bool {
		return !q.wants(nodeParameter, v.Spec.Node) || !q.wants(poolParameter, v.PoolName()) || !q.wants(phaseParameter, string(orPending(v.Status.Phase)))
	})
	return page(q, all, func(v *v1beta1.Volume) string { return v.Name }, showVolume), nil
}

func (s *Server) listSnapshots(q *query) (any, error) {
	all := slices.DeleteFunc(s.known().Snapshots, func(o *v1beta1.Snapshot) bool {
		return !q.wants(nodeParameter, o.Spec.Node) || !q.wants(poolParameter, o.Status.Pool) ||
			!q.wants(phaseParameter, string(orPending(o.Status.Phase))) || !q.wants(volumeParameter, o.Spec.SourceRef.Name)
	})
	return page(q, all, func(o *v1beta1.Snapshot) string { return o.Name }, showSnapshot), nil
}

func (s *Server) node(q *query) (any, error) {
	return one(q, "node", s.nodes.Get, showNode)
}

func (s *Server) volume(q *query) (any, error) {
	return one(q, "volume", s.volumes.Get, showVolume)
}

func (s *Server) snapshot(q *query) (any, error) {
	return one(q, "snapshot", s.snapshots.Get, showSnapshot)
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
