package v1beta1

import (
	"cmp"
	"net"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NFSServer serves volumes that many pods on many nodes write at once, from storage of its own: a pod, and a Service
// whose address stays. The volumes on its storage are Volumes of the node NAMESPACE.NAME.nfs.holdfast.dev. With spec.publish it
// creates none, and exports the files of one existing claim.
//
// +genclient
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=hfnfs,categories=holdfast
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=.status.conditions[?(@.type=="Ready")].status
// +kubebuilder:printcolumn:name=Phase,type=string,JSONPath=.status.phase
// +kubebuilder:printcolumn:name=Capacity,type=string,JSONPath=.status.columns.capacity
// +kubebuilder:printcolumn:name=Target,type=string,JSONPath=.status.endpoint
// +kubebuilder:printcolumn:name=Access,type=string,JSONPath=.status.access
// +kubebuilder:printcolumn:name=StorageClass,type=string,JSONPath=.status.storageClassName
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=.metadata.creationTimestamp
// +kubebuilder:printcolumn:name=Promised,type=string,priority=1,JSONPath=.status.columns.promised
// +kubebuilder:printcolumn:name=Exports,type=integer,priority=1,JSONPath=.status.exports
// +kubebuilder:printcolumn:name=Clients,type=integer,priority=1,JSONPath=.status.clients
// +kubebuilder:printcolumn:name=Node,type=string,priority=1,JSONPath=.status.node
// +kubebuilder:printcolumn:name=Message,type=string,priority=1,JSONPath=.status.conditions[?(@.type=="Ready")].message
// +kubebuilder:validation:XValidation:rule=`size(self.metadata.name) <= 48 && !self.metadata.name.contains('.')`,message="metadata.name: at most 48 characters are allowed, and no dot, since its pod, its service and its place among the nodes are named after it"
type NFSServer struct {
	metav1.TypeMeta `json:",inline"`
	// metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec describes the server.
	// +required
	Spec NFSServerSpec `json:"spec"`
	// status is written by the controller; until then Ready is Unknown.
	// +optional
	// +default={"conditions": [{"type": "Ready", "status": "Unknown", "reason": "Pending", "message": "waiting for the controller", "lastTransitionTime": "1970-01-01T00:00:00Z"}]}
	Status NFSServerStatus `json:"status,omitzero"`

	Decoding `json:"-"`
}

// NFSServerSpec describes a server and its storage. A change recreates the pod; clients wait until it serves again, and
// continue.
//
// +kubebuilder:validation:XValidation:rule=`has(self.storage) != has(self.publish)`,message="give storage, or with publish a claim that exists"
// +kubebuilder:validation:XValidation:rule=`has(self.storage) == has(oldSelf.storage)`,message="a server with storage cannot become one that publishes a claim, nor the other way; make another server"
// +kubebuilder:validation:XValidation:rule=`!has(self.storage) || !has(self.storage.hostPath) || self.storage.hostPath == "" || has(self.nodeSelectorTerms) && size(self.nodeSelectorTerms) > 0`,fieldPath=.nodeSelectorTerms,message="a directory of a node needs the terms that choose the node"
// +kubebuilder:validation:XValidation:rule=`!has(self.engine) || self.engine in ["", "Image", "Directory"]`,fieldPath=.engine,message="an NFS server has its volumes on its own storage: it must be Image or Directory"
// +kubebuilder:validation:XValidation:rule=`(has(self.engine) && self.engine != "" ? self.engine : "Image") == (has(oldSelf.engine) && oldSelf.engine != "" ? oldSelf.engine : "Image")`,fieldPath=.engine,message="cannot be changed; make another server"
// +kubebuilder:validation:XValidation:rule=`(has(self.service) && has(self.service.clusterIP) ? self.service.clusterIP : "") == (has(oldSelf.service) && has(oldSelf.service.clusterIP) ? oldSelf.service.clusterIP : "")`,fieldPath=.service.clusterIP,message="cannot be changed, since volumes name it; make another server"
// +kubebuilder:validation:XValidation:rule=`(has(self.service) && has(self.service.port) ? self.service.port : 2049) == (has(oldSelf.service) && has(oldSelf.service.port) ? oldSelf.service.port : 2049)`,fieldPath=.service.port,message="cannot be changed, since volumes name it; make another server"
// +kubebuilder:validation:XValidation:rule=`!has(self.maxExports) || self.maxExports <= 4096 || has(self.publish) || has(self.engine) && self.engine == "Directory"`,fieldPath=.maxExports,message="at most 4096 with the engine Image, for which a node has no more loop devices; make more servers"
// +kubebuilder:validation:XValidation:rule=`!has(self.publish) || !has(self.exports) || !has(self.exports.access) || self.exports.access in ["", "ReadOnly", "None"]`,fieldPath=.exports.access,message="what is published is read only"
type NFSServerSpec struct {
	// storage holds the volumes and the state of the server.
	// +optional
	Storage *NFSStorage `json:"storage,omitempty"`
	// publish exports the files of one existing claim to all clients, read only. There are no volumes then.
	// +optional
	Publish *NFSPublication `json:"publish,omitempty"`
	// engine makes the volumes: Image gives each a file system of its own, whose size no client can exceed; Directory
	// needs storage with project quotas or subvolumes. Empty means Image.
	// +optional
	Engine Engine `json:"engine,omitempty"`
	// exports are the defaults for volumes that do not specify otherwise.
	// +optional
	Exports NFSExports `json:"exports,omitzero"`
	// service of the server, which is always there.
	// +optional
	Service NFSService `json:"service,omitzero"`
	// maxExports is how many volumes the server takes. With the engine Image, for each 256 of them its pod requests a
	// set of loop devices of its node (holdfast.dev/loop-set, unless resources.limits have it): a node has 8 sets by
	// default and 16 at most, so that 4096 is the maximum, and 0 means 256. With the engine Directory 0 means 65535,
	// the number of NFS export ids.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	MaxExports int32 `json:"maxExports,omitempty"`
	// gracePeriod is how long the server waits after a start for clients to reclaim their locks, 1s to 180s in whole
	// seconds; 90s if left out. New locks are not granted during this time.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([0-9]{1,4}s|[0-9]m([0-9]{1,2}s)?)$') && duration(self) >= duration('1s') && duration(self) <= duration('180s')`,message="it must be 1s to 180s, in whole seconds, such as 90s or 1m30s"
	GracePeriod *Duration `json:"gracePeriod,omitempty"`
	// resources of the server's container.
	// +optional
	Resources core.ResourceRequirements `json:"resources,omitzero"`
	// tolerations of the server's pod, added to its built-in ones.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Tolerations []core.Toleration `json:"tolerations,omitempty"`
	// nodeSelectorTerms choose the nodes that may run the server: one that a term matches. None chooses all nodes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	NodeSelectorTerms []core.NodeSelectorTerm `json:"nodeSelectorTerms,omitempty"`
	// mountOptions such as nconnect=4, of PersistentVolumes of the provisioner nfs.holdfast.dev whose class has none.
	// nfsvers=4.2, hard and noresvport are added unless these contradict them. Volumes of the CSI driver have only the
	// options of their class.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=255
	// +kubebuilder:validation:items:Pattern=`^[^\s,]+$`
	// +kubebuilder:validation:items:XValidation:rule=`!self.matches('^(vers=|nfsvers=|v[0-9])') && !self.matches('^(minorversion=0|(proto=)?(udp|rdma)6?|sec=(krb5.*|none))$') || self.matches('^(vers=|nfsvers=|v)4([.][12])?$')`,message="the server speaks NFS 4.1 and 4.2 only, over TCP and with sec=sys"
	MountOptions []string `json:"mountOptions,omitempty"`
	// reclaimPolicy says what happens to the claim that was created from storage when the server is deleted. Empty
	// means Retain. A claim that existed before always stays.
	// +optional
	// +kubebuilder:validation:Enum="";Delete;Retain
	ReclaimPolicy core.PersistentVolumeReclaimPolicy `json:"reclaimPolicy,omitempty"`
}

// NFSStorage is one of three: a claim to create, with size and optionally a class; an existing claim; a directory of a
// node.
//
// +kubebuilder:validation:XValidation:rule=`[has(self.size), has(self.claimName) && self.claimName != "", has(self.hostPath) && self.hostPath != ""].filter(given, given).size() == 1`,message="give one of size, claimName and hostPath"
// +kubebuilder:validation:XValidation:rule=`has(self.size) || !has(self.storageClassName)`,fieldPath=.storageClassName,message="a class belongs to a size"
// +kubebuilder:validation:XValidation:rule=`has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)`,fieldPath=.storageClassName,message="cannot be changed; make another server"
// +kubebuilder:validation:XValidation:rule=`has(self.size) == has(oldSelf.size) && (!has(self.size) || !isQuantity(string(self.size)) || !isQuantity(string(oldSelf.size)) || quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0)`,fieldPath=.size,message="it may only grow"
// +kubebuilder:validation:XValidation:rule=`(has(self.claimName) ? self.claimName : "") == (has(oldSelf.claimName) ? oldSelf.claimName : "")`,fieldPath=.claimName,message="cannot be changed; make another server"
// +kubebuilder:validation:XValidation:rule=`(has(self.hostPath) ? self.hostPath : "") == (has(oldSelf.hostPath) ? oldSelf.hostPath : "")`,fieldPath=.hostPath,message="cannot be changed; make another server"
type NFSStorage struct {
	// storageClassName of the claim to create; if left out, the cluster's default.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')`,message="it must be a name of lowercase letters, digits, - and ., such as holdfast"
	StorageClassName *string `json:"storageClassName,omitempty"`
	// size of the claim to create. When it grows, the claim grows.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('1Mi')) >= 0 && quantity(string(self)).compareTo(quantity('9223372036854775807')) <= 0`,message="it must be 1Mi to 9223372036854775807 bytes, such as 100Gi"
	Size *resource.Quantity `json:"size,omitempty"`
	// claimName is a claim of this namespace. No other server may use it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$')`,message="it must be a name of lowercase letters, digits, - and ., such as photos"
	ClaimName string `json:"claimName,omitempty"`
	// hostPath is a directory of the node that spec.nodeSelectorTerms choose. The server stays on the node where it was
	// first started, as long as the terms match that node.
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
	// claimName is a claim of this namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')`,message="it must be a name of lowercase letters, digits, - and ., such as photos"
	ClaimName string `json:"claimName"`
	// name is what clients mount, after a slash; that of the claim if empty.
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
	// NFSNone closes all exports. No data is lost.
	NFSNone NFSAccess = "None"
)

// NFSSquash says which users of clients are replaced by the anonymous one.
// +kubebuilder:validation:Enum="";None;Root;All
type NFSSquash string

const (
	NFSSquashNone NFSSquash = "None"
	NFSSquashRoot NFSSquash = "Root"
	NFSSquashAll  NFSSquash = "All"
)

// NFSExports says what clients may do with a volume, and with which identity.
type NFSExports struct {
	// squash says which users of clients are replaced by the anonymous one. Empty means None: pods own the files that
	// they write.
	// +optional
	Squash NFSSquash `json:"squash,omitempty"`
	// anonUID is the anonymous user; 65534 if left out.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967294
	AnonUID *int64 `json:"anonUID,omitempty"`
	// anonGID is the anonymous group; 65534 if left out.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967294
	AnonGID *int64 `json:"anonGID,omitempty"`
	// access is ReadWrite if empty; ReadOnly for a published claim.
	// +optional
	Access NFSAccess `json:"access,omitempty"`
	// clients are addresses and networks such as 10.0.0.0/8 that may mount, in place of the nodes. Without any, the
	// nodes may mount, whose addresses are kept current; volumes need no more, since nodes mount them for their pods. A
	// client with one of the addresses named here, a pod in one of the networks included, reads and writes every volume
	// of the server as any user, without a check by Kubernetes: 0.0.0.0/0 and ::/0 open the server to every client that
	// reaches it. The prefix of a network of IPv6 has at most 99 bits.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule=`isIP(self) || isCIDR(self) && (cidr(self).prefixLength() <= 99 || cidr(self).prefixLength() == 128)`,message="it must be an address such as 10.0.0.7 or a network such as 10.0.0.0/8; networks of IPv6 may have prefixes of up to 99 bits"
	Clients []string `json:"clients,omitempty"`
}

// NFSService is the Service of the server. It has one port.
type NFSService struct {
	// port is 2049 if left out. The kubelet mounts a volume of the type nfs that a pod names, without a claim, at 2049 alone: with
	// another port no such pod reaches the server. Clients outside of the cluster give it as the mount option port.
	// +optional
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	// +kubebuilder:validation:XValidation:rule=`self != 9090`,message="9090 is the port of the metrics; choose another"
	Port int32 `json:"port,omitempty"`
	// type is ClusterIP if empty. With NodePort and LoadBalancer, in most networks a client from outside the cluster,
	// or a pod that uses such a port, appears with the address of a node, and may then mount regardless of
	// exports.clients.
	// +optional
	// +kubebuilder:validation:Enum="";ClusterIP;NodePort;LoadBalancer
	Type core.ServiceType `json:"type,omitempty"`
	// annotations of the Service.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`
	// clusterIP is the address that the Service must have; any if empty. The address never changes.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self == "" || isIP(self)`,message="it must be an address"
	ClusterIP string `json:"clusterIP,omitempty"`
}

// NFSPhase is the state of an NFSServer, for people; programs read the conditions.
// +kubebuilder:validation:Enum=Pending;Running;Degraded;Terminating
type NFSPhase string

const (
	// NFSPending: it has not served yet.
	NFSPending NFSPhase = "Pending"
	// NFSRunning: it serves.
	NFSRunning NFSPhase = "Running"
	// NFSDegraded: it has served and does not now, or it serves and does not match its spec.
	NFSDegraded NFSPhase = "Degraded"
	// NFSTerminating: it is being removed, or waits for the last volume.
	NFSTerminating NFSPhase = "Terminating"
)

// NFSServerStatus is the observed state.
type NFSServerStatus struct {
	// phase sums the conditions up for people.
	// +optional
	Phase NFSPhase `json:"phase,omitempty"`
	// endpoint is the address of the Service with the port.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`
	// allowedClients may mount where spec.exports.clients is empty: the addresses of the nodes.
	// +optional
	// +listType=atomic
	AllowedClients []string `json:"allowedClients,omitempty"`
	// path is what clients mount, where one claim is published.
	// +optional
	Path string `json:"path,omitempty"`
	// access is what clients may do unless a volume says otherwise.
	// +optional
	Access NFSAccess `json:"access,omitempty"`
	// claimName is the claim that holds the served data.
	// +optional
	ClaimName string `json:"claimName,omitempty"`
	// storageClassName of the claim.
	// +optional
	StorageClassName string `json:"storageClassName,omitempty"`
	// node that runs the server.
	// +optional
	Node string `json:"node,omitempty"`
	// capacity of the storage.
	// +optional
	Capacity *resource.Quantity `json:"capacity,omitempty"`
	// promised to volumes and their snapshots.
	// +optional
	Promised *resource.Quantity `json:"promised,omitempty"`
	// exports counts the exports: one for each volume, or the one of the published claim.
	// +optional
	Exports int32 `json:"exports"`
	// snapshots counts those of its volumes.
	// +optional
	Snapshots int32 `json:"snapshots"`
	// clients that have a session. The server writes it.
	// +optional
	Clients int32 `json:"clients"`
	// conditions are Ready, Available, Progressing and Degraded.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// columns has numbers in the form in which kubectl get prints them. It is no part of the API.
	// +optional
	Columns NFSServerColumns `json:"columns,omitzero"`
}

// NFSServerColumns is what kubectl prints; SetColumns makes it from the numbers beside it.
type NFSServerColumns struct {
	// capacity of the storage.
	// +optional
	Capacity string `json:"capacity,omitempty"`
	// promised to volumes and their snapshots.
	// +optional
	Promised string `json:"promised,omitempty"`
}

// NFSServerList is a list of servers.
//
// +kubebuilder:object:root=true
type NFSServerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items of the list.
	Items []NFSServer `json:"items"`
}

// NFSPort is the port for clients of a server whose spec names none.
const NFSPort = 2049

// NFSServerAttribute is the volume attribute with the address of the server that has a shared volume, as package driver
// writes it.
const NFSServerAttribute = "holdfast.dev/nfs-server"

// PopulatesAttribute is the volume attribute, with any value, of a PersistentVolume by which a pod brings the content of a volume, as
// package driver reads it.
const PopulatesAttribute = "holdfast.dev/populates"

// NFSServerAnnotation is on the PersistentVolumes of the external provisioner: NAMESPACE/NAME of the server that has it.
const NFSServerAnnotation = "nfs.holdfast.dev/server"

// The other annotations of these PersistentVolumes.
const (
	// NFSStoreAnnotation is the identity of the server's data. It changes if the data was lost and the server started
	// empty.
	NFSStoreAnnotation = "nfs.holdfast.dev/store"
	// NFSVolumeAnnotation is the ID of the volume on the server.
	NFSVolumeAnnotation = "nfs.holdfast.dev/volume"
	// OnDeleteAnnotation shows what happens to the data on deletion; the volume's label decides it.
	OnDeleteAnnotation = "nfs.holdfast.dev/on-delete"
	// GIDAnnotation is the supplemental group that the kubelet gives to the pods that use the volume.
	GIDAnnotation = "pv.beta.kubernetes.io/gid"
	// ProvisionedByAnnotation names the provisioner.
	ProvisionedByAnnotation = "pv.kubernetes.io/provisioned-by"
)

// The labels, in spec.labels of their Volumes.
const (
	// NFSServerLabel names the server that made the volume, as NAMESPACE/NAME.
	NFSServerLabel = NFSServerAnnotation
	// OnDeleteLabel says what happens to the data on deletion.
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

// Port is the one that the server has for clients.
func (s *NFSServerSpec) Port() int32 { return cmp.Or(s.Service.Port, NFSPort) }

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
