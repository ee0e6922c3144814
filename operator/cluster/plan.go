package cluster

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

// task is what a pass does with a StorageCluster.
type task int

const (
	taskWait     task = iota // the served one was just deleted from the cache
	taskHandOver             // it is being deleted, and another one is served
	taskKeepLast             // it cannot be decoded: what the last spec requested stays
	taskRefuse               // another one is served
	taskRemove
	taskReport // it is paused: only its status is written, and the labels of Nodes, which say what agents report
	taskMaintain
)

func taskFor(c, served *v1beta1.StorageCluster) task {
	switch {
	case served == nil:
		return taskWait
	case served.UID != c.UID && c.DeletionTimestamp != nil:
		return taskHandOver
	case c.Unreadable() != nil:
		return taskKeepLast
	case served.UID != c.UID:
		return taskRefuse
	case c.DeletionTimestamp != nil:
		return taskRemove
	case c.Spec.Paused:
		return taskReport
	}
	return taskMaintain
}

// plan is what to do after the objects were applied, decided from what is observed then.
type plan struct {
	replacePods      bool                      // of the nodes, by package rollout
	attacherRuns     bool                      // external-attacher runs or should run
	releaseFinalizer bool                      // of external-attacher, whose pods are gone
	labels           map[string]map[string]any // to change on Nodes
	again            time.Duration
}

// plan decides. failed says that an object could not be applied or removed.
func (s *situation) plan(failed bool) plan {
	p := plan{
		replacePods:  s.world.DaemonSet != nil && s.world.DaemonSet.DeletionTimestamp == nil,
		attacherRuns: s.cluster.Spec.Attaches() && s.withCSI(),
		labels:       s.clientLabels(),
	}
	// Pods of the other workload may still run external-attacher.
	p.releaseFinalizer = !p.attacherRuns && s.invalid == nil && !failed && s.controller().Ready && len(s.controllers) == 1
	if failed {
		p.again = kube.RetryRefused
	}
	return p
}

// keeps returns what to keep when pruning. A replacement must exist before the old object is removed: if an object could
// not be applied, all of its kind are kept, and the controller's old workload stays until the new one is ready.
func (s *situation) keeps(objects []*unstructured.Unstructured, failures []apply.Failure) func(*unstructured.Unstructured) bool {
	desired := apply.Keeping(objects)
	return func(o *unstructured.Unstructured) bool {
		return desired(o) || slices.ContainsFunc(failures, func(f apply.Failure) bool { return f.Kind == o.GetKind() }) ||
			isControllerWorkload(o) && !s.controller().Ready
	}
}

// rolloutAgain is when a node that has been away for its new pod counts as lost.
func (s *situation) rolloutAgain() time.Duration {
	if !s.rolling() || s.rollout.Since.IsZero() {
		return 0
	}
	return rollingLasts - s.now.Sub(s.rollout.Since)
}
