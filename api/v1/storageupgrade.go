package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StorageUpgrade brings another version of Holdfast to the cluster, or leaves it as it was. One works at a time, the
// others wait.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=hfu,categories=holdfast
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Phase,type=string,JSONPath=.status.phase
// +kubebuilder:printcolumn:name=Step,type=string,JSONPath=.status.step
// +kubebuilder:printcolumn:name=From,type=string,JSONPath=.status.from
// +kubebuilder:printcolumn:name=To,type=string,JSONPath=.status.to
// +kubebuilder:printcolumn:name=Nodes,type=string,JSONPath=.status.ready
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=.metadata.creationTimestamp
// +kubebuilder:printcolumn:name=Message,type=string,priority=1,JSONPath=.status.conditions[?(@.type=="Complete")].message
// +kubebuilder:validation:XValidation:rule=`size(self.metadata.name) <= 63`,message="metadata.name: at most 63 characters are allowed, since it becomes a label"
type StorageUpgrade struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message="cannot be changed; make another upgrade"
	Spec   StorageUpgradeSpec   `json:"spec"`
	Status StorageUpgradeStatus `json:"status,omitzero"`

	// DecodeError is for Unreadable. It is no field of the object.
	DecodeError string `json:"-"`
}

// StorageUpgradeSpec is what to bring.
//
// +kubebuilder:validation:XValidation:rule=`(has(self.image) && self.image != "") != (has(self.version) && self.version != "")`,message="give an image or a version"
type StorageUpgradeSpec struct {
	// Image to run.
	// +optional
	Image Image `json:"image,omitempty"`
	// Version is another tag of the image that runs.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9_][A-Za-z0-9._-]*)?$`
	Version string `json:"version,omitempty"`
	// Strategy is Rolling if empty: nothing that is mounted is disturbed. Offline stops the Deployments and
	// StatefulSets that use claims of Holdfast first and starts them again.
	// +optional
	// +kubebuilder:validation:Enum="";Rolling;Offline
	Strategy UpgradeStrategy `json:"strategy,omitempty"`
	// NodeTimeout for each node, such as 15m or 1h; 10 minutes if left out, or 0.
	// +optional
	NodeTimeout *Duration `json:"nodeTimeout,omitempty"`
	// Rollback is true if left out: when a step fails, what was changed is changed back.
	// +optional
	Rollback *bool `json:"rollback,omitempty"`
}

// UpgradeStrategy says whether those who use volumes go on meanwhile.
type UpgradeStrategy string

const (
	RollingUpgrade UpgradeStrategy = "Rolling"
	OfflineUpgrade UpgradeStrategy = "Offline"
)

// UpgradePhase is where a StorageUpgrade stands.
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
// +kubebuilder:validation:Enum=PullImage;PauseClusterCtrl;Preflight;UpgradeInit;ScaleDown;Nodes;NFSServers;Controller;ScaleUp;UpgradeComplete;RollBack
type UpgradeStep string

const (
	StepPullImage        UpgradeStep = "PullImage"
	StepPauseClusterCtrl UpgradeStep = "PauseClusterCtrl"
	StepPreflight        UpgradeStep = "Preflight"
	StepUpgradeInit      UpgradeStep = "UpgradeInit"
	StepScaleDown        UpgradeStep = "ScaleDown" // strategy Offline
	StepNodes            UpgradeStep = "Nodes"
	StepNFSServers       UpgradeStep = "NFSServers"
	StepController       UpgradeStep = "Controller"
	StepScaleUp          UpgradeStep = "ScaleUp" // strategy Offline
	StepUpgradeComplete  UpgradeStep = "UpgradeComplete"
	StepRollBack         UpgradeStep = "RollBack"
)

// StorageUpgradeStatus is how far it is. The controller goes on from here after a restart.
type StorageUpgradeStatus struct {
	// +optional
	Phase UpgradePhase `json:"phase,omitempty"`
	// Completed is true when the new image runs everywhere.
	// +optional
	Completed bool `json:"completed"`
	// Step at work, or the last one.
	// +optional
	Step UpgradeStep `json:"step,omitempty"`
	// From is the image that ran before.
	// +optional
	From Image `json:"from,omitempty"`
	// To is the image that is brought.
	// +optional
	To Image `json:"to,omitempty"`
	// Ready is DONE/ALL of the nodes.
	// +optional
	Ready string `json:"ready,omitempty"`
	// Node at work.
	// +optional
	Node string `json:"node,omitempty"`
	// NodeStartTime is when the node at work was begun.
	// +optional
	NodeStartTime *metav1.Time `json:"nodeStartTime,omitempty"`
	// Steps that were begun, in their order.
	// +optional
	// +listType=map
	// +listMapKey=name
	Steps []UpgradeStepStatus `json:"steps,omitempty"`
	// Conditions are Complete and Failed.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// UpgradeStepStatus is one step.
type UpgradeStepStatus struct {
	Name      UpgradeStep `json:"name"`
	StartTime metav1.Time `json:"startTime"`
	// EndTime is missing while it works.
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`
	// Message says what it did, or why it failed.
	// +optional
	Message string `json:"message,omitempty"`
}

// StorageUpgradeList is a list of upgrades.
//
// +kubebuilder:object:root=true
type StorageUpgradeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []StorageUpgrade `json:"items"`
}
