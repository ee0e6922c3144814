package v1beta1

import core "k8s.io/api/core/v1"

// ControllerKind is the kind of the controller's workload.
// +kubebuilder:validation:Enum="";Deployment;StatefulSet
type ControllerKind string

const (
	AsDeployment  ControllerKind = "Deployment"
	AsStatefulSet ControllerKind = "StatefulSet"
)

// PodSettings are what the pods of one component have beside what all pods have.
type PodSettings struct {
	// priorityClassName instead of that of all pods.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$')`,message="it must be a name of lowercase letters, digits, - and ., such as system-cluster-critical"
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// podAnnotations of the pods.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	PodAnnotations map[string]string `json:"podAnnotations,omitempty"`
	// podLabels beside those by which Holdfast finds its pods, app.kubernetes.io/name and app.kubernetes.io/component.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule=`!self.exists(key, key in ['app.kubernetes.io/name', 'app.kubernetes.io/component'])`,message="app.kubernetes.io/name and app.kubernetes.io/component are the labels by which Holdfast finds its pods: leave them out"
	PodLabels map[string]string `json:"podLabels,omitempty"`
	// resources of the container holdfast, instead of those of all pods.
	// +optional
	Resources core.ResourceRequirements `json:"resources,omitzero"`
}

// ControllerSpec is the workload of the controller, and what its pods have beside what all pods have.
//
// +kubebuilder:validation:XValidation:rule=`!has(self.kind) || self.kind != "StatefulSet" || !has(self.replicas) || self.replicas >= 2`,fieldPath=.replicas,message="a StatefulSet needs at least 2: it replaces its pods in place, so the only one would be gone while a new one does not become ready"
type ControllerSpec struct {
	PodSettings `json:",inline"`

	// kind of the workload. Empty means Deployment, of which a new pod is ready before an old one goes. A StatefulSet
	// replaces its pods in place, and so needs at least 2 replicas.
	// +optional
	Kind ControllerKind `json:"kind,omitempty"`
	// replicas of the pod, of which one leads; 2 if left out.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9
	Replicas *int32 `json:"replicas,omitempty"`
	// affinity of the pods.
	// +optional
	Affinity *core.Affinity `json:"affinity,omitempty"`
	// nodeSelector is added to kubernetes.io/os: linux.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// tolerations are added to those of all pods.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Tolerations []core.Toleration `json:"tolerations,omitempty"`
	// topologySpreadConstraints replace the built-in one, which spreads the pods over the nodes where it can. One without
	// a labelSelector counts the pods of the controller.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	TopologySpreadConstraints []core.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`
	// extraArgs are added to the arguments of holdfast controller, such as --stop-timeout=1m. Those that have a field of
	// their own, or that the pods depend on, are refused.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=512
	ExtraArgs []string `json:"extraArgs,omitempty"`
}
