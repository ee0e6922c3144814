package v1beta1

import (
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StorageCluster is Holdfast in this cluster: what runs, where, on which pools, with which classes. There is one. The
// controller reconciles all objects that follow from it, and removes them with it.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=hfc,categories=holdfast
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=.status.conditions[?(@.type=="Ready")].status
// +kubebuilder:printcolumn:name=Phase,type=string,JSONPath=.status.phase
// +kubebuilder:printcolumn:name=Nodes,type=integer,JSONPath=.status.desiredNodes
// +kubebuilder:printcolumn:name=ReadyNodes,type=integer,JSONPath=.status.readyNodes
// +kubebuilder:printcolumn:name=Version,type=string,JSONPath=.status.version
// +kubebuilder:printcolumn:name=Volumes,type=integer,JSONPath=.status.volumes
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=.metadata.creationTimestamp
// +kubebuilder:printcolumn:name=Message,type=string,priority=1,JSONPath=.status.conditions[?(@.type=="Ready")].message
// +kubebuilder:validation:XValidation:rule=`size(self.metadata.name) <= 63`,message="metadata.name: at most 63 characters are allowed, since it becomes a label"
type StorageCluster struct {
	metav1.TypeMeta `json:",inline"`
	// metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what runs.
	// +optional
	Spec StorageClusterSpec `json:"spec,omitzero"`
	// status is written by the controller; until then Ready is Unknown.
	// +optional
	// +default={"conditions": [{"type": "Ready", "status": "Unknown", "reason": "Pending", "message": "waiting for the controller", "lastTransitionTime": "1970-01-01T00:00:00Z"}]}
	Status StorageClusterStatus `json:"status,omitzero"`

	Decoding `json:"-"`
}

// StorageClusterSpec has a default for everything. What a field means that is left out does not change within this
// version of the API; only the images are those of the release that runs.
type StorageClusterSpec struct {
	// paused stops all changes. The status is still updated.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// debug makes all components log more.
	// +optional
	Debug bool `json:"debug,omitempty"`
	// traces is the address of a collector of OpenTelemetry that takes OTLP over HTTP, as nodes reach it, such as
	// http://10.0.0.1:4318: how long calls and their steps take is sent there, and a volume is one trace. If empty, nothing is
	// sent.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^(https?://[^/?#@ ]+(/[^?# ]*[^/?# ])?)?$`
	Traces string `json:"traces,omitempty"`
	// images to run in place of those of the release.
	// +optional
	Images Images `json:"images,omitzero"`
	// imageRegistry has the images of the release under their own names: registry.example/mirror has
	// registry.example/mirror/sig-storage/csi-provisioner:TAG. Those that images names are pulled from where they say.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^([a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?(:[0-9]{1,5})?(/[a-z0-9]([a-z0-9._-]*[a-z0-9])?)*)?$`
	ImageRegistry string `json:"imageRegistry,omitempty"`
	// imagePullPolicy of all containers, but for those of NodeJobs; if empty, IfNotPresent.
	// +optional
	// +kubebuilder:validation:Enum="";Always;IfNotPresent;Never
	ImagePullPolicy core.PullPolicy `json:"imagePullPolicy,omitempty"`
	// imagePullSecrets are in the namespace of Holdfast.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	ImagePullSecrets []core.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	// secretRef names the secret with the keys username and password (of the API), tls.crt and tls.key, and
	// csiProvisionUsername, csiProvisionPassword, and so on for csiControllerPublish, csiNodePublish and
	// csiControllerExpand. Pairs that are not used may be missing.
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`
	// csi is the driver for claims.
	// +optional
	CSI CSISpec `json:"csi,omitzero"`
	// controller is the workload that provisions, and reconciles this object.
	// +optional
	Controller ControllerSpec `json:"controller,omitzero"`
	// node is what the pods of the nodes that store have beside what all pods have. They tolerate every taint; nodeSelectorTerms
	// choose the nodes.
	// +optional
	Node PodSettings `json:"node,omitzero"`
	// nfs limits what NFS servers may do.
	// +optional
	NFS NFSSpec `json:"nfs,omitzero"`
	// fencing of nodes that are lost, which use volumes in Ceph clusters.
	// +optional
	Fencing FencingSpec `json:"fencing,omitzero"`
	// service of the HTTPS API.
	// +optional
	Service ServiceSpec `json:"service,omitzero"`
	// ingress to the HTTPS API from outside the cluster.
	// +optional
	Ingress IngressSpec `json:"ingress,omitzero"`
	// pools of the nodes, and of Ceph clusters. Without any there is one named default in /var/lib/holdfast/pools/default.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Pools []PoolSpec `json:"pools,omitempty"`
	// defaultClass says whether the class holdfast is the cluster's default, where storageClasses names none. Without it the class
	// is, unless there is another default when it is made.
	// +optional
	DefaultClass *bool `json:"defaultClass,omitempty"`
	// storageClasses to create. Without any these are holdfast, and holdfast-shared for volumes that several pods may write to.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule=`self.filter(c, has(c.default) && c.default).size() <= 1`,message="only one class may be the default"
	StorageClasses []StorageClassSpec `json:"storageClasses,omitempty"`
	// nodeSelectorTerms choose the nodes that store: a node that one of the terms matches. None chooses all nodes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	NodeSelectorTerms []core.NodeSelectorTerm `json:"nodeSelectorTerms,omitempty"`
	// tolerations are added to the pods' built-in ones.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Tolerations []core.Toleration `json:"tolerations,omitempty"`
	// resources of the containers of Holdfast itself.
	// +optional
	Resources core.ResourceRequirements `json:"resources,omitzero"`
	// priorityClassName of all pods; if empty, system-node-critical for the nodes and system-cluster-critical for the rest.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$')`,message="it must be a name of lowercase letters, digits, - and ., such as system-node-critical"
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// distribution names the distribution, with or without a version, where it is not found: openshift gets the right to its
	// privileged SecurityContextConstraints; k0s, k3s, microk8s, rke2 and talos set the directory of the kubelet. If empty, the
	// SecurityContextConstraints of the API server and the Nodes say it.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Distribution string `json:"distribution,omitempty"`
	// monitoring by Prometheus.
	// +optional
	Monitoring MonitoringSpec `json:"monitoring,omitzero"`
	// deletionPolicy says what happens when this object is deleted while there are volumes. Empty means Refuse.
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
}

// MonitoringSpec is how Prometheus finds what it scrapes.
type MonitoringSpec struct {
	// enabled is true if left out: a PodMonitor is created where the cluster has that kind.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// labels of the PodMonitor, where a Prometheus looks only at those with some, such as release: kube-prometheus-stack.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`
}

// DeletionPolicy says what the deletion of a StorageCluster does while there are volumes.
// +kubebuilder:validation:Enum="";Refuse;Orphan
type DeletionPolicy string

const (
	// RefuseDeletion waits until the last volume is gone.
	RefuseDeletion DeletionPolicy = "Refuse"
	// OrphanVolumes leaves Volumes, Snapshots, StorageNodes, and the data on the disks, for the next StorageCluster.
	OrphanVolumes DeletionPolicy = "Orphan"
)

// Images are references, such as registry.example/holdfast:v1. An empty one means that of the running release.
type Images struct {
	// holdfast is the image of Holdfast itself.
	// +optional
	Holdfast Image `json:"holdfast,omitempty"`
	// csiProvisioner is the image of external-provisioner.
	// +optional
	CSIProvisioner Image `json:"csiProvisioner,omitempty"`
	// csiAttacher is the image of external-attacher, which runs with a pool in a Ceph cluster.
	// +optional
	CSIAttacher Image `json:"csiAttacher,omitempty"`
	// csiResizer is the image of external-resizer.
	// +optional
	CSIResizer Image `json:"csiResizer,omitempty"`
	// csiSnapshotter is the image of external-snapshotter.
	// +optional
	CSISnapshotter Image `json:"csiSnapshotter,omitempty"`
	// snapshotController runs when an image is given here, for clusters that have the snapshot kinds without one; and
	// where Holdfast has installed those kinds.
	// +optional
	SnapshotController Image `json:"snapshotController,omitempty"`
	// csiNodeDriverRegistrar registers the driver with the kubelet when an image is given here, for clusters whose rules
	// demand that sidecar of each driver; else the driver registers itself.
	// +optional
	CSINodeDriverRegistrar Image `json:"csiNodeDriverRegistrar,omitempty"`
	// csiLivenessProbe checks the driver when an image is given here, for clusters whose rules demand that sidecar of each
	// driver; else the driver answers the probe itself.
	// +optional
	CSILivenessProbe Image `json:"csiLivenessProbe,omitempty"`
	// nfs is the image of NFS servers.
	// +optional
	NFS Image `json:"nfs,omitempty"`
	// ceph is the image of what makes the volumes of pools in Ceph clusters.
	// +optional
	Ceph Image `json:"ceph,omitempty"`
}

// Image is a reference to a container image.
// +kubebuilder:validation:MaxLength=512
// +kubebuilder:validation:XValidation:rule=`self.matches('^([A-Za-z0-9[][][A-Za-z0-9._:/@+-]*)?$')`,message="it must be a reference to an image, such as registry.example/holdfast:v1"
type Image string

// SecretReference names a secret.
type SecretReference struct {
	// name of the secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')`,message="it must be a name of lowercase letters, digits, - and ., such as holdfast-api"
	Name string `json:"name"`
	// namespace of the secret; if empty, that of Holdfast.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$')`,message="it must be a name of lowercase letters, digits and -, such as holdfast-system"
	Namespace string `json:"namespace,omitempty"`
}

// CSISpec is how Kubernetes reaches the driver.
type CSISpec struct {
	// enabled is true if left out. When false there is no node plugin and no class; NFS servers still work, with loop
	// devices that the DaemonSet holdfast-loop-sets allocates to them.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// kubeletDir is the kubelet's --root-dir; if empty, that of the distribution, as named or found, or /var/lib/kubelet.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^(/[A-Za-z0-9._-]+)*$`
	// +kubebuilder:validation:XValidation:rule=`!self.split('/').exists(s, s == '.' || s == '..')`,message="write the directory without . and .."
	KubeletDir string `json:"kubeletDir,omitempty"`
	// maxVolumesPerNode is how many volumes may be used on one node at once; 0 is no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	MaxVolumesPerNode int64 `json:"maxVolumesPerNode,omitempty"`
	// ephemeral allows inline ephemeral volumes. None are allowed if it is left out; those in use then stay until their
	// pods end.
	// +optional
	Ephemeral *EphemeralSpec `json:"ephemeral,omitempty"`
	// credentials that the calls of the driver must have.
	// +optional
	Credentials CSICredentials `json:"credentials,omitzero"`
}

// CSICredentials says for which calls of the driver a username and a password are required, those of spec.secretRef.
type CSICredentials struct {
	// provision requires csiProvisionUsername and csiProvisionPassword to create, delete, copy and list volumes.
	// +optional
	Provision bool `json:"provision,omitempty"`
	// controllerPublish requires csiControllerPublishUsername and csiControllerPublishPassword to attach volumes.
	// +optional
	ControllerPublish bool `json:"controllerPublish,omitempty"`
	// nodePublish requires csiNodePublishUsername and csiNodePublishPassword to mount volumes.
	// +optional
	NodePublish bool `json:"nodePublish,omitempty"`
	// controllerExpand requires csiControllerExpandUsername and csiControllerExpandPassword to grow volumes.
	// +optional
	ControllerExpand bool `json:"controllerExpand,omitempty"`
}

// NFSSpec is what the administrator of the cluster allows NFS servers to do.
type NFSSpec struct {
	// namespaces in which NFSServers may live, beside that of Holdfast. A user who may create pods in one of them can
	// create one with the rights of its servers. In other namespaces no objects are created for an NFSServer.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule=`self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')`,message="it must be the name of a namespace: lowercase letters, digits and -, such as team-a"
	Namespaces []string `json:"namespaces,omitempty"`
	// nodeNetworks are further addresses and networks, such as 100.64.0.0/16, with which nodes appear to NFS servers,
	// where the pod network translates addresses. The addresses of the nodes themselves are known. A client with one of
	// these addresses reads and writes every volume of the servers that are open to nodes.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule=`isIP(self) || isCIDR(self) && (cidr(self).prefixLength() <= 99 || cidr(self).prefixLength() == 128)`,message="it must be an address such as 10.0.0.7 or a network such as 100.64.0.0/16; networks of IPv6 may have prefixes of up to 99 bits"
	NodeNetworks []string `json:"nodeNetworks,omitempty"`
	// networkPolicies set to false creates none for NFS servers: in a network whose policies do not know nodes by their
	// addresses, no node could mount. Then only the servers restrict which clients may mount. True if left out.
	// +optional
	NetworkPolicies *bool `json:"networkPolicies,omitempty"`
	// inlineVolumeNamespaces are the namespaces, beside that of Holdfast, whose pods may mount NFS by themselves while there
	// are NFSServers, as volumes of the type nfs. The kubelet mounts these with the address of the node, which the servers
	// admit: such a pod reads and writes every volume of every server. Claims are not affected.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule=`self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')`,message="it must be the name of a namespace: lowercase letters, digits and -, such as team-a"
	InlineVolumeNamespaces []string `json:"inlineVolumeNamespaces,omitempty"`
}

// ServiceSpec is the Service of the API.
type ServiceSpec struct {
	// name is holdfast if empty.
	// +optional
	// +kubebuilder:validation:Pattern=`^([a-z]([-a-z0-9]{0,61}[a-z0-9])?)?$`
	Name string `json:"name,omitempty"`
	// type of the Service; ClusterIP if empty.
	// +optional
	// +kubebuilder:validation:Enum="";ClusterIP;NodePort;LoadBalancer
	Type core.ServiceType `json:"type,omitempty"`
	// port of the Service, 5705 if left out.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// targetPort is the port of the pods, 5705 if left out.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	// +kubebuilder:validation:XValidation:rule=`self == 0 || self >= 1024`,message="0 or at least 1024: the controller may not use lower ports"
	// +kubebuilder:validation:XValidation:rule=`self != 9090`,message="9090 is the port of the metrics"
	TargetPort int32 `json:"targetPort,omitempty"`
	// annotations of the Service.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`
}

// IngressSpec exposes the Service outside the cluster.
//
// +kubebuilder:validation:XValidation:rule=`!has(self.enabled) || !self.enabled || has(self.host) && self.host != ""`,fieldPath=.host,message="an ingress needs the name of its host"
type IngressSpec struct {
	// enabled creates the Ingress.
	// +optional
	Enabled bool `json:"enabled,omitempty"`
	// ingressClassName of the Ingress; if empty, the cluster's default.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$')`,message="it must be a name of lowercase letters, digits, - and ., such as nginx"
	IngressClassName string `json:"ingressClassName,omitempty"`
	// host is the name by which it is reached, such as holdfast.example.
	// +optional
	// +kubebuilder:validation:Pattern=`^((\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	// +kubebuilder:validation:MaxLength=253
	Host string `json:"host,omitempty"`
	// tls is terminated with the key pair of spec.secretRef.
	// +optional
	TLS bool `json:"tls,omitempty"`
	// annotations of the Ingress.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`
}

// PoolSpec is a pool on each node that one of its terms matches; with ceph it is one pool of the cluster, in a Ceph
// cluster that all nodes reach.
//
// +kubebuilder:validation:XValidation:rule=`has(self.ceph) == (has(self.engine) && self.engine in ["RBD", "CephFS"])`,fieldPath=.ceph,message="it is for the engines RBD and CephFS, which need it: with it give one of these, without it Image or Directory"
// +kubebuilder:validation:XValidation:rule=`!has(self.ceph) || !has(self.engine) || self.engine != "RBD" || has(self.ceph.pool) && self.ceph.pool != ""`,fieldPath=.ceph.pool,message="the engine RBD needs it: the pool of the Ceph cluster that is to have the images"
// +kubebuilder:validation:XValidation:rule=`!has(self.ceph) || !has(self.engine) || self.engine != "CephFS" || has(self.ceph.filesystem) && self.ceph.filesystem != ""`,fieldPath=.ceph.filesystem,message="the engine CephFS needs it: the file system of the Ceph cluster that is to have the directories"
// +kubebuilder:validation:XValidation:rule=`!has(self.ceph) || (!has(self.path) || self.path == "") && !has(self.devices) && (!has(self.requireMount) || !self.requireMount) && (!has(self.nodeSelectorTerms) || size(self.nodeSelectorTerms) == 0)`,fieldPath=.ceph,message="a pool in a Ceph cluster has no path, devices, requireMount and nodeSelectorTerms: all nodes reach it; leave them out"
// +kubebuilder:validation:XValidation:rule=`!has(self.ceph) || !self.name.endsWith("-")`,fieldPath=.name,message="the name of a pool in a Ceph cluster must not end with -: its objects are named after it"
// +kubebuilder:validation:XValidation:rule=`has(self.ceph) == has(oldSelf.ceph)`,fieldPath=.ceph,message="a pool on nodes cannot become one in a Ceph cluster, nor the other way; add another pool"
// +kubebuilder:validation:XValidation:rule=`!has(self.ceph) || !has(oldSelf.ceph) || self.engine == oldSelf.engine`,fieldPath=.engine,message="cannot be changed for a pool in a Ceph cluster; add another pool"
// +kubebuilder:validation:XValidation:rule=`!has(self.path) || self.path == "" || !has(self.devices)`,message="a pool has a path or devices, not both"
// +kubebuilder:validation:XValidation:rule=`!has(self.requireMount) || !self.requireMount || !has(self.devices)`,message="requireMount is for a path; devices are always mounted"
// +kubebuilder:validation:XValidation:rule=`!has(self.devices) || !has(self.devices.count) || self.devices.count == 1 || size(self.name) <= 60`,fieldPath=.name,message="a pool of several devices may have at most 60 characters: the others are named after it, such as fast.2"
type PoolSpec struct {
	// name is the value of the parameter pool of a class.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9][a-z0-9-]{0,62}$`
	Name string `json:"name"`
	// engine makes the volumes: Image gives each a file system of its own in a disk image, Directory a directory with a
	// quota; RBD an image in a Ceph cluster, CephFS a directory there. Empty means Image.
	// +optional
	Engine Engine `json:"engine,omitempty"`
	// path is a directory of the node; if empty, /var/lib/holdfast/pools/NAME.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^(/[A-Za-z0-9._-]+)*$`
	// +kubebuilder:validation:XValidation:rule=`!self.split('/').exists(s, s == '.' || s == '..')`,message="write the directory without . and .."
	Path string `json:"path,omitempty"`
	// requireMount says that the path must be a mount point, or lie below one, other than the root file system's:
	// otherwise no new pool is created there. Use it where a disk is mounted there, so that no pool begins on the root
	// file system while the disk is missing.
	// +optional
	RequireMount bool `json:"requireMount,omitempty"`
	// devices chooses whole block devices, which are formatted if they are empty, and mounted by the agent.
	// +optional
	Devices *DeviceSelector `json:"devices,omitempty"`
	// ceph is the Ceph cluster that has the volumes, for the engines RBD and CephFS.
	// +optional
	Ceph *CephSpec `json:"ceph,omitempty"`
	// overcommit says how often each byte may be promised, such as 1.5; 1 if empty.
	// +optional
	// +kubebuilder:validation:Pattern=`^([0-9]{1,3}(\.[0-9]{1,3})?)?$`
	// +kubebuilder:validation:XValidation:rule=`self == "" || double(self) > 0.0 && double(self) <= 100.0`,message="it must be above 0, at most 100"
	Overcommit string `json:"overcommit,omitempty"`
	// reserved is kept free: a share such as 5%, the default, or bytes such as 10Gi.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(%|k|[MGTPE]|[KMGTPE]i)?)?$`
	// +kubebuilder:validation:XValidation:rule=`self == "" || self.matches('^[0-9]{1,2}([.][0-9]{1,9})?%$') || self.matches('^[0-9]+([.][0-9]+)?(k|[MGTPE]|[KMGTPE]i)?$') && quantity(self).compareTo(quantity('9223372036854775807')) <= 0`,message="it must be a share below 100%, such as 5%, or bytes, such as 10Gi"
	Reserved string `json:"reserved,omitempty"`
	// trashRetention is how long a deleted volume can be restored, unless its space is needed before; 24h if left out,
	// and 0s keeps nothing.
	// +optional
	TrashRetention *Duration `json:"trashRetention,omitempty"`
	// nodeSelectorTerms choose the nodes that have the pool. None chooses all that store.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	NodeSelectorTerms []core.NodeSelectorTerm `json:"nodeSelectorTerms,omitempty"`
}

// DeviceSelector chooses the first whole, unused block devices that match all fields. Later it only finds the same
// devices again: each is recognized by what is written on it.
//
// +kubebuilder:validation:XValidation:rule=`has(self.paths) && size(self.paths) > 0 || has(self.minSize) || has(self.model) && self.model != "" || has(self.rotational)`,message="say which device: paths, minSize, model or rotational"
type DeviceSelector struct {
	// paths are patterns such as /dev/disk/by-id/nvme-*.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=255
	// +kubebuilder:validation:items:Pattern=`^/dev/[^\s]+$`
	Paths []string `json:"paths,omitempty"`
	// minSize of the device, such as 100Gi.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^[0-9]{1,18}([.][0-9]{1,9})?([KMGTPE]i|[kMGTPE]|[eE][0-9]{1,2})?$`
	MinSize *resource.Quantity `json:"minSize,omitempty"`
	// model is a pattern for the model that the device reports, such as "Samsung *".
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Model string `json:"model,omitempty"`
	// rotational is false for solid state.
	// +optional
	Rotational *bool `json:"rotational,omitempty"`
	// count is how many devices of a node the pool has at most; 1 if left out. Each has a file system of its own and is shown
	// as a pool of its own: NAME, NAME.2, NAME.3. A volume is on one of them, and one that fails takes no other with it.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	Count int32 `json:"count,omitempty"`
}

// StorageClassSpec is one StorageClass. Kubernetes does not allow changes of a class, so a changed one is deleted and
// created again.
//
// +kubebuilder:validation:XValidation:rule=`!has(self.pools) || size(self.pools) == 0 || !has(self.pool) || self.pool == ""`,fieldPath=.pools,message="give pool or pools, not both"
type StorageClassSpec struct {
	// name of the StorageClass.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')`,message="it must be a name of lowercase letters, digits, - and ., such as holdfast-fast"
	Name string `json:"name"`
	// pool of the volumes; if empty, the first of the node.
	// +optional
	// +kubebuilder:validation:Pattern=`^([a-z0-9][a-z0-9-]{0,62})?$`
	Pool string `json:"pool,omitempty"`
	// pools of the volumes, in place of pool: each volume is in the one of the node that has the most room.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9][a-z0-9-]{0,62}$`
	Pools []string `json:"pools,omitempty"`
	// default makes it the class of claims that name none.
	// +optional
	Default bool `json:"default,omitempty"`
	// reclaimPolicy is Delete if empty.
	// +optional
	// +kubebuilder:validation:Enum="";Delete;Retain
	ReclaimPolicy core.PersistentVolumeReclaimPolicy `json:"reclaimPolicy,omitempty"`
	// volumeBindingMode is WaitForFirstConsumer if empty: the scheduler first finds a node with enough capacity. If the pool is
	// in a Ceph cluster, which all nodes reach, it is Immediate if empty.
	// +optional
	// +kubebuilder:validation:Enum="";WaitForFirstConsumer;Immediate
	VolumeBindingMode string `json:"volumeBindingMode,omitempty"`
	// fsType is ext4 if empty. A class whose pool has the engine CephFS has none.
	// +optional
	FSType FSType `json:"fsType,omitempty"`
	// mountOptions of the volumes, such as discard.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=255
	// +kubebuilder:validation:items:XValidation:rule=`self.matches('^[!-~]+$')`,message="it must be one option, such as noatime, without spaces"
	MountOptions []string `json:"mountOptions,omitempty"`
	// parameters beside those that have a field here.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Parameters map[string]string `json:"parameters,omitempty"`
	// onNodeLoss says what happens to a volume when its node is gone for good. Empty means Retain.
	// +optional
	OnNodeLoss OnNodeLoss `json:"onNodeLoss,omitempty"`
}

// ClusterPhase is the state of a StorageCluster, for people; programs read the conditions.
// +kubebuilder:validation:Enum=Creating;Running;Pending;Degraded;Upgrading;Paused;Terminating
type ClusterPhase string

const (
	// ClusterCreating: some of its objects have not been ready yet.
	ClusterCreating ClusterPhase = "Creating"
	// ClusterRunning: all of it is ready.
	ClusterRunning ClusterPhase = "Running"
	// ClusterPending: it cannot start, and the conditions say why.
	ClusterPending ClusterPhase = "Pending"
	// ClusterDegraded: it was ready, and something is not any more.
	ClusterDegraded ClusterPhase = "Degraded"
	// ClusterUpgrading: a StorageUpgrade is running.
	ClusterUpgrading ClusterPhase = "Upgrading"
	// ClusterPaused: spec.paused is set.
	ClusterPaused ClusterPhase = "Paused"
	// ClusterTerminating: it is being removed, or waits for the last volume.
	ClusterTerminating ClusterPhase = "Terminating"
)

// StorageClusterStatus is the observed state.
type StorageClusterStatus struct {
	// phase sums the conditions up for people.
	// +optional
	Phase ClusterPhase `json:"phase,omitempty"`
	// desiredNodes is how many nodes are selected for storage.
	// +optional
	DesiredNodes int32 `json:"desiredNodes"`
	// readyNodes is how many of them are ready.
	// +optional
	ReadyNodes int32 `json:"readyNodes"`
	// version of Holdfast on the nodes, the newest while they differ.
	// +optional
	Version string `json:"version,omitempty"`
	// oldestVersion of Holdfast on the nodes, while they differ.
	// +optional
	OldestVersion string `json:"oldestVersion,omitempty"`
	// volumes in the cluster.
	// +optional
	Volumes int32 `json:"volumes"`
	// snapshots in the cluster.
	// +optional
	Snapshots int32 `json:"snapshots"`
	// pools that hold volumes or snapshots, as they are on the nodes. The spec must not change them.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Pools []HeldPool `json:"pools,omitempty"`
	// images that run.
	// +optional
	Images Images `json:"images,omitzero"`
	// upgrade names the running StorageUpgrade.
	// +optional
	Upgrade string `json:"upgrade,omitempty"`
	// nodes that need attention, at most 100: those that are not ready, and why, and those with a message.
	// +optional
	// +listType=map
	// +listMapKey=name
	Nodes []NodeHealth `json:"nodes,omitempty"`
	// conditions are Ready, Available, Progressing and Degraded, and others where something needs attention.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// HeldPool is a pool that holds volumes or snapshots.
type HeldPool struct {
	// name of the pool.
	// +required
	Name string `json:"name"`
	// path of its directory, or of where its device is mounted.
	// +required
	Path string `json:"path"`
	// engine of the pool.
	// +required
	Engine Engine `json:"engine"`
	// devices is set for a pool on devices; its count is the highest number of a device that holds something.
	// +optional
	Devices *DeviceSelector `json:"devices,omitempty"`
	// volumes that it holds on all nodes.
	// +optional
	Volumes int32 `json:"volumes"`
	// snapshots that it holds on all nodes.
	// +optional
	Snapshots int32 `json:"snapshots"`
	// nodes on which it holds them.
	// +optional
	// +listType=atomic
	Nodes []string `json:"nodes,omitempty"`
}

// NodeHealth is one node as the cluster sees it.
type NodeHealth struct {
	// name of the node.
	// +required
	Name string `json:"name"`
	// ready is true when everything below is.
	// +optional
	Ready bool `json:"ready"`
	// agent runs and renews its Lease.
	// +optional
	Agent bool `json:"agent"`
	// pools is true when all can be used.
	// +optional
	Pools bool `json:"pools"`
	// disk has room left in every pool.
	// +optional
	Disk bool `json:"disk"`
	// registered with the kubelet.
	// +optional
	Registered bool `json:"registered"`
	// version of the agent.
	// +optional
	Version string `json:"version,omitempty"`
	// message says what is wrong and what to do.
	// +optional
	Message string `json:"message,omitempty"`
}

// StorageClusterList is a list of clusters.
//
// +kubebuilder:object:root=true
type StorageClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items of the list.
	Items []StorageCluster `json:"items"`
}
