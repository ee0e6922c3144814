// Package v1beta1 holds the kinds of Holdfast: the desired state of a cluster, and the state that its nodes report.
//
// The spec of an object is written by its users and the controller, its status only by the agent of its node.
//
// +kubebuilder:object:generate=true
// +groupName=holdfast.dev
package v1beta1
