// Package v1 holds the kinds of Holdfast: what a cluster is asked for, and what its nodes answer.
//
// The spec of an object is written by whoever wants something, its status only by the agent of its node.
//
// +kubebuilder:object:generate=true
// +groupName=holdfast.dev
package v1
