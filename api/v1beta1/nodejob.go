package v1beta1

import (
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeJob runs a container once on each node that it selects. The nodes are selected when it starts. Its pods are in
// the namespace of Holdfast and are deleted with it.
//
// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=hfj,categories=holdfast
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=.status.conditions[?(@.type=="Ready")].status
// +kubebuilder:printcolumn:name=Phase,type=string,JSONPath=.status.phase
// +kubebuilder:printcolumn:name=Nodes,type=integer,JSONPath=.status.desiredNodes
// +kubebuilder:printcolumn:name=Succeeded,type=integer,JSONPath=.status.succeededNodes
// +kubebuilder:printcolumn:name=Image,type=string,JSONPath=.spec.image
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=.metadata.creationTimestamp
// +kubebuilder:printcolumn:name=Message,type=string,priority=1,JSONPath=.status.conditions[?(@.type=="Ready")].message
// +kubebuilder:validation:XValidation:rule=`size(self.metadata.name) <= 63`,message="metadata.name: at most 63 characters are allowed, since it becomes a label"
type NodeJob struct {
	metav1.TypeMeta `json:",inline"`
	// metadata of the object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says what runs, and on which nodes.
	// +required
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message="cannot be changed; make another job"
	Spec NodeJobSpec `json:"spec"`
	// status is written by the controller; until then Ready is Unknown.
	// +optional
	// +default={"conditions": [{"type": "Ready", "status": "Unknown", "reason": "Pending", "message": "waiting for the controller", "lastTransitionTime": "1970-01-01T00:00:00Z"}]}
	Status NodeJobStatus `json:"status,omitzero"`

	Decoding `json:"-"`
}

// NodeJobSpec says what runs, and on which nodes.
//
// +kubebuilder:validation:XValidation:rule=`(has(self.hostPath) && self.hostPath != "") == (has(self.mountPath) && self.mountPath != "")`,message="hostPath and mountPath belong together"
// +kubebuilder:validation:XValidation:rule=`has(self.task) && self.task != "" ? !has(self.image) && !has(self.command) && !has(self.args) && !has(self.hostPath) : has(self.image) && self.image != ""`,message="give an image, or a task, which brings its own image, command and directory"
type NodeJobSpec struct {
	// task is a job that Holdfast provides: Cleanup wipes the directory of the pool that spec.pool names, unless the node
	// has volumes; Pull pulls taskImage to the node.
	// +optional
	Task NodeTask `json:"task,omitempty"`
	// pool that the task Cleanup wipes.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9][a-z0-9-]{0,62}(\.[0-9]{1,2})?)?$`
	Pool string `json:"pool,omitempty"`
	// taskImage is the image that the task Pull pulls.
	// +optional
	TaskImage Image `json:"taskImage,omitempty"`
	// image of the container: for what a node needs before it stores and its own tools do not do, such as a module or a
	// mount.
	// +optional
	Image Image `json:"image,omitempty"`
	// command of the container, in place of the image's.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Command []string `json:"command,omitempty"`
	// args of the command.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Args []string `json:"args,omitempty"`
	// hostPath is a directory of the node.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^(/[A-Za-z0-9._-]+)*/?$`
	// +kubebuilder:validation:XValidation:rule=`!self.split('/').exists(s, s == '..')`,message="write the directory without .."
	HostPath string `json:"hostPath,omitempty"`
	// mountPath is where hostPath is mounted in the container.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^(/[A-Za-z0-9._-]+)*$`
	// +kubebuilder:validation:XValidation:rule=`!self.split('/').exists(s, s == '..')`,message="write the directory without .."
	MountPath string `json:"mountPath,omitempty"`
	// completionWord in the log means that a node has succeeded, even if the container keeps running. A container that
	// has ended may have left it in its termination message instead, /dev/termination-log, which is kept while no
	// controller runs and the log is rotated. If empty, exit code 0 means success.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	CompletionWord string `json:"completionWord,omitempty"`
	// nodeSelectorTerms choose nodes: one that a term matches. Without terms the job runs on each node of Linux.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	NodeSelectorTerms []core.NodeSelectorTerm `json:"nodeSelectorTerms,omitempty"`
	// tolerations let it run on nodes with taints; a node with a taint that is not tolerated is not selected.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Tolerations []core.Toleration `json:"tolerations,omitempty"`
	// timeout for each node, such as 90s, 15m or 1d; 10 minutes if left out, or 0.
	// +optional
	Timeout *Duration `json:"timeout,omitempty"`
	// backoffLimit is how often a node that failed is retried; 3 if left out.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=20
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`
	// privileged gives the container all rights on the node.
	// +optional
	Privileged bool `json:"privileged,omitempty"`
}

// NodeTask is a job that Holdfast provides.
// +kubebuilder:validation:Enum="";Cleanup;Pull
type NodeTask string

const (
	CleanupTask NodeTask = "Cleanup"
	PullTask    NodeTask = "Pull"
)

// JobPhase is the state of a NodeJob, or of one of its nodes.
// +kubebuilder:validation:Enum=Pending;Running;Completed;Failed
type JobPhase string

const (
	JobPending   JobPhase = "Pending"
	JobRunning   JobPhase = "Running"
	JobCompleted JobPhase = "Completed"
	JobFailed    JobPhase = "Failed"
)

// NodeJobStatus is the progress.
type NodeJobStatus struct {
	// phase sums the conditions up for people.
	// +optional
	Phase JobPhase `json:"phase,omitempty"`
	// completed is true when every node is done.
	// +optional
	Completed bool `json:"completed"`
	// desiredNodes is how many nodes were selected.
	// +optional
	DesiredNodes int32 `json:"desiredNodes"`
	// succeededNodes is on how many of them it has succeeded.
	// +optional
	SucceededNodes int32 `json:"succeededNodes"`
	// nodes that were selected when the job started.
	// +optional
	// +listType=map
	// +listMapKey=name
	Nodes []NodeResult `json:"nodes,omitempty"`
	// startTime is when the nodes were selected.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// completionTime is when the last node was done, or had failed.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// conditions are Ready, Complete and Failed, and Stalled where it failed.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// NodeResult is the result of a job on one node.
type NodeResult struct {
	// name of the node.
	// +required
	Name string `json:"name"`
	// phase of the job on the node.
	// +required
	Phase JobPhase `json:"phase"`
	// attempts that were started.
	// +optional
	Attempts int32 `json:"attempts"`
	// startTime is when the running attempt, or the last one, was started.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// exitCode of the container that ended last.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
	// message says why it failed.
	// +optional
	Message string `json:"message,omitempty"`
	// log is the end of the container's log.
	// +optional
	Log string `json:"log,omitempty"`
}

// NodeJobList is a list of jobs.
//
// +kubebuilder:object:root=true
type NodeJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items of the list.
	Items []NodeJob `json:"items"`
}
