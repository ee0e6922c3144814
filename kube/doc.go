// Package kube is what every process of Holdfast needs of Kubernetes, and what client-go does not have: the loop that
// reconciles, reading one's own writes, finalizers and status, conditions, events that are written once, a secret that is
// followed, a Lease that is given up last, and objects that cannot be decoded.
package kube
