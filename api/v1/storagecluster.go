package v1

import (
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StorageCluster is Holdfast in this cluster: what runs, where, on which pools, with which classes. There is one. The
// controller keeps what follows from it, and removes all of it with the object.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=hfc,categories=holdfast
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=.status.ready
// +kubebuilder:printcolumn:name=Status,type=string,JSONPath=.status.phase
// +kubebuilder:printcolumn:name=Version,type=string,JSONPath=.status.version
// +kubebuilder:printcolumn:name=Volumes,type=integer,JSONPath=.status.volumes
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=.metadata.creationTimestamp
// +kubebuilder:printcolumn:name=Message,type=string,priority=1,JSONPath=.status.conditions[?(@.type=="Available")].message
// +kubebuilder:validation:XValidation:rule=`size(self.metadata.name) <= 63`,message="metadata.name: at most 63 characters are allowed, since it becomes a label"
type StorageCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec   StorageClusterSpec   `json:"spec,omitzero"`
	Status StorageClusterStatus `json:"status,omitzero"`

	// DecodeError is for Unreadable. It is no field of the object.
	DecodeError string `json:"-"`
}

// StorageClusterSpec has a default for everything. Defaults are not written here: they are those of the release that
// runs, and change with it.
type StorageClusterSpec struct {
	// Pause leaves everything as it is. The status is kept fresh.
	// +optional
	Pause bool `json:"pause,omitempty"`
	// Debug makes all components log more.
	// +optional
	Debug bool `json:"debug,omitempty"`
	// +optional
	Images Images `json:"images,omitzero"`
	// ImagePullSecrets are in the namespace of Holdfast.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	ImagePullSecrets []core.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	// SecretRef names the secret with the keys username and password (of the API), tls.crt and tls.key, and
	// csiProvisionUsername, csiProvisionPassword, and so on for csiControllerPublish, csiNodePublish and
	// csiControllerExpand. Each pair may be missing that nothing asks for.
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`
	// +optional
	CSI CSISpec `json:"csi,omitzero"`
	// +optional
	NFS NFSSpec `json:"nfs,omitzero"`
	// +optional
	Service ServiceSpec `json:"service,omitzero"`
	// +optional
	Ingress IngressSpec `json:"ingress,omitzero"`
	// Pools of the nodes. None is one named default in /var/lib/holdfast/pools/default.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Pools []PoolSpec `json:"pools,omitempty"`
	// StorageClasses to make. None is holdfast, which is the cluster's default, and holdfast-shared, of volumes that
	// several pods may write to.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule=`self.filter(c, has(c.default) && c.default).size() <= 1`,message="only one class may be the default"
	StorageClasses []StorageClassSpec `json:"storageClasses,omitempty"`
	// NodeSelectorTerms choose the nodes that store: a node that one of the terms matches. None chooses all nodes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	NodeSelectorTerms []core.NodeSelectorTerm `json:"nodeSelectorTerms,omitempty"`
	// Tolerations are added to those that the pods have of themselves.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Tolerations []core.Toleration `json:"tolerations,omitempty"`
	// Resources of the containers of Holdfast itself.
	// +optional
	Resources core.ResourceRequirements `json:"resources,omitzero"`
	// PriorityClass of all pods; if empty, system-node-critical for the nodes and system-cluster-critical for the rest.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$')`,message="it must be a name of lowercase letters, digits, - and ., such as system-node-critical"
	PriorityClass string `json:"priorityClass,omitempty"`
	// K8sDistro names the distribution, with or without a version: openshift gets the right to its privileged
	// SecurityContextConstraints; k0s, k3s, microk8s, rke2 and talos set the directory of the kubelet.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	K8sDistro string `json:"k8sDistro,omitempty"`
	// DisableMonitoring makes no PodMonitor where the cluster has that kind.
	// +optional
	DisableMonitoring bool `json:"disableMonitoring,omitempty"`
	// DeletionPolicy says what happens when this object is deleted while there are volumes. Empty means Refuse.
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
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

// Images are references, such as registry.example/holdfast:v1. An empty one is that of the release that runs.
type Images struct {
	// +optional
	Holdfast Image `json:"holdfast,omitempty"`
	// +optional
	CSIProvisioner Image `json:"csiProvisioner,omitempty"`
	// +optional
	CSIAttacher Image `json:"csiAttacher,omitempty"`
	// +optional
	CSIResizer Image `json:"csiResizer,omitempty"`
	// +optional
	CSISnapshotter Image `json:"csiSnapshotter,omitempty"`
	// SnapshotController runs when an image is given here, for clusters that have the snapshot kinds without one; and
	// where Holdfast has brought those kinds.
	// +optional
	SnapshotController Image `json:"snapshotController,omitempty"`
	// CSINodeDriverRegistrar registers the driver with the kubelet when an image is given here; else the driver does.
	// +optional
	CSINodeDriverRegistrar Image `json:"csiNodeDriverRegistrar,omitempty"`
	// CSILivenessProbe asks the driver whether it lives when an image is given here; else the driver answers itself.
	// +optional
	CSILivenessProbe Image `json:"csiLivenessProbe,omitempty"`
	// NFS is the image of NFS servers.
	// +optional
	NFS Image `json:"nfs,omitempty"`
}

// Image is a reference to a container image.
// +kubebuilder:validation:MaxLength=512
// +kubebuilder:validation:XValidation:rule=`self.matches('^([][A-Za-z0-9._:/@+-]+)?$')`,message="it must be a reference to an image, such as registry.example/holdfast:v1"
type Image string

// SecretReference names a secret.
type SecretReference struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')`,message="it must be a name of lowercase letters, digits, - and ., such as holdfast-api"
	Name string `json:"name"`
	// Namespace of the secret; if empty, that of Holdfast.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$')`,message="it must be a name of lowercase letters, digits and -, such as holdfast-system"
	Namespace string `json:"namespace,omitempty"`
}

// DeploymentStrategy is the kind of workload that the controller is.
// +kubebuilder:validation:Enum="";Deployment;StatefulSet
type DeploymentStrategy string

const (
	AsDeployment  DeploymentStrategy = "Deployment"
	AsStatefulSet DeploymentStrategy = "StatefulSet"
)

// CSISpec is how Kubernetes reaches the driver.
//
// +kubebuilder:validation:XValidation:rule=`!has(self.deploymentStrategy) || self.deploymentStrategy != "StatefulSet" || !has(self.replicas) || self.replicas >= 2`,fieldPath=.replicas,message="a StatefulSet needs at least 2: it replaces its pods in place, so the only one would be gone while a new one does not become ready"
type CSISpec struct {
	// Enable is true if left out. Without it there is no node plugin and no class; NFS servers still work,
	// with loop devices that the DaemonSet holdfast-loop-sets lends them.
	// +optional
	Enable *bool `json:"enable,omitempty"`
	// DeploymentStrategy of the controller. Empty means Deployment, of which a new pod is ready before an old one goes. A
	// StatefulSet replaces its pods in place, and so needs at least 2 replicas.
	// +optional
	DeploymentStrategy DeploymentStrategy `json:"deploymentStrategy,omitempty"`
	// Replicas of the controller, of which one leads; 2 if left out.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9
	Replicas *int32 `json:"replicas,omitempty"`
	// KubeletDir is the kubelet's --root-dir; if empty, that of the distribution, or /var/lib/kubelet.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^(/[A-Za-z0-9._-]+)*$`
	// +kubebuilder:validation:XValidation:rule=`!self.split('/').exists(s, s == '.' || s == '..')`,message="write the directory without . and .."
	KubeletDir string `json:"kubeletDir,omitempty"`
	// MaxVolumesPerNode is how many volumes may be used on one node at once; 0 is no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	MaxVolumesPerNode int64 `json:"maxVolumesPerNode,omitempty"`
	// Attach runs external-attacher: VolumeAttachments then show where each volume is used.
	// +optional
	Attach bool `json:"attach,omitempty"`
	// Ephemeral allows inline ephemeral volumes. There are none if it is left out; those that are in use then stay until
	// their pods end.
	// +optional
	Ephemeral *EphemeralSpec `json:"ephemeral,omitempty"`
	// +optional
	EnableProvisionCreds bool `json:"enableProvisionCreds,omitempty"`
	// +optional
	EnableControllerPublishCreds bool `json:"enableControllerPublishCreds,omitempty"`
	// +optional
	EnableNodePublishCreds bool `json:"enableNodePublishCreds,omitempty"`
	// +optional
	EnableControllerExpandCreds bool `json:"enableControllerExpandCreds,omitempty"`
}

// NFSSpec is what the administrator of the cluster allows NFS servers.
type NFSSpec struct {
	// Namespaces in which NFSServers may live, beside that of Holdfast. Who may make pods in one of them can make one
	// with the rights of its servers. In other namespaces nothing is made of an NFSServer.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule=`self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')`,message="it must be the name of a namespace: lowercase letters, digits and -, such as team-a"
	Namespaces []string `json:"namespaces,omitempty"`
	// NodeNetworks are further addresses and networks, such as 100.64.0.0/16, from which NFS servers see nodes: those
	// between which the network of the pods translates. The addresses of the nodes themselves are known. Whoever has one
	// of these reads and writes every volume of the servers that are open to nodes.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule=`isIP(self) || isCIDR(self) && (cidr(self).prefixLength() <= 99 || cidr(self).prefixLength() == 128)`,message="it must be an address such as 10.0.0.7 or a network such as 100.64.0.0/16; networks of IPv6 may have prefixes of up to 99 bits"
	NodeNetworks []string `json:"nodeNetworks,omitempty"`
	// NetworkPolicies is false where none are to be made for NFS servers: in a network whose policies do not know nodes by
	// their addresses, nobody could mount. What clients may mount is then kept by the servers alone. True if left out.
	// +optional
	NetworkPolicies *bool `json:"networkPolicies,omitempty"`
}

// ServiceSpec is the Service of the API.
type ServiceSpec struct {
	// Name is holdfast if empty.
	// +optional
	// +kubebuilder:validation:Pattern=`^([a-z]([-a-z0-9]{0,61}[a-z0-9])?)?$`
	Name string `json:"name,omitempty"`
	// +optional
	// +kubebuilder:validation:Enum="";ClusterIP;NodePort;LoadBalancer
	Type core.ServiceType `json:"type,omitempty"`
	// ExternalPort is the Service's, 5705 if left out.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	ExternalPort int32 `json:"externalPort,omitempty"`
	// InternalPort is the pods', 5705 if left out.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	// +kubebuilder:validation:XValidation:rule=`self == 0 || self >= 1024`,message="0 or at least 1024: the controller may not use lower ports"
	// +kubebuilder:validation:XValidation:rule=`self != 9090`,message="9090 is the port of the metrics"
	InternalPort int32 `json:"internalPort,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`
}

// IngressSpec leads to the Service from outside.
//
// +kubebuilder:validation:XValidation:rule=`!has(self.enable) || !self.enable || has(self.hostname) && self.hostname != ""`,fieldPath=.hostname,message="an ingress needs the name of its host"
type IngressSpec struct {
	// +optional
	Enable bool `json:"enable,omitempty"`
	// ClassName of the Ingress; if empty, the cluster's default.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$')`,message="it must be a name of lowercase letters, digits, - and ., such as nginx"
	ClassName string `json:"className,omitempty"`
	// +optional
	// +kubebuilder:validation:Pattern=`^((\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	// +kubebuilder:validation:MaxLength=253
	Hostname string `json:"hostname,omitempty"`
	// TLS is ended with the pair of SecretRef.
	// +optional
	TLS bool `json:"tls,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`
}

// PoolSpec is a pool on each node that one of its terms matches.
//
// +kubebuilder:validation:XValidation:rule=`!has(self.path) || self.path == "" || !has(self.devices)`,message="a pool has a path or devices, not both"
// +kubebuilder:validation:XValidation:rule=`!has(self.requireMount) || !self.requireMount || !has(self.devices)`,message="requireMount is for a path; devices are always mounted"
type PoolSpec struct {
	// Name is that of the parameter pool of a class.
	// +kubebuilder:validation:Pattern=`^[a-z0-9][a-z0-9-]{0,62}$`
	Name string `json:"name"`
	// +optional
	// +kubebuilder:validation:Enum="";image;directory
	Engine string `json:"engine,omitempty"`
	// Path is a directory of the node; if empty, /var/lib/holdfast/pools/NAME.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^(/[A-Za-z0-9._-]+)*$`
	// +kubebuilder:validation:XValidation:rule=`!self.split('/').exists(s, s == '.' || s == '..')`,message="write the directory without . and .."
	Path string `json:"path,omitempty"`
	// RequireMount says that the path must be a mount point, or lie below one, other than the root file system's: without
	// it no new pool is begun there. Use it where a disk is mounted there.
	// +optional
	RequireMount bool `json:"requireMount,omitempty"`
	// Devices chooses a whole block device, which is formatted if it is empty, and mounted by the agent.
	// +optional
	Devices *DeviceSelector `json:"devices,omitempty"`
	// Overcommit says how often each byte may be promised, such as 1.5; 1 if empty.
	// +optional
	// +kubebuilder:validation:Pattern=`^([0-9]{1,3}(\.[0-9]{1,3})?)?$`
	// +kubebuilder:validation:XValidation:rule=`self == "" || double(self) > 0.0 && double(self) <= 100.0`,message="it must be above 0, at most 100"
	Overcommit string `json:"overcommit,omitempty"`
	// Reserved is kept free: a share such as 5%, which it is if empty, or bytes such as 10Gi.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(%|k|[MGTPE]|[KMGTPE]i)?)?$`
	// +kubebuilder:validation:XValidation:rule=`self == "" || self.matches('^[0-9]{1,2}([.][0-9]{1,9})?%$') || self.matches('^[0-9]+([.][0-9]+)?(k|[MGTPE]|[KMGTPE]i)?$') && quantity(self).compareTo(quantity('9223372036854775807')) <= 0`,message="it must be a share below 100%, such as 5%, or bytes, such as 10Gi"
	Reserved string `json:"reserved,omitempty"`
	// TrashRetention is how long a deleted volume can be restored, unless its room is needed before; 24h if left out, and
	// 0s keeps nothing.
	// +optional
	TrashRetention *Duration `json:"trashRetention,omitempty"`
	// NodeSelectorTerms choose the nodes that have the pool. None chooses all that store.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	NodeSelectorTerms []core.NodeSelectorTerm `json:"nodeSelectorTerms,omitempty"`
}

// DeviceSelector chooses the first whole, unused block device that is all it says. It chooses again only what it has
// chosen before: the pool is known by what is written on the device.
//
// +kubebuilder:validation:XValidation:rule=`has(self.paths) && size(self.paths) > 0 || has(self.minSize) || has(self.model) && self.model != "" || has(self.rotational)`,message="say which device: paths, minSize, model or rotational"
type DeviceSelector struct {
	// Paths are patterns such as /dev/disk/by-id/nvme-*.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=255
	// +kubebuilder:validation:items:Pattern=`^/dev/[^\s]+$`
	Paths []string `json:"paths,omitempty"`
	// MinSize of the device, such as 100Gi.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^[0-9]{1,18}([.][0-9]{1,9})?([KMGTPE]i|[kMGTPE]|[eE][0-9]{1,2})?$`
	MinSize *resource.Quantity `json:"minSize,omitempty"`
	// Model is a pattern for what the device says it is, such as "Samsung *".
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Model string `json:"model,omitempty"`
	// Rotational is false for solid state.
	// +optional
	Rotational *bool `json:"rotational,omitempty"`
}

// StorageClassSpec is one StorageClass. Kubernetes lets nobody change a class, so one that changes is made anew.
type StorageClassSpec struct {
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')`,message="it must be a name of lowercase letters, digits, - and ., such as holdfast-fast"
	Name string `json:"name"`
	// Pool of the volumes; if empty, the first of the node.
	// +optional
	// +kubebuilder:validation:Pattern=`^([a-z0-9][a-z0-9-]{0,62})?$`
	Pool string `json:"pool,omitempty"`
	// Default makes it the class of claims that name none.
	// +optional
	Default bool `json:"default,omitempty"`
	// ReclaimPolicy is Delete if empty.
	// +optional
	// +kubebuilder:validation:Enum="";Delete;Retain
	ReclaimPolicy core.PersistentVolumeReclaimPolicy `json:"reclaimPolicy,omitempty"`
	// BindingMode is WaitForFirstConsumer if empty: the scheduler finds a node with room first.
	// +optional
	// +kubebuilder:validation:Enum="";WaitForFirstConsumer;Immediate
	BindingMode string `json:"bindingMode,omitempty"`
	// FSType is ext4 if empty.
	// +optional
	FSType FSType `json:"fsType,omitempty"`
	// MountOptions of the volumes, such as discard.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=255
	// +kubebuilder:validation:items:XValidation:rule=`self.matches('^[!-~]+$')`,message="it must be one option, such as noatime, without spaces"
	MountOptions []string `json:"mountOptions,omitempty"`
	// Parameters beside those that have a field here.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Parameters map[string]string `json:"parameters,omitempty"`
	// OnNodeLoss says what becomes of a volume when its node is gone for good. Empty means Retain.
	// +optional
	OnNodeLoss OnNodeLoss `json:"onNodeLoss,omitempty"`
}

// ClusterPhase is where a StorageCluster stands, for people; programs read the conditions.
// +kubebuilder:validation:Enum=Creating;Running;Pending;Degraded;Upgrading;Paused;Terminating
type ClusterPhase string

const (
	// ClusterCreating: not all of it has been ready yet.
	ClusterCreating ClusterPhase = "Creating"
	// ClusterRunning: all of it is ready.
	ClusterRunning ClusterPhase = "Running"
	// ClusterPending: it cannot begin, and the conditions say why.
	ClusterPending ClusterPhase = "Pending"
	// ClusterDegraded: it was ready, and something is not any more.
	ClusterDegraded ClusterPhase = "Degraded"
	// ClusterUpgrading: a StorageUpgrade is at work.
	ClusterUpgrading ClusterPhase = "Upgrading"
	// ClusterPaused: spec.pause is set.
	ClusterPaused ClusterPhase = "Paused"
	// ClusterTerminating: it is being removed, or waits for the last volume.
	ClusterTerminating ClusterPhase = "Terminating"
)

// StorageClusterStatus is what there is.
type StorageClusterStatus struct {
	// +optional
	Phase ClusterPhase `json:"phase,omitempty"`
	// Ready is READY/ALL of the nodes that are to store.
	// +optional
	Ready string `json:"ready,omitempty"`
	// Version of Holdfast on all nodes; the oldest and the newest while they differ.
	// +optional
	Version string `json:"version,omitempty"`
	// Volumes in the cluster.
	// +optional
	Volumes int32 `json:"volumes"`
	// Snapshots in the cluster.
	// +optional
	Snapshots int32 `json:"snapshots"`
	// Pools that hold volumes or snapshots, as they are on the nodes. A change of the spec must leave them as they are.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Pools []HeldPool `json:"pools,omitempty"`
	// Images that run.
	// +optional
	Images Images `json:"images,omitzero"`
	// Upgrade names the StorageUpgrade at work.
	// +optional
	Upgrade string `json:"upgrade,omitempty"`
	// +optional
	Members Members `json:"members,omitzero"`
	// Nodes that are to store, ready or not.
	// +optional
	// +listType=map
	// +listMapKey=name
	Nodes []NodeHealth `json:"nodes,omitempty"`
	// Conditions are Available, Progressing and Degraded.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// HeldPool is a pool that holds volumes or snapshots.
type HeldPool struct {
	Name string `json:"name"`
	// Path of its directory, or of where its device is mounted.
	Path string `json:"path"`
	// Engine is image or directory.
	Engine string `json:"engine"`
	// Devices is set where it is on devices.
	// +optional
	Devices *DeviceSelector `json:"devices,omitempty"`
	// +optional
	Volumes int32 `json:"volumes"`
	// +optional
	Snapshots int32 `json:"snapshots"`
	// Nodes on which it holds them.
	// +optional
	// +listType=atomic
	Nodes []string `json:"nodes,omitempty"`
}

// Members are the names of the nodes that are to store.
type Members struct {
	// +optional
	// +listType=atomic
	Ready []string `json:"ready,omitempty"`
	// +optional
	// +listType=atomic
	Unready []string `json:"unready,omitempty"`
}

// NodeHealth is one node as the cluster sees it.
type NodeHealth struct {
	Name string `json:"name"`
	// Ready is true when everything below is.
	// +optional
	Ready bool `json:"ready"`
	// Agent runs and is heard of.
	// +optional
	Agent bool `json:"agent"`
	// Pools can all be used.
	// +optional
	Pools bool `json:"pools"`
	// Disk has room left in every pool.
	// +optional
	Disk bool `json:"disk"`
	// Registered with the kubelet.
	// +optional
	Registered bool `json:"registered"`
	// Version of the agent.
	// +optional
	Version string `json:"version,omitempty"`
	// Message says what is wrong and what to do.
	// +optional
	Message string `json:"message,omitempty"`
}

// StorageClusterList is a list of clusters.
//
// +kubebuilder:object:root=true
type StorageClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []StorageCluster `json:"items"`
}
