// Package kube adds to client-go what every process of Holdfast needs: the reconcile loop, read-your-writes, writes of
// finalizers and status, conditions, deduplicated events, a watch of one secret, leader election that releases its
// Lease last, and the handling of objects that cannot be decoded.
package kube
