package web

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

var nodeOrders = orders[*v1beta1.StorageNode]{
	"phase": func(a, b *v1beta1.StorageNode) int { // the worst last
		return cmp.Compare(slices.Index(nodePhases, phaseOf(a)), slices.Index(nodePhases, phaseOf(b)))
	},
	"version": func(a, b *v1beta1.StorageNode) int { return strings.Compare(a.Status.Version, b.Status.Version) },
}

var poolOrders = orders[Pool]{
	"pool":      func(a, b Pool) int { return strings.Compare(a.Name, b.Name) },
	"capacity":  func(a, b Pool) int { return cmp.Compare(a.Capacity, b.Capacity) },
	"promised":  func(a, b Pool) int { return cmp.Compare(a.Promised, b.Promised) },
	"used":      func(a, b Pool) int { return cmp.Compare(a.Used, b.Used) },
	"available": func(a, b Pool) int { return cmp.Compare(a.Available, b.Available) },
	"volumes":   func(a, b Pool) int { return cmp.Compare(a.Volumes, b.Volumes) },
	"use": func(a, b Pool) int {
		return cmp.Compare(share(a.Used, a.Capacity), share(b.Used, b.Capacity))
	},
}

var volumeOrders = orders[*v1beta1.Volume]{
	"claim": func(a, b *v1beta1.Volume) int {
		return strings.Compare(a.Spec.ClaimRef.String(), b.Spec.ClaimRef.String())
	},
	"node": func(a, b *v1beta1.Volume) int { return strings.Compare(a.Spec.Node, b.Spec.Node) },
	"pool": func(a, b *v1beta1.Volume) int { return strings.Compare(a.PoolName(), b.PoolName()) },
	"size": func(a, b *v1beta1.Volume) int {
		return cmp.Compare(v1beta1.Bytes(a.Status.Size), v1beta1.Bytes(b.Status.Size))
	},
	"used": func(a, b *v1beta1.Volume) int {
		return cmp.Compare(v1beta1.Bytes(a.Status.Used), v1beta1.Bytes(b.Status.Used))
	},
	"use": func(a, b *v1beta1.Volume) int { return cmp.Compare(useOf(a), useOf(b)) },
	"phase": func(a, b *v1beta1.Volume) int {
		return cmp.Compare(badness(a.Status.Phase, a.Status.Conditions), badness(b.Status.Phase, b.Status.Conditions))
	},
	"creationTime": func(a, b *v1beta1.Volume) int {
		return moment(a.Status.CreationTime).Compare(moment(b.Status.CreationTime))
	},
}

var snapshotOrders = orders[*v1beta1.Snapshot]{
	"volume": func(a, b *v1beta1.Snapshot) int { return strings.Compare(a.Spec.SourceRef.Name, b.Spec.SourceRef.Name) },
	"node":   func(a, b *v1beta1.Snapshot) int { return strings.Compare(a.Spec.Node, b.Spec.Node) },
	"pool":   func(a, b *v1beta1.Snapshot) int { return strings.Compare(a.Status.Pool, b.Status.Pool) },
	"size": func(a, b *v1beta1.Snapshot) int {
		return cmp.Compare(v1beta1.Bytes(a.Status.Size), v1beta1.Bytes(b.Status.Size))
	},
	"used": func(a, b *v1beta1.Snapshot) int {
		return cmp.Compare(v1beta1.Bytes(a.Status.Used), v1beta1.Bytes(b.Status.Used))
	},
	"phase": func(a, b *v1beta1.Snapshot) int {
		return cmp.Compare(badness(a.Status.Phase, a.Status.Conditions), badness(b.Status.Phase, b.Status.Conditions))
	},
	"creationTime": func(a, b *v1beta1.Snapshot) int {
		return moment(a.Status.CreationTime).Compare(moment(b.Status.CreationTime))
	},
}

var serverOrders = orders[*v1beta1.NFSServer]{
	"phase": func(a, b *v1beta1.NFSServer) int {
		return cmp.Compare(slices.Index(serverPhases, a.Status.Phase), slices.Index(serverPhases, b.Status.Phase))
	},
	"node": func(a, b *v1beta1.NFSServer) int { return strings.Compare(a.Status.Node, b.Status.Node) },
	"capacity": func(a, b *v1beta1.NFSServer) int {
		return cmp.Compare(v1beta1.Bytes(a.Status.Capacity), v1beta1.Bytes(b.Status.Capacity))
	},
	"promised": func(a, b *v1beta1.NFSServer) int {
		return cmp.Compare(v1beta1.Bytes(a.Status.Promised), v1beta1.Bytes(b.Status.Promised))
	},
	"exports": func(a, b *v1beta1.NFSServer) int { return cmp.Compare(a.Status.Exports, b.Status.Exports) },
	"clients": func(a, b *v1beta1.NFSServer) int { return cmp.Compare(a.Status.Clients, b.Status.Clients) },
}

func useOf(v *v1beta1.Volume) float64 {
	return share(v1beta1.Bytes(v.Status.Used), v1beta1.Bytes(v.Status.Size))
}

// byBadness are the phases, the best first.
var byBadness = []v1beta1.Phase{v1beta1.PhaseReady, v1beta1.PhasePending, v1beta1.PhaseDeleting, v1beta1.PhaseUnreachable, v1beta1.PhaseFailed, v1beta1.PhaseLost}

// badness of a volume that is ready and damaged is more than that of one being made.
func badness(phase v1beta1.Phase, conditions []metav1.Condition) int {
	bad := 2 * slices.Index(byBadness, orPending(phase))
	for _, c := range conditions {
		if c.Type == v1beta1.HealthyCondition && c.Status == metav1.ConditionFalse {
			return max(bad, 5)
		}
	}
	return bad
}

func moment(t *metav1.MicroTime) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}
