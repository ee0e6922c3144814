package v1

import (
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeJob runs a container once on each node that it selects. Which nodes these are is settled when it starts. Its pods
// are in the namespace of Holdfast and go with it.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=hfj,categories=holdfast
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Phase,type=string,JSONPath=.status.phase
// +kubebuilder:printcolumn:name=Nodes,type=string,JSONPath=.status.done
// +kubebuilder:printcolumn:name=Image,type=string,JSONPath=.spec.image
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=.metadata.creationTimestamp
// +kubebuilder:printcolumn:name=Message,type=string,priority=1,JSONPath=.status.conditions[?(@.type=="Complete")].message
// +kubebuilder:validation:XValidation:rule=`size(self.metadata.name) <= 63`,message="metadata.name: at most 63 characters are allowed, since it becomes a label"
type NodeJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message="cannot be changed; make another job"
	Spec   NodeJobSpec   `json:"spec"`
	Status NodeJobStatus `json:"status,omitzero"`

	// DecodeError is for Unreadable. It is no field of the object.
	DecodeError string `json:"-"`
}

// NodeJobSpec is what runs, and where.
//
// +kubebuilder:validation:XValidation:rule=`(has(self.hostPath) && self.hostPath != "") == (has(self.mountPath) && self.mountPath != "")`,message="hostPath and mountPath belong together"
// +kubebuilder:validation:XValidation:rule=`has(self.task) && self.task != "" ? !has(self.image) && !has(self.command) && !has(self.args) && !has(self.hostPath) : has(self.image) && self.image != ""`,message="give an image, or a task, which brings its own image, command and directory"
type NodeJobSpec struct {
	// Task is something that Holdfast brings: cleanup wipes the directory of the pool that Pool names, unless the node
	// has volumes; pull brings TaskImage to the node.
	// +optional
	// +kubebuilder:validation:Enum="";cleanup;pull
	Task string `json:"task,omitempty"`
	// Pool that the task cleanup wipes.
	// +optional
	// +kubebuilder:validation:Pattern=`^([a-z0-9][a-z0-9-]{0,62})?$`
	Pool string `json:"pool,omitempty"`
	// TaskImage is what the task pull brings.
	// +optional
	TaskImage Image `json:"taskImage,omitempty"`
	// +optional
	Image Image `json:"image,omitempty"`
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Command []string `json:"command,omitempty"`
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Args []string `json:"args,omitempty"`
	// HostPath is a directory of the node.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^(/[A-Za-z0-9._-]+)*/?$`
	// +kubebuilder:validation:XValidation:rule=`!self.split('/').exists(s, s == '..')`,message="write the directory without .."
	HostPath string `json:"hostPath,omitempty"`
	// MountPath is where the container finds HostPath.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^(/[A-Za-z0-9._-]+)*$`
	// +kubebuilder:validation:XValidation:rule=`!self.split('/').exists(s, s == '..')`,message="write the directory without .."
	MountPath string `json:"mountPath,omitempty"`
	// CompletionWord in the log says that a node is done, even if the container goes on. A container that has ended may
	// have left it in its termination message instead, /dev/termination-log, which is kept while no controller runs and
	// the log is rotated. If empty, exit code 0 says so.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	CompletionWord string `json:"completionWord,omitempty"`
	// LabelSelector chooses nodes by their labels.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
	// NodeSelectorTerms choose nodes: one that a term matches. Both selectors must choose a node if both are given.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	NodeSelectorTerms []core.NodeSelectorTerm `json:"nodeSelectorTerms,omitempty"`
	// Tolerations let it run on nodes with taints; a node with a taint that is not tolerated is not selected.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Tolerations []core.Toleration `json:"tolerations,omitempty"`
	// Timeout for each node, such as 90s, 15m or 1d; 10 minutes if left out, or 0.
	// +optional
	Timeout *Duration `json:"timeout,omitempty"`
	// BackoffLimit is how often a node that failed is tried again; 3 if left out.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=20
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`
	// +optional
	Privileged bool `json:"privileged,omitempty"`
}

// JobPhase is where a NodeJob, or one of its nodes, stands.
// +kubebuilder:validation:Enum=Pending;Running;Completed;Failed
type JobPhase string

const (
	JobPending   JobPhase = "Pending"
	JobRunning   JobPhase = "Running"
	JobCompleted JobPhase = "Completed"
	JobFailed    JobPhase = "Failed"
)

// NodeJobStatus is how far it is.
type NodeJobStatus struct {
	// +optional
	Phase JobPhase `json:"phase,omitempty"`
	// Completed is true when every node is done.
	// +optional
	Completed bool `json:"completed"`
	// Done is DONE/ALL of the nodes.
	// +optional
	Done string `json:"done,omitempty"`
	// Nodes that were selected when the job started.
	// +optional
	// +listType=map
	// +listMapKey=name
	Nodes []NodeResult `json:"nodes,omitempty"`
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// Conditions are Complete and Failed.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// NodeResult is what came of a job on one node.
type NodeResult struct {
	Name  string   `json:"name"`
	Phase JobPhase `json:"phase"`
	// Attempts that were begun.
	// +optional
	Attempts int32 `json:"attempts"`
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Message says why it failed.
	// +optional
	Message string `json:"message,omitempty"`
	// Log is the end of what the container wrote.
	// +optional
	Log string `json:"log,omitempty"`
}

// NodeJobList is a list of jobs.
//
// +kubebuilder:object:root=true
type NodeJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NodeJob `json:"items"`
}
