package v1beta1

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FencingSpec says what happens when a node is lost on which pods use volumes in Ceph clusters: its clients are shut out of
// the clusters, and then its pods are deleted, so that they start on another node.
//
// A node is lost when its Node has the taint node.kubernetes.io/out-of-service or was deleted, which is the word of an
// administrator, and where after is set, also when it is not ready and its agent has been silent for that long. The word is trusted by default:
// Kubernetes itself deletes the pods then, so nothing is added but that the node cannot write any more. Silence may also be
// that of a network, in which the node's pods go on and serve others, and only the users of an application know whether two
// of its pods may run at once for a while, so they must request it.
//
// +kubebuilder:validation:XValidation:rule=`!has(self.after) || has(self.pods) && self.pods in ['WithCephVolumes', 'None'] || has(self.namespaces) && size(self.namespaces) > 0`,fieldPath=.namespaces,message="with after, and pods Labelled or left out, name the namespaces whose pods may have a silent node shut out: all pods on that node lose their volumes in Ceph clusters then"
type FencingSpec struct {
	// pods to delete by force when their node is shut out. Labelled, if empty, are those with the label
	// holdfast.dev/fenced: "true"; WithCephVolumes are all that use a volume in a Ceph cluster. None disables fencing: a
	// volume is then detached from a lost node when Kubernetes says so, also while that node may still write.
	// +optional
	Pods FencedPods `json:"pods,omitempty"`
	// after is how long the agent of a node must have been silent until the node is lost, if it is not ready and has such a pod; at least
	// 1m, such as 5m. If left out, silence is not enough. Where more than half of the nodes are silent, none is lost by that.
	// +optional
	After *Duration `json:"after,omitempty"`
	// namespaces whose pods have their node shut out by its silence, where pods is Labelled: all that uses volumes in Ceph
	// clusters on that node loses them then, pods of other namespaces too, so the label alone is not enough. Name those of
	// NFSServers as well, whose pods have the label.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule=`self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')`,message="it must be the name of a namespace: lowercase letters, digits and -, such as team-a"
	Namespaces []string `json:"namespaces,omitempty"`
}

// FencedPods says which pods are deleted by force when their node is shut out of the Ceph clusters.
// +kubebuilder:validation:Enum="";Labelled;WithCephVolumes;None
type FencedPods string

const (
	// FenceLabelled are the pods with FencedLabel.
	FenceLabelled FencedPods = "Labelled"
	// FenceWithCephVolumes are all pods that use a volume in a Ceph cluster.
	FenceWithCephVolumes FencedPods = "WithCephVolumes"
	// FenceNone shuts out no node.
	FenceNone FencedPods = "None"
)

// FencedLabel, with the value "true", is on the pods that FenceLabelled chooses.
const FencedLabel = "holdfast.dev/fenced"

// ShortestFencing is the least that FencingSpec.After may be: a Lease lasts 40 seconds.
const ShortestFencing = time.Minute

// Chooses says whether a pod that uses a volume in a Ceph cluster, and has these labels, is deleted with its node.
func (f FencingSpec) Chooses(labels map[string]string) bool {
	switch f.Pods {
	case FenceNone:
		return false
	case FenceWithCephVolumes:
		return true
	}
	return labels[FencedLabel] == "true"
}

// Heeds says whether a node that is silent is shut out for a pod of a namespace, if Chooses has chosen that pod.
func (f FencingSpec) Heeds(namespace string) bool {
	return f.Pods == FenceWithCephVolumes || slices.Contains(f.Namespaces, namespace)
}

// Fence shuts a node out of all Ceph clusters. Its agent stages no volume of them while it is there.
//
// +kubebuilder:validation:XValidation:rule=`self.requestedAt > timestamp('1970-01-01T00:00:00Z')`,fieldPath=.requestedAt,message="it must be a time such as 2026-11-24T03:00:00.000000Z"
// +kubebuilder:validation:XValidation:rule=`!has(self.shutOutAt) || self.shutOutAt > timestamp('1970-01-01T00:00:00Z')`,fieldPath=.shutOutAt,message="it must be a time such as 2026-11-24T03:00:00.000000Z"
type Fence struct {
	// reason is NodeGone or NodeDown.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// requestedAt is when the controller decided so, such as 2026-11-24T03:00:00.000000Z.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9][.][0-9]{6}(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	RequestedAt metav1.MicroTime `json:"requestedAt"`
	// shutOutAt is when all pools had confirmed for the first time that the clients of the node are shut out, and its volumes
	// could go to other nodes. From then on it is let in again only without these clients.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9][.][0-9]{6}(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	ShutOutAt *metav1.MicroTime `json:"shutOutAt,omitempty"`
}

// BlocklistRequest requests that the clients of one node are shut out of the Ceph cluster of a pool.
//
// +kubebuilder:validation:XValidation:rule=`self.requestedAt > timestamp('1970-01-01T00:00:00Z')`,fieldPath=.requestedAt,message="it must be a time such as 2026-11-24T03:00:00.000000Z"
type BlocklistRequest struct {
	// node whose clients they are.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`
	// addresses of the clients.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Addresses []CephAddress `json:"addresses,omitempty"`
	// bootID of the node when the clients were recorded: none of them outlives it.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BootID string `json:"bootID,omitempty"`
	// requestedAt is when, such as 2026-11-24T03:00:00.000000Z.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9][.][0-9]{6}(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	RequestedAt metav1.MicroTime `json:"requestedAt"`
	// expire ends the request, and lets none of the clients in: the entries in the blocklist of the cluster are not renewed,
	// and last for two more weeks at least. The agent removes its report on them, and the controller then the request.
	// +optional
	Expire bool `json:"expire,omitempty"`
}

// BlocklistEntry is what a Ceph cluster has confirmed of an entry in spec.blocklist.
type BlocklistEntry struct {
	// node whose clients they are.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`
	// addresses that the blocklist of the cluster has, as it was read after they were written.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	Addresses []CephAddress `json:"addresses,omitempty"`
	// unconfirmed addresses may be in the blocklist too. They are written here before that is tried, so that they are let in
	// again as well.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	Unconfirmed []CephAddress `json:"unconfirmed,omitempty"`
	// requestedAt is that of the request that this answers.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9][.][0-9]{6}(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`
	RequestedAt *metav1.MicroTime `json:"requestedAt,omitempty"`
	// message says why others are not there.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`
}

// CephAddress is that of one client of a Ceph cluster: an IP, 0 for the port, which clients do not listen on, and a number
// by which it differs from all other clients there. That number is never 0, which would stand for all clients of the IP.
// +kubebuilder:validation:MaxLength=80
// +kubebuilder:validation:Pattern=`^([0-9]{1,3}([.][0-9]{1,3}){3}|[[][0-9a-fA-F:.]+[]]):0/[1-9][0-9]{0,9}$`
type CephAddress string

// CephClient is a client of a node's kernel in a Ceph cluster. One client may serve many volumes.
type CephClient struct {
	// fsid of the cluster.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=36
	FSID string `json:"fsid"`
	// id by which the cluster knows the client, such as client.4711.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`
	// address by which the cluster can shut the client out. It is empty if the kernel does not show it.
	// +optional
	Address CephAddress `json:"address,omitempty"`
	// bootID of the node: the client ends with it.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BootID string `json:"bootID,omitempty"`
}

// Is says whether two are the same client of the same kernel.
func (c CephClient) Is(other CephClient) bool {
	return c.FSID == other.FSID && c.ID == other.ID && c.BootID == other.BootID
}

// IsShutOut says whether all pools have confirmed that the node is shut out, and still do.
func (o *StorageNode) IsShutOut() bool {
	return meta.IsStatusConditionTrue(o.Status.Conditions, FencedCondition)
}

// WasShutOut says whether other nodes may use the volumes of this one, since all pools had confirmed that it is shut out.
func (o *StorageNode) WasShutOut() bool {
	return o.Spec.Fence != nil && (o.Spec.Fence.ShutOutAt != nil || o.IsShutOut())
}

// MostTrash is the most deleted volumes that the status of a StorageNode lists.
const MostTrash = 100

// MostBlocklisted is the most nodes of which a pool may list clients.
const MostBlocklisted = 1024

// BlocklistOf is what is requested for a node, or nil.
func (s *StorageNodeSpec) BlocklistOf(node string) *BlocklistRequest {
	return Find(s.Blocklist, func(r BlocklistRequest) bool { return r.Node == node })
}

// BlocklistOf is what is confirmed of a node, or nil.
func (s *StorageNodeStatus) BlocklistOf(node string) *BlocklistEntry {
	return Find(s.Blocklist, func(e BlocklistEntry) bool { return e.Node == node })
}
