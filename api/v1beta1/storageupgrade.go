package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StorageUpgrade changes the version of Holdfast in the cluster, or rolls back. One runs at a time, the others wait.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=hfu,categories=holdfast
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=.status.conditions[?(@.type=="Ready")].status
// +kubebuilder:printcolumn:name=Phase,type=string,JSONPath=.status.phase
// +kubebuilder:printcolumn:name=Step,type=string,JSONPath=.status.step
// +kubebuilder:printcolumn:name=From,type=string,JSONPath=.status.from
// +kubebuilder:printcolumn:name=To,type=string,JSONPath=.status.to
// +kubebuilder:printcolumn:name=Nodes,type=integer,JSONPath=.status.desiredNodes
// +kubebuilder:printcolumn:name=Upgraded,type=integer,JSONPath=.status.upgradedNodes
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=.metadata.creationTimestamp
// +kubebuilder:printcolumn:name=Message,type=string,priority=1,JSONPath=.status.conditions[?(@.type=="Ready")].message
// +kubebuilder:validation:XValidation:rule=`size(self.metadata.name) <= 63`,message="metadata.name: at most 63 characters are allowed, since it becomes a label"
type StorageUpgrade struct {
	metav1.TypeMeta `json:",inline"`
	// metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which version to run. It cannot be changed.
	// +required
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message="cannot be changed; make another upgrade"
	Spec StorageUpgradeSpec `json:"spec"`
	// status is written by the controller; until then Ready is Unknown.
	// +optional
	// +default={"conditions": [{"type": "Ready", "status": "Unknown", "reason": "Pending", "message": "waiting for the controller", "lastTransitionTime": "1970-01-01T00:00:00Z"}]}
	Status StorageUpgradeStatus `json:"status,omitzero"`

	Decoding `json:"-"`
}

// StorageUpgradeSpec says which version to run.
//
// +kubebuilder:validation:XValidation:rule=`(has(self.image) && self.image != "") != (has(self.version) && self.version != "")`,message="give an image or a version"
type StorageUpgradeSpec struct {
	// image to run.
	// +optional
	Image Image `json:"image,omitempty"`
	// version is another tag of the image that runs.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9_][A-Za-z0-9._-]*)?$`
	Version string `json:"version,omitempty"`
	// strategy is Rolling if empty: mounted volumes are not disturbed. Offline first stops the Deployments and
	// StatefulSets that use claims of Holdfast, and starts them again afterwards.
	// +optional
	// +kubebuilder:validation:Enum="";Rolling;Offline
	Strategy UpgradeStrategy `json:"strategy,omitempty"`
	// nodeTimeout for each node, such as 15m or 1h; 10 minutes if left out, or 0.
	// +optional
	NodeTimeout *Duration `json:"nodeTimeout,omitempty"`
	// rollback is true if left out: when a step fails, all changes are reverted.
	// +optional
	Rollback *bool `json:"rollback,omitempty"`
}

// UpgradeStrategy says whether applications that use volumes keep running during the upgrade.
type UpgradeStrategy string

const (
	RollingUpgrade UpgradeStrategy = "Rolling"
	OfflineUpgrade UpgradeStrategy = "Offline"
)

// UpgradePhase is the state of a StorageUpgrade.
// +kubebuilder:validation:Enum=Waiting;Running;RollingBack;Completed;Failed
type UpgradePhase string

const (
	UpgradeWaiting     UpgradePhase = "Waiting" // for another one
	UpgradeRunning     UpgradePhase = "Running"
	UpgradeRollingBack UpgradePhase = "RollingBack"
	UpgradeCompleted   UpgradePhase = "Completed"
	UpgradeFailed      UpgradePhase = "Failed"
)

// UpgradeStep is one of the steps, in their order.
// +kubebuilder:validation:Enum=PullImage;PauseCluster;Preflight;UpgradeInit;ScaleDown;Nodes;NFSServers;Controller;ScaleUp;UpgradeComplete;RollBack
type UpgradeStep string

const (
	StepPullImage       UpgradeStep = "PullImage"
	StepPauseCluster    UpgradeStep = "PauseCluster"
	StepPreflight       UpgradeStep = "Preflight"
	StepUpgradeInit     UpgradeStep = "UpgradeInit"
	StepScaleDown       UpgradeStep = "ScaleDown" // strategy Offline
	StepNodes           UpgradeStep = "Nodes"
	StepNFSServers      UpgradeStep = "NFSServers"
	StepController      UpgradeStep = "Controller"
	StepScaleUp         UpgradeStep = "ScaleUp" // strategy Offline
	StepUpgradeComplete UpgradeStep = "UpgradeComplete"
	StepRollBack        UpgradeStep = "RollBack"
)

// StorageUpgradeStatus is the progress. The controller continues from here after a restart.
type StorageUpgradeStatus struct {
	// phase sums the conditions up for people.
	// +optional
	Phase UpgradePhase `json:"phase,omitempty"`
	// completed is true when the new image runs everywhere.
	// +optional
	Completed bool `json:"completed"`
	// step that runs, or the last one.
	// +optional
	Step UpgradeStep `json:"step,omitempty"`
	// from is the image that ran before.
	// +optional
	From Image `json:"from,omitempty"`
	// to is the new image.
	// +optional
	To Image `json:"to,omitempty"`
	// desiredNodes is how many nodes run Holdfast.
	// +optional
	DesiredNodes int32 `json:"desiredNodes"`
	// upgradedNodes is how many of them run the new image.
	// +optional
	UpgradedNodes int32 `json:"upgradedNodes"`
	// node that is being upgraded.
	// +optional
	Node string `json:"node,omitempty"`
	// nodeStartTime is when the upgrade of that node started.
	// +optional
	NodeStartTime *metav1.Time `json:"nodeStartTime,omitempty"`
	// steps that were started, in their order.
	// +optional
	// +listType=map
	// +listMapKey=name
	Steps []UpgradeStepStatus `json:"steps,omitempty"`
	// conditions are Ready, Complete and Failed, and Stalled where it failed.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// UpgradeStepStatus is one step.
type UpgradeStepStatus struct {
	// name of the step.
	// +required
	Name UpgradeStep `json:"name"`
	// startTime is when it began.
	// +required
	StartTime metav1.Time `json:"startTime"`
	// endTime is absent while it runs.
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`
	// message says what it did, or why it failed.
	// +optional
	Message string `json:"message,omitempty"`
}

// StorageUpgradeList is a list of upgrades.
//
// +kubebuilder:object:root=true
type StorageUpgradeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items of the list.
	Items []StorageUpgrade `json:"items"`
}
