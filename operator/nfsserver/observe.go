package nfsserver

import (
	"context"
	"fmt"
	"slices"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
)

// observed is all that a decision depends on. It is from caches, except where it is said to be live.
type observed struct {
	now           time.Time
	entitled      bool                            // the server may be where it is, or has its rights from before
	others        []*v1beta1.NFSServer            // all of the namespace
	namespace     *core.Namespace                 // nil if it is gone
	nodes         []*core.Node                    // all of the cluster
	agents        map[string]*v1beta1.StorageNode // of nodes, by their names
	beside        map[string][]string             // what nodes have beside the addresses of their pods
	unknownBeside bool                            // the agent's pod of a node has no address
	storage       *v1beta1.StorageNode            // the server's own report; nil if there is none yet
	volumes       int
	exports       int // volumes that are made
	snapshots     int
	incomplete    bool // a kind is missing, or being deleted: it is unknown what the server holds

	kinds       map[schema.GroupKind]bool // that the API server knows, of Kinds
	unguarded   bool                      // the API server knows no policies, so no loop devices are allocated
	unlimited   []string                  // the policies and bindings of servers that are missing or changed
	service     string                    // the address of the Service; "" if it has none yet, or is not there
	shut        bool                      // there is the NetworkPolicy
	statefulSet *unstructured.Unstructured
	set         *apps.StatefulSet // the same, typed; nil if there is none
	account     *unstructured.Unstructured
	pods        []*core.Pod // the newest last

	// claim is nil if there is none. It is live if the cached one needs a change, and while the server is being removed.
	claim       *core.PersistentVolumeClaim
	claimUnread error                  // why the claim, or its PersistentVolume, could not be read
	volume      *core.PersistentVolume // live: the claim's; nil if it was kept a moment ago
	volumeAgain time.Duration          // when to read it again, since PersistentVolumes are not watched; 0 without one
	data        *core.PersistentVolume // live: that was kept for the server; of one without claim, or being removed

	remains remains // of a server that is being removed
}

// observe reads the caches. It reads from the API server only where a stale cache would do harm: what blocks the removal
// of a server, a claim to create or grow, and PersistentVolumes, which are not cached.
func (c *Controller) observe(ctx context.Context, d desired) (observed, error) {
	o := c.observeCaches(d)
	if err := c.observeBeside(ctx, &o, d.server.Status.AllowedClients); err != nil {
		return o, err
	}
	r := &round{desired: d, observed: o}
	if r.isRemovable() {
		if err := c.observeRemoval(ctx, d.server, &r.observed); err != nil {
			return o, err
		}
	}
	if r.isMaintained() {
		r.claimUnread = c.observeClaim(ctx, d.server, &r.observed)
	}
	return r.observed, nil
}

func (c *Controller) observeCaches(d desired) observed {
	s := d.server
	o := observed{
		now: time.Now(), entitled: c.entitled(s, d.cluster), pods: c.podsOf(s), claim: c.claim(s),
		others: kube.Cached(c.servers.NFSServers(s.Namespace).List), nodes: kube.Cached(c.nodes.List),
		kinds: map[schema.GroupKind]bool{}, unguarded: !render.HasPolicies(c.Owned.Has), unlimited: c.unlimited(&d.cluster.Spec.NFS),
		service: c.serviceAddress(s), shut: c.Servers.Get(refTo(s, networkPolicy.Group, networkPolicy.Kind)) != nil,
		statefulSet: c.Servers.Get(refTo(s, apps.GroupName, "StatefulSet")), account: c.Servers.Get(apply.RefTo("", rbac.ServiceAccountKind, s.Namespace, rightsName)),
		incomplete: slices.ContainsFunc([]string{"nfsservers", "volumes", "snapshots", "storagenodes"}, func(kind string) bool { return !c.Whole(kind) }),
	}
	for _, kind := range Kinds() {
		o.kinds[kind.GroupKind()] = c.Servers.Has(kind.GroupKind())
	}
	o.set = apply.Typed[apps.StatefulSet](o.statefulSet)
	o.namespace, _ = c.namespaces.Get(s.Namespace) // the only error of a cache is that there is none
	c.observeStorageNodes(s, &o)
	c.count(s, &o)
	return o
}

func (c *Controller) observeStorageNodes(s *v1beta1.NFSServer, o *observed) {
	o.agents = map[string]*v1beta1.StorageNode{}
	for _, n := range kube.Cached(c.storageNodes.List) {
		switch {
		case n.Name == s.NodeName():
			o.storage = n
		case !v1beta1.IsSite(n.Name):
			o.agents[n.Name] = n
		}
	}
}

// count counts what is on a server. An object that cannot be decoded and has no known node counts for every server.
func (c *Controller) count(s *v1beta1.NFSServer, o *observed) {
	isOn := func(object v1beta1.Object, node string) bool {
		return node == s.NodeName() || node == "" && object.Unreadable() != nil
	}
	for _, v := range kube.Cached(c.volumes.List) {
		if isOn(v, v.Spec.Node) {
			o.volumes++
			if v.Status.CreationTime != nil {
				o.exports++
			}
		}
	}
	for _, n := range kube.Cached(c.snapshots.List) {
		if isOn(n, n.Spec.Node) {
			o.snapshots++
		}
	}
}

// podsOf returns the pods of a server, the newest last.
func (c *Controller) podsOf(s *v1beta1.NFSServer) []*core.Pod {
	pods := slices.DeleteFunc(kube.Selected(c.pods.Core().V1().Pods().Lister().Pods(s.Namespace).List, selector(s)), func(p *core.Pod) bool { return !isPodOf(s, p.Name) })
	slices.SortFunc(pods, func(a, b *core.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return pods
}

// claim returns the claim of a server from the cache, nil if there is none.
func (c *Controller) claim(s *v1beta1.NFSServer) *core.PersistentVolumeClaim {
	claim, _ := c.Watches.Everywhere.Core().V1().PersistentVolumeClaims().Lister().PersistentVolumeClaims(s.Namespace).Get(claimName(s))
	return claim
}

// serviceAddress returns the address of the Service of a server, which proves more than the status.
func (c *Controller) serviceAddress(s *v1beta1.NFSServer) string {
	live := c.Servers.Get(refTo(s, "", "Service"))
	if live == nil {
		return ""
	}
	address, _, _ := unstructured.NestedString(live.Object, "spec", "clusterIP")
	return address
}

// keptFor is how long it is believed that a PersistentVolume outlives its claim. A script, or a restore from a backup, may
// write its policy.
const keptFor = 5 * time.Minute

// observeClaim reads the claim and its PersistentVolume if they may need a change. It is read at once when the claim is
// being deleted, which takes until no pod uses it: there is time to keep the data.
func (c *Controller) observeClaim(ctx context.Context, s *v1beta1.NFSServer, o *observed) error {
	if makesClaim(s) && (o.claim == nil || !isOurs(o.claim, s) || grown(o.claim, s) != nil) {
		live, err := c.liveClaim(ctx, s)
		if err != nil {
			return err
		}
		if o.claim = live; live == nil {
			_, o.data, err = c.findVolumes(ctx, s, o.service)
			return err
		}
	}
	claim := o.claim
	if s.Spec.Storage == nil || claim == nil || claim.Spec.VolumeName == "" || makesClaim(s) && !isOurs(claim, s) {
		return nil
	}
	o.volumeAgain = keptFor
	if at, kept := c.kept.Load(claim.UID); kept && claim.DeletionTimestamp == nil && o.now.Sub(at.(time.Time)) < keptFor {
		return nil
	}
	pv, err := c.Kubernetes.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("the reclaim policy of PersistentVolume %s of claim %s cannot be set to Retain: %w", claim.Spec.VolumeName, claim.Name, err)
	case isBoundTo(pv, claim) && isKept(pv, s):
		c.kept.Store(claim.UID, o.now)
	default:
		o.volume = pv
	}
	return nil
}

// liveClaim reads the claim of a server from the API server; nil if there is none.
func (c *Controller) liveClaim(ctx context.Context, s *v1beta1.NFSServer) (*core.PersistentVolumeClaim, error) {
	return kube.Live(ctx, c.Kubernetes.CoreV1().PersistentVolumeClaims(s.Namespace).Get, claimName(s))
}

// isOnServer says whether a PersistentVolume is of a volume on a server, which has or had one of the addresses.
func isOnServer(pv *core.PersistentVolume, s *v1beta1.NFSServer, addresses ...string) bool {
	if csi := pv.Spec.CSI; csi != nil && csi.Driver == v1beta1.DriverName {
		at := csi.VolumeAttributes[v1beta1.NFSServerAttribute]
		return at != "" && slices.Contains(addresses, at)
	}
	return pv.Annotations[v1beta1.NFSServerAnnotation] == keyOf(s).String()
}

// findVolumes searches all PersistentVolumes for those of volumes on a server, and for the one with the server's data.
func (c *Controller) findVolumes(ctx context.Context, s *v1beta1.NFSServer, address string) (onIt bool, data *core.PersistentVolume, err error) {
	err = kube.Each(ctx, c.Kubernetes.CoreV1().PersistentVolumes().List, metav1.ListOptions{}, func(pv *core.PersistentVolume) {
		onIt = onIt || isOnServer(pv, s, address, s.Status.Address(), s.Spec.Service.ClusterIP)
		ref := pv.Spec.ClaimRef
		if pv.Annotations[dataAnnotation] == keyOf(s).String() && ref != nil && ref.Namespace == s.Namespace && ref.Name == claimName(s) {
			data = pv
		}
	})
	return onIt, data, err
}

func refTo(s *v1beta1.NFSServer, group, kind string) apply.Ref {
	return apply.RefTo(group, kind, s.Namespace, objectName(s))
}
