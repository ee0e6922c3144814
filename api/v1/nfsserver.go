package v1

import (
	"cmp"
	"net"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NFSServer serves volumes that many pods on many nodes write at once, from storage of its own: a pod, and a Service
// whose address stays. What the server makes on its storage are Volumes of the node that NodeName returns. With
// spec.publish it makes none, and shows the files of one claim that exists.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=hfnfs,categories=holdfast
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Status,type=string,JSONPath=.status.phase
// +kubebuilder:printcolumn:name=Capacity,type=string,JSONPath=.status.columns.capacity
// +kubebuilder:printcolumn:name=Target,type=string,JSONPath=.status.endpoint
// +kubebuilder:printcolumn:name=Access,type=string,JSONPath=.status.accessModes
// +kubebuilder:printcolumn:name=StorageClass,type=string,JSONPath=.status.storageClassName
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=.metadata.creationTimestamp
// +kubebuilder:printcolumn:name=Promised,type=string,priority=1,JSONPath=.status.columns.promised
// +kubebuilder:printcolumn:name=Exports,type=integer,priority=1,JSONPath=.status.exports
// +kubebuilder:printcolumn:name=Clients,type=integer,priority=1,JSONPath=.status.clients
// +kubebuilder:printcolumn:name=Node,type=string,priority=1,JSONPath=.status.node
// +kubebuilder:printcolumn:name=Message,type=string,priority=1,JSONPath=.status.conditions[?(@.type=="Available")].message
// +kubebuilder:validation:XValidation:rule=`size(self.metadata.name) <= 48 && !self.metadata.name.contains('.')`,message="metadata.name: at most 48 characters are allowed, and no dot, since its pod, its service and its place among the nodes are named after it"
type NFSServer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NFSServerSpec   `json:"spec"`
	Status NFSServerStatus `json:"status,omitzero"`

	// DecodeError is for Unreadable. It is no field of the object.
	DecodeError string `json:"-"`
}

// NFSServerSpec is what serves, and from where. What changes here reaches the pod, which is then made anew; clients wait
// meanwhile and go on.
//
// +kubebuilder:validation:XValidation:rule=`has(self.storage) != has(self.publish)`,message="give storage, or with publish a claim that exists"
// +kubebuilder:validation:XValidation:rule=`has(self.storage) == has(oldSelf.storage)`,message="a server with storage cannot become one that publishes a claim, nor the other way; make another server"
// +kubebuilder:validation:XValidation:rule=`!has(self.storage) || !has(self.storage.hostPath) || self.storage.hostPath == "" || has(self.nodeSelectorTerms) && size(self.nodeSelectorTerms) > 0`,fieldPath=.nodeSelectorTerms,message="a directory of a node needs the terms that choose the node"
// +kubebuilder:validation:XValidation:rule=`(has(self.engine) && self.engine != "" ? self.engine : "image") == (has(oldSelf.engine) && oldSelf.engine != "" ? oldSelf.engine : "image")`,fieldPath=.engine,message="cannot be changed; make another server"
// +kubebuilder:validation:XValidation:rule=`(has(self.service) && has(self.service.clusterIP) ? self.service.clusterIP : "") == (has(oldSelf.service) && has(oldSelf.service.clusterIP) ? oldSelf.service.clusterIP : "")`,fieldPath=.service.clusterIP,message="cannot be changed, since volumes name it; make another server"
// +kubebuilder:validation:XValidation:rule=`!has(self.maxExports) || self.maxExports <= 4096 || has(self.publish) || has(self.engine) && self.engine == "directory"`,fieldPath=.maxExports,message="at most 4096 with the engine image, for which a node has no more loop devices; make more servers"
// +kubebuilder:validation:XValidation:rule=`!has(self.publish) || !has(self.exports) || !has(self.exports.access) || self.exports.access in ["", "ReadOnly", "None"]`,fieldPath=.exports.access,message="what is published is read only"
type NFSServerSpec struct {
	// Storage holds the volumes, and what the server must remember.
	// +optional
	Storage *NFSStorage `json:"storage,omitempty"`
	// Publish shows the files of one claim that exists to all clients, read only. There are no volumes then.
	// +optional
	Publish *NFSPublication `json:"publish,omitempty"`
	// Engine makes the volumes: image gives each a file system of its own, whose size nobody gets around; directory needs
	// storage with project quotas or subvolumes. Empty means image.
	// +optional
	// +kubebuilder:validation:Enum="";image;directory
	Engine string `json:"engine,omitempty"`
	// Exports is what holds for volumes that do not say otherwise.
	// +optional
	Exports NFSExports `json:"exports,omitzero"`
	// +optional
	Service NFSService `json:"service,omitzero"`
	// MaxExports is how many volumes the server takes. With the engine image, for each 256 of them its pod asks for a set
	// of loop devices of its node (holdfast.dev/loop-set, unless resources.limits have it): a node has 8 sets by default
	// and 16 at most, so that 4096 are the most, and 0 means 256. With the engine directory 0 means as many as NFS can
	// number, which is 65535.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	MaxExports int32 `json:"maxExports,omitempty"`
	// GracePeriod is how long the server waits after a start for clients to take their locks back, 1s to 180s in whole
	// seconds; 90s if left out. Nobody gets a new lock meanwhile.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([0-9]{1,4}s|[0-9]m([0-9]{1,2}s)?)$') && duration(self) >= duration('1s') && duration(self) <= duration('180s')`,message="it must be 1s to 180s, in whole seconds, such as 90s or 1m30s"
	GracePeriod *Duration `json:"gracePeriod,omitempty"`
	// Resources of the server's container.
	// +optional
	Resources core.ResourceRequirements `json:"resources,omitzero"`
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Tolerations []core.Toleration `json:"tolerations,omitempty"`
	// NodeSelectorTerms choose the nodes that may run the server: one that a term matches. None chooses all nodes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	NodeSelectorTerms []core.NodeSelectorTerm `json:"nodeSelectorTerms,omitempty"`
	// MountOptions such as nconnect=4, of PersistentVolumes of the provisioner nfs.holdfast.dev whose class has none.
	// Beside them stand nfsvers=4.2, hard and noresvport, unless they say otherwise. Volumes of the CSI driver have
	// those of their class alone.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=255
	// +kubebuilder:validation:items:Pattern=`^[^\s,]+$`
	// +kubebuilder:validation:items:XValidation:rule=`!self.matches('^(vers=|nfsvers=|v[0-9])') && !self.matches('^(minorversion=0|(proto=)?(udp|rdma)6?|sec=(krb5.*|none))$') || self.matches('^(vers=|nfsvers=|v)4([.][12])?$')`,message="the server speaks NFS 4.1 and 4.2 only, over TCP and with sec=sys"
	MountOptions []string `json:"mountOptions,omitempty"`
	// ReclaimPolicy says what becomes of the claim that was made from storage when the server is deleted. Empty means
	// Retain. A claim that was there before always stays.
	// +optional
	// +kubebuilder:validation:Enum="";Delete;Retain
	ReclaimPolicy core.PersistentVolumeReclaimPolicy `json:"reclaimPolicy,omitempty"`
}

// NFSStorage is one of three: a claim that is made, with size and perhaps a class; a claim that exists; a directory of a
// node.
//
// +kubebuilder:validation:XValidation:rule=`[has(self.size), has(self.claimName) && self.claimName != "", has(self.hostPath) && self.hostPath != ""].filter(given, given).size() == 1`,message="give one of size, claimName and hostPath"
// +kubebuilder:validation:XValidation:rule=`has(self.size) || !has(self.storageClassName)`,fieldPath=.storageClassName,message="a class belongs to a size"
// +kubebuilder:validation:XValidation:rule=`has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)`,fieldPath=.storageClassName,message="cannot be changed; make another server"
// +kubebuilder:validation:XValidation:rule=`has(self.size) == has(oldSelf.size) && (!has(self.size) || !isQuantity(string(self.size)) || !isQuantity(string(oldSelf.size)) || quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0)`,fieldPath=.size,message="it may only grow"
// +kubebuilder:validation:XValidation:rule=`(has(self.claimName) ? self.claimName : "") == (has(oldSelf.claimName) ? oldSelf.claimName : "")`,fieldPath=.claimName,message="cannot be changed; make another server"
// +kubebuilder:validation:XValidation:rule=`(has(self.hostPath) ? self.hostPath : "") == (has(oldSelf.hostPath) ? oldSelf.hostPath : "")`,fieldPath=.hostPath,message="cannot be changed; make another server"
type NFSStorage struct {
	// StorageClassName of the claim that is made; if left out, the cluster's default.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')`,message="it must be a name of lowercase letters, digits, - and ., such as holdfast"
	StorageClassName *string `json:"storageClassName,omitempty"`
	// Size of the claim that is made. When it grows, the claim does.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('1Mi')) >= 0 && quantity(string(self)).compareTo(quantity('9223372036854775807')) <= 0`,message="it must be 1Mi to 9223372036854775807 bytes, such as 100Gi"
	Size *resource.Quantity `json:"size,omitempty"`
	// ClaimName is a claim of this namespace. No other server may use it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$')`,message="it must be a name of lowercase letters, digits, - and ., such as photos"
	ClaimName string `json:"claimName,omitempty"`
	// HostPath is a directory of the node that spec.nodeSelectorTerms choose. The server stays on the node where it has
	// begun, as long as they choose that.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^(/[A-Za-z0-9._-]+)*$`
	// +kubebuilder:validation:XValidation:rule=`!self.split('/').exists(s, s == '.' || s == '..')`,message="write the directory without . and .."
	HostPath string `json:"hostPath,omitempty"`
}

// NFSPublication is one claim and the name under which clients find its files.
//
// +kubebuilder:validation:XValidation:rule=`self.claimName == oldSelf.claimName`,fieldPath=.claimName,message="cannot be changed; make another server"
type NFSPublication struct {
	// ClaimName is a claim of this namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')`,message="it must be a name of lowercase letters, digits, - and ., such as photos"
	ClaimName string `json:"claimName"`
	// Name is what clients mount, after a slash; that of the claim if empty.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9][A-Za-z0-9._-]*)?$`
	Name string `json:"name,omitempty"`
}

// NFSAccess says what clients may do.
// +kubebuilder:validation:Enum="";ReadWrite;ReadOnly;None
type NFSAccess string

const (
	NFSReadWrite NFSAccess = "ReadWrite"
	NFSReadOnly  NFSAccess = "ReadOnly"
	// NFSNone shuts all exports. Nothing of them is lost.
	NFSNone NFSAccess = "None"
)

// NFSExports is what clients may do with a volume, and who they are to it.
type NFSExports struct {
	// Squash says whose identity is replaced by the anonymous one: nobody's, that of root, or everybody's. Empty means
	// nobody's: pods own what they write.
	// +optional
	// +kubebuilder:validation:Enum="";no_root_squash;root_squash;all_squash
	Squash string `json:"squash,omitempty"`
	// AnonUID is the anonymous user; 65534 if left out.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967294
	AnonUID *int64 `json:"anonUID,omitempty"`
	// AnonGID is the anonymous group; 65534 if left out.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967294
	AnonGID *int64 `json:"anonGID,omitempty"`
	// Access is ReadWrite if empty; of what is published, ReadOnly.
	// +optional
	Access NFSAccess `json:"access,omitempty"`
	// Clients are addresses and networks such as 10.0.0.0/8 that may mount, in place of the nodes. None lets the nodes
	// mount, whose addresses are kept current, and that is what volumes need: pods use what their node has mounted. Whoever
	// has one of the addresses that are named here, a pod in one of the networks included, reads and writes every volume
	// of the server as any user, without asking Kubernetes: 0.0.0.0/0 and ::/0 open the server to everybody who reaches
	// it. The prefix of a network of IPv6 has at most 99 bits.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule=`isIP(self) || isCIDR(self) && (cidr(self).prefixLength() <= 99 || cidr(self).prefixLength() == 128)`,message="it must be an address such as 10.0.0.7 or a network such as 10.0.0.0/8; networks of IPv6 may have prefixes of up to 99 bits"
	Clients []string `json:"clients,omitempty"`
}

// NFSService is the Service of the server. It has one port, 2049.
type NFSService struct {
	// Type is ClusterIP if empty. With NodePort and LoadBalancer, who comes from outside the cluster, or as a pod over
	// such a port, comes with the address of a node in most networks, and then may mount whatever exports.clients says.
	// +optional
	// +kubebuilder:validation:Enum="";ClusterIP;NodePort;LoadBalancer
	Type core.ServiceType `json:"type,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`
	// ClusterIP is the address that the Service must have; any if empty. Either way it stays.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self == "" || isIP(self)`,message="it must be an address"
	ClusterIP string `json:"clusterIP,omitempty"`
}

// NFSPhase is where an NFSServer stands, for people; programs read the conditions.
// +kubebuilder:validation:Enum=Pending;Running;Degraded;Terminating
type NFSPhase string

const (
	// NFSPending: it has not served yet.
	NFSPending NFSPhase = "Pending"
	// NFSRunning: it serves.
	NFSRunning NFSPhase = "Running"
	// NFSDegraded: it has served and does not, or it serves and is not what is asked for.
	NFSDegraded NFSPhase = "Degraded"
	// NFSTerminating: it is being removed, or waits for the last volume.
	NFSTerminating NFSPhase = "Terminating"
)

// NFSServerStatus is what there is.
type NFSServerStatus struct {
	// +optional
	Phase NFSPhase `json:"phase,omitempty"`
	// Endpoint is the address of the Service with the port.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`
	// AllowedClients may mount where spec.exports.clients names nobody: the addresses of the nodes.
	// +optional
	// +listType=atomic
	AllowedClients []string `json:"allowedClients,omitempty"`
	// Path is what clients mount, where one claim is published.
	// +optional
	Path string `json:"path,omitempty"`
	// AccessModes is RW, RO or None: what clients may do unless a volume says otherwise.
	// +optional
	AccessModes string `json:"accessModes,omitempty"`
	// Claim that holds what is served.
	// +optional
	Claim string `json:"claim,omitempty"`
	// StorageClassName of the claim.
	// +optional
	StorageClassName string `json:"storageClassName,omitempty"`
	// Node that runs the server.
	// +optional
	Node string `json:"node,omitempty"`
	// Capacity of the storage.
	// +optional
	Capacity *resource.Quantity `json:"capacity,omitempty"`
	// Promised to volumes and their snapshots.
	// +optional
	Promised *resource.Quantity `json:"promised,omitempty"`
	// Exports that there are: one for each volume that is made, or the one of what is published.
	// +optional
	Exports int32 `json:"exports"`
	// Clients that have a session. The server writes it.
	// +optional
	Clients int32 `json:"clients"`
	// Conditions are Available, Progressing and Degraded.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Columns repeats numbers the way people read them.
	// +optional
	Columns NFSServerColumns `json:"columns,omitzero"`
}

// NFSServerColumns is what kubectl prints; SetColumns makes it from the numbers beside it.
type NFSServerColumns struct {
	// +optional
	Capacity string `json:"capacity,omitempty"`
	// +optional
	Promised string `json:"promised,omitempty"`
}

// NFSServerList is a list of servers.
//
// +kubebuilder:object:root=true
type NFSServerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NFSServer `json:"items"`
}

// NFSPort is the only one that a server has for clients.
const NFSPort = 2049

// NFSServerAnnotation is on the PersistentVolumes of the external provisioner: NAMESPACE/NAME of the server that has it.
const NFSServerAnnotation = "nfs.holdfast.dev/server"

// The other annotations of these PersistentVolumes.
const (
	// NFSStoreAnnotation is the identity of the server's data, which is another if the data was lost and begun anew.
	NFSStoreAnnotation = "nfs.holdfast.dev/store"
	// NFSVolumeAnnotation is the ID of the volume on the server.
	NFSVolumeAnnotation = "nfs.holdfast.dev/volume"
	// OnDeleteAnnotation shows what becomes of the data; what counts is the volume's label.
	OnDeleteAnnotation = "nfs.holdfast.dev/on-delete"
	// GIDAnnotation tells the kubelet which group to give to the pods that use the volume.
	GIDAnnotation = "pv.beta.kubernetes.io/gid"
	// ProvisionedByAnnotation names the provisioner.
	ProvisionedByAnnotation = "pv.kubernetes.io/provisioned-by"
)

// The labels, in spec.labels of their Volumes.
const (
	// NFSServerLabel names the server that made the volume, as NAMESPACE/NAME.
	NFSServerLabel = NFSServerAnnotation
	// OnDeleteLabel is what becomes of the data.
	OnDeleteLabel = OnDeleteAnnotation
	// GIDLabel is the group that the volume's root directory is given to.
	GIDLabel = "export.holdfast.dev/gid"
)

// nfsNodeSuffix ends the name by which a server is a node: NAMESPACE.NAME before it. It is in the domain of this
// project, so that no machine of a user has such a name.
const nfsNodeSuffix = ".nfs.holdfast.dev"

// NodeName is the spec.node of the Volumes on a server, and the name of its StorageNode.
func (o *NFSServer) NodeName() string { return NodeOfServer(o.Namespace + "/" + o.Name) }

// NodeOfServer is the node that the server NAMESPACE/NAME is.
func NodeOfServer(server string) string {
	namespace, name, _ := strings.Cut(server, "/")
	return namespace + "." + name + nfsNodeSuffix
}

// ServerOf returns NAMESPACE/NAME of the server that a node is, empty if it is none.
func ServerOf(node string) string {
	namespace, name, is := ParseNFSNode(node)
	if !is {
		return ""
	}
	return namespace + "/" + name
}

// ParseNFSNode says which server a node is, if it is one.
func ParseNFSNode(node string) (namespace, name string, is bool) {
	rest, is := strings.CutSuffix(node, nfsNodeSuffix)
	if !is {
		return "", "", false
	}
	namespace, name, is = strings.Cut(rest, ".")
	if !is || namespace == "" || name == "" || strings.Contains(name, ".") {
		return "", "", false
	}
	return namespace, name, true
}

// Address is that of the Service without the port; empty as long as there is none.
func (s *NFSServerStatus) Address() string {
	host, _, err := net.SplitHostPort(s.Endpoint)
	if err != nil {
		return ""
	}
	return host
}

// Access is what clients may do unless a volume says otherwise.
func (s *NFSServerSpec) Access() NFSAccess {
	if s.Publish != nil {
		return cmp.Or(s.Exports.Access, NFSReadOnly)
	}
	return cmp.Or(s.Exports.Access, NFSReadWrite)
}

// SetColumns is called before a status is written.
func (s *NFSServerStatus) SetColumns() {
	s.Columns = NFSServerColumns{Capacity: Readable(s.Capacity), Promised: Readable(s.Promised)}
}
