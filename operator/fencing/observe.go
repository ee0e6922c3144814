package fencing

import (
	"cmp"
	"context"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/podstatus"
)

// observed is all that a plan for a node depends on. It is from caches, except where it is said to be live.
type observed struct {
	name        string
	now         time.Time
	configured  bool // there is a StorageCluster that can be read; without it, pools and spec.fencing are not known
	disabled    bool // spec.fencing.pods is None
	fencing     v1beta1.FencingSpec
	after       time.Duration        // 0: silence is not enough
	node        *core.Node           // nil if there is none
	storageNode *v1beta1.StorageNode // nil if there is none
	down        string               // why the agent is silent; empty while it is alive
	silent      time.Duration
	nodes       int                        // this one, and those that are not known to be lost
	silentNodes int                        // of these
	sites       []site                     // the pools in Ceph clusters
	elsewhere   map[clientAddress]string   // the node that has recorded a client, of all other nodes
	pods        []*core.Pod                // live: those on the node that use volumes in Ceph clusters, where needsPods says so
	attachments []storage.VolumeAttachment // live: those of volumes in Ceph clusters that no pod needs that stays
}

// site is a pool in a Ceph cluster.
type site struct {
	*v1beta1.StorageNode
	fsid    string
	surplus []string // the nodes that are gone, the oldest first, by which it lists more than mostListed
}

type clientAddress struct {
	fsid    string
	address v1beta1.CephAddress
}

func (r *Controller) observe(ctx context.Context, name string) (observed, error) {
	o := observed{name: name, now: time.Now(), down: r.Liveness.WhyDown(name), silent: r.Liveness.SilentFor(name), elsewhere: map[clientAddress]string{}}
	o.node, _ = r.nodes.Get(name) // the only error of a cache is that there is none
	clusters := map[string]string{}
	if c := v1beta1.Served(kube.Cached(r.clusters.List)); c != nil && c.Unreadable() == nil {
		o.configured, o.fencing = true, c.Spec.Fencing
		o.after, _ = o.fencing.After.Or(0) // the operator refuses one that cannot be read
		for _, p := range v1beta1.CephPools(c.Spec.Pools) {
			clusters[v1beta1.NodeOfCephPool(p.Name)] = p.Ceph.FSID
		}
	}
	o.disabled = o.fencing.Pods == v1beta1.FenceNone
	for _, n := range kube.Cached(r.storageNodes.List) {
		r.observeOther(&o, n, clusters)
	}
	// Last: its fence is not older than what the pools list. It is replaced by what is written.
	if n, err := r.storageNodes.Get(name); err == nil {
		o.storageNode = n.DeepCopy()
	}
	slices.SortFunc(o.sites, func(a, b site) int { return cmp.Compare(a.Name, b.Name) })
	if !o.needsPods() {
		return o, nil
	}
	return o, r.observeUse(ctx, &o)
}

func (r *Controller) observeOther(o *observed, n *v1beta1.StorageNode, clusters map[string]string) {
	if v1beta1.IsSite(n.Name) {
		if fsid := clusters[n.Name]; fsid != "" {
			o.sites = append(o.sites, site{n, fsid, r.surplus(n)})
		}
		return
	}
	if n.Name == o.name || r.isExpected(n) {
		o.nodes++
		if r.Liveness.WhyDown(n.Name) != "" {
			o.silentNodes++
		}
	}
	if n.Name == o.name {
		return
	}
	for _, c := range n.Status.CephClients {
		if c.Address != "" {
			o.elsewhere[clientAddress{c.FSID, c.Address}] = n.Name
		}
	}
}

// surplus are the nodes whose entries expire. Those that do already count as gone.
func (r *Controller) surplus(pool *v1beta1.StorageNode) (names []string) {
	listed := slices.DeleteFunc(slices.Clone(pool.Spec.Blocklist), func(e v1beta1.BlocklistRequest) bool { return e.Expire })
	more := len(listed) - mostListed
	if more <= 0 {
		return nil
	}
	slices.SortStableFunc(listed, func(a, b v1beta1.BlocklistRequest) int { return a.RequestedAt.Compare(b.RequestedAt.Time) })
	for _, e := range listed {
		_, noNode := r.nodes.Get(e.Node) // the only error of a cache is that there is none
		_, noStorageNode := r.storageNodes.Get(e.Node)
		if noNode != nil && noStorageNode != nil && len(names) < more {
			names = append(names, e.Node)
		}
	}
	return names
}

// isExpected says whether the silence of a node would be news: one that was removed, declared lost or is being shut out is
// silent for a reason of its own.
func (r *Controller) isExpected(n *v1beta1.StorageNode) bool {
	host, err := r.nodes.Get(n.Name) // the only error of a cache is that there is none
	return err == nil && !kube.IsOutOfService(host) && n.Spec.Fence == nil
}

// observeUse asks the API server which pods and VolumeAttachments of the node use volumes in Ceph clusters.
func (r *Controller) observeUse(ctx context.Context, o *observed) error {
	on := fields.OneTermEqualSelector("spec.nodeName", o.name).String()
	pods, err := r.Kubernetes.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: on})
	if err != nil {
		return err
	}
	needed := map[string]bool{} // PersistentVolumes of pods that stay
	for i := range pods.Items {
		p := &pods.Items[i]
		used, err := r.cephVolumes(ctx, p)
		if err != nil {
			return err
		}
		if len(used) == 0 {
			continue
		}
		o.pods = append(o.pods, p)
		if !o.isDoomed(p) {
			for _, pv := range used {
				needed[pv] = true
			}
		}
	}
	attachments, err := r.Kubernetes.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, a := range attachments.Items {
		pv := a.Spec.Source.PersistentVolumeName
		if a.Spec.Attacher != r.Driver || a.Spec.NodeName != o.name || pv == nil || needed[*pv] || a.Annotations[fencedAnnotation] != "" {
			continue
		}
		is, err := r.isInCeph(ctx, *pv, nil)
		if err != nil {
			return err
		}
		if is {
			o.attachments = append(o.attachments, a)
		}
	}
	return nil
}

// cephVolumes are the PersistentVolumes in Ceph clusters of a pod that has not ended.
func (r *Controller) cephVolumes(ctx context.Context, p *core.Pod) (names []string, err error) {
	if podstatus.HasEnded(p) {
		return nil, nil
	}
	for _, claim := range podstatus.Claims(p) {
		c, err := r.Kubernetes.CoreV1().PersistentVolumeClaims(p.Namespace).Get(ctx, claim, metav1.GetOptions{})
		if kube.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err != nil || c.Spec.VolumeName == "" {
			continue
		}
		is, err := r.isInCeph(ctx, c.Spec.VolumeName, c)
		if err != nil {
			return nil, err
		}
		if is {
			names = append(names, c.Spec.VolumeName)
		}
	}
	return names, nil
}

// isInCeph says whether a PersistentVolume is in a Ceph cluster and, if a claim is given, is that of the claim: its author may name
// any. A claim that was made again under the same name is another one.
func (r *Controller) isInCeph(ctx context.Context, persistentVolume string, of *core.PersistentVolumeClaim) (bool, error) {
	pv, err := r.Kubernetes.CoreV1().PersistentVolumes().Get(ctx, persistentVolume, metav1.GetOptions{})
	if err != nil || pv.Spec.CSI == nil || pv.Spec.CSI.Driver != r.Driver {
		return false, kube.IgnoreNotFound(err)
	}
	if ref := pv.Spec.ClaimRef; of != nil && (ref == nil || ref.Namespace != of.Namespace || ref.Name != of.Name || ref.UID != of.UID) {
		return false, nil
	}
	v, err := r.volumes.Get(pv.Spec.CSI.VolumeHandle)
	return err == nil && v1beta1.CephPoolOf(v.Spec.Node) != "", nil // the only error of a cache is that there is none
}
