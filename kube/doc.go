// Package kube has what every process of Holdfast needs beside client-go: the reconcile loop, read-your-writes,
// finalizers and status, conditions, events that are written once, a watch of one secret, a Lease that is released
// last, and objects that cannot be decoded.
package kube
