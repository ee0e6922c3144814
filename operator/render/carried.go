package render

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// Carried is the part of a spec that was applied on the nodes.
type Carried struct {
	Pools             []v1beta1.PoolSpec
	NodeSelectorTerms []core.NodeSelectorTerm
}

// ReadCarried reads it from the ConfigMap and the DaemonSet of the nodes. It is nil if one of them is missing, or if a
// user has changed one so that they do not match.
func ReadCarried(config, nodes *unstructured.Unstructured) *Carried {
	if config == nil || nodes == nil {
		return nil
	}
	text, _, _ := unstructured.NestedString(config.Object, "data", configKey)
	set := &apps.DaemonSet{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(nodes.Object, set) != nil || set.Spec.Template.Annotations[configHash] != hashOf(text) {
		return nil
	}
	var c v1beta1.NodeConfig
	if json.Unmarshal([]byte(text), &c) != nil {
		return nil
	}
	sites, known := carriedCeph(config, set)
	if !known {
		return nil
	}
	carried := &Carried{Pools: append(c.Pools, sites...)}
	if a := set.Spec.Template.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		carried.NodeSelectorTerms = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}
	return carried
}

// carriedCeph are the pools in Ceph clusters, which are under a key of their own: the pods of nodes do not depend on them.
func carriedCeph(config *unstructured.Unstructured, set *apps.DaemonSet) (pools []v1beta1.PoolSpec, known bool) {
	text, has, _ := unstructured.NestedString(config.Object, "data", cephConfigKey)
	hash := set.Annotations[cephConfigHash]
	if !has {
		return nil, hash == ""
	}
	var c v1beta1.NodeConfig
	if hash != hashOf(text) || json.Unmarshal([]byte(text), &c) != nil {
		return nil, false
	}
	return c.Pools, true
}

func hashOf(config string) string {
	sum := sha256.Sum256([]byte(config))
	return hex.EncodeToString(sum[:8])
}

// Place is the directory of a pool, or where its device is mounted, or where in a Ceph cluster it is.
func Place(p *v1beta1.PoolSpec) string {
	if p.Ceph != nil {
		return p.Ceph.Place()
	}
	if p.Path != "" {
		return p.Path
	}
	return poolDir(p.Name)
}
