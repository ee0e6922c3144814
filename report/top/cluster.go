package top

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/podstatus"
)

// Cluster reads the counters of all nodes and NFS servers through the API server.
type Cluster struct {
	Holdfast   holdfast.Interface
	Kubernetes kubernetes.Interface
	Namespace  string // of Holdfast: what runs elsewhere under its labels is not asked
	// Chosen says of which volumes something is to be known.
	Chosen func(claim *v1beta1.NamespacedReference, node, pool string) bool

	nodes map[string]bool // of the volumes that are chosen; nil before the first time
}

var _ Source = (*Cluster)(nil)

// abreast is how many pods are asked at the same time.
const abreast = 64

// Uncounted is why a volume of a directory has no counters.
const Uncounted = "the kernel counts for block devices, and a volume of the engine Directory has none of its own"

// UncountedCeph is why a volume of a Ceph pool has no counters.
const UncountedCeph = "nodes count what goes to their own pools, and this volume is in a Ceph cluster: see rbd perf image iotop, or ceph fs top"

// Sample asks the pods that have volumes which are chosen.
func (c *Cluster) Sample(ctx context.Context) (*Sample, error) {
	pods, silent, err := c.pods(ctx)
	if err != nil {
		return nil, err
	}
	s := &Sample{At: map[string]time.Time{}, Counted: map[Key]Counters{}, Silent: silent}
	var (
		mu        sync.Mutex
		group     errgroup.Group
		forbidden *forbiddenError
	)
	group.SetLimit(abreast)
	for _, p := range pods {
		group.Go(func() error {
			counted, err := c.scrape(ctx, p)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errors.As(err, &forbidden)
				s.Silent = append(s.Silent, Silent{p.node, err.Error()})
				return nil
			}
			s.At[p.node] = time.Now()
			for volume, counters := range counted { // under the node that answers: it can say nothing of the volumes of others
				s.Counted[Key{p.node, volume}] = counters
			}
			return nil
		})
	}
	_ = group.Wait() // no part returns an error
	if forbidden != nil && len(s.At) == 0 {
		return nil, forbidden
	}
	slices.SortFunc(s.Silent, func(a, b Silent) int { return strings.Compare(a.Node, b.Node) })
	return s, ctx.Err()
}

// pods of nodes and NFS servers. One that does not run is silent.
func (c *Cluster) pods(ctx context.Context) (all []pod, silent []Silent, err error) {
	nodes, err := c.Holdfast.HoldfastV1beta1().StorageNodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("the StorageNodes could not be listed (is Holdfast installed here?): %w", err)
	}
	running := map[string]string{} // pods by their node
	selector := fmt.Sprintf("%s=%s,%s=%s", v1beta1.NameLabel, v1beta1.AppName, v1beta1.ComponentLabel, v1beta1.NodeComponent)
	pods, err := c.Kubernetes.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, nil, fmt.Errorf("the pods in namespace %s could not be listed: %w", c.Namespace, err)
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Status.Phase == core.PodRunning && p.DeletionTimestamp == nil {
			running[p.Spec.NodeName] = p.Name
		}
	}
	for i := range nodes.Items {
		name := nodes.Items[i].Name
		if c.nodes != nil && !c.nodes[name] {
			continue
		}
		namespace, server, isServer := v1beta1.ParseNFSNode(name)
		switch {
		case v1beta1.CephPoolOf(name) != "": // its volumes are used by nodes
		case isServer:
			all = append(all, pod{name, namespace, "nfs-" + server + "-0"})
		case running[name] != "":
			all = append(all, pod{name, c.Namespace, running[name]})
		default:
			silent = append(silent, Silent{name, fmt.Sprintf("no pod of it runs in namespace %s", c.Namespace)})
		}
	}
	return all, silent, nil
}

// Volumes are those that are chosen, with the claims that have them and the pods of those.
func (c *Cluster) Volumes(ctx context.Context) ([]Volume, error) {
	directories, err := c.directories(ctx)
	if err != nil {
		return nil, err
	}
	claims, err := c.claims(ctx)
	if err != nil {
		return nil, err
	}
	volumes := []Volume{}
	err = kube.Each(ctx, c.Holdfast.HoldfastV1beta1().Volumes().List, metav1.ListOptions{}, func(v *v1beta1.Volume) {
		claim := v.Spec.ClaimRef
		if bound := claims[v.Name]; bound != nil {
			claim = bound
		}
		if !c.Chosen(claim, v.Spec.Node, v.PoolName()) {
			return
		}
		one := Volume{Name: v.Name, ClaimRef: claim, Node: v.Spec.Node, Pool: v.PoolName()}
		switch {
		case v1beta1.CephPoolOf(one.Node) != "":
			one.Uncounted = UncountedCeph
		case directories[[2]string{one.Node, one.Pool}]:
			one.Uncounted = Uncounted
		}
		volumes = append(volumes, one)
	})
	if err != nil {
		return nil, fmt.Errorf("the Volumes could not be listed (is Holdfast installed here?): %w", err)
	}
	if err := c.addPods(ctx, volumes); err != nil {
		return nil, err
	}
	c.nodes = map[string]bool{}
	for i := range volumes {
		c.nodes[volumes[i].Node] = true
	}
	return volumes, nil
}

// directories are the pools, as node and name, whose volumes are no devices.
func (c *Cluster) directories(ctx context.Context) (map[[2]string]bool, error) {
	nodes, err := c.Holdfast.HoldfastV1beta1().StorageNodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("the StorageNodes could not be listed (is Holdfast installed here?): %w", err)
	}
	all := map[[2]string]bool{}
	for i := range nodes.Items {
		for _, p := range nodes.Items[i].Status.Pools {
			all[[2]string{nodes.Items[i].Name, p.Name}] = p.Engine == v1beta1.EngineDirectory
		}
	}
	return all, nil
}

// claims are those that are bound, by volume. A volume may have another one than it was made for.
func (c *Cluster) claims(ctx context.Context) (map[string]*v1beta1.NamespacedReference, error) {
	all := map[string]*v1beta1.NamespacedReference{}
	err := kube.Each(ctx, c.Kubernetes.CoreV1().PersistentVolumes().List, metav1.ListOptions{}, func(pv *core.PersistentVolume) {
		volume, claim := volumeOf(pv), pv.Spec.ClaimRef
		if volume != "" && claim != nil && pv.Status.Phase == core.VolumeBound {
			all[volume] = &v1beta1.NamespacedReference{Namespace: claim.Namespace, Name: claim.Name}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("the PersistentVolumes could not be listed: %w", err)
	}
	return all, nil
}

// volumeOf returns the ID of the volume of a PersistentVolume, empty if that is not of Holdfast.
func volumeOf(pv *core.PersistentVolume) string {
	switch csi := pv.Spec.CSI; {
	case csi != nil && csi.Driver == v1beta1.DriverName:
		return csi.VolumeHandle
	case pv.Spec.NFS != nil && pv.Annotations[v1beta1.ProvisionedByAnnotation] == v1beta1.ProvisionerName:
		return pv.Annotations[v1beta1.NFSVolumeAnnotation]
	}
	return ""
}

// addPods looks only into the namespaces of claims.
func (c *Cluster) addPods(ctx context.Context, volumes []Volume) error {
	users := map[string][]v1beta1.NamespacedReference{} // by claim
	looked := map[string]bool{}
	for i := range volumes {
		claim := volumes[i].ClaimRef
		if claim == nil || looked[claim.Namespace] {
			continue
		}
		looked[claim.Namespace] = true
		err := kube.Each(ctx, c.Kubernetes.CoreV1().Pods(claim.Namespace).List, metav1.ListOptions{}, func(p *core.Pod) {
			if podstatus.HasEnded(p) || p.Spec.NodeName == "" {
				return
			}
			for _, name := range podstatus.Claims(p) {
				users[p.Namespace+"/"+name] = append(users[p.Namespace+"/"+name], v1beta1.NamespacedReference{Namespace: p.Namespace, Name: p.Name})
			}
		})
		if err != nil {
			return fmt.Errorf("the pods in namespace %s could not be listed: %w", claim.Namespace, err)
		}
	}
	for i := range volumes {
		v := &volumes[i]
		if v.PodRefs = users[v.ClaimRef.String()]; len(v.PodRefs) == 0 {
			v.Uncounted = "" // and so not in use, where nothing else shows that
		}
	}
	return nil
}
