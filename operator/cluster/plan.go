package cluster

import (
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
)

// task is what a pass does with a StorageCluster.
type task int

const (
	taskWait     task = iota // the cache has just lost the one that is served
	taskHandOver             // it is being deleted, and another one has its place
	taskKeepLast             // it cannot be decoded: what the last spec requested stays
	taskRefuse               // another one is served
	taskRemove
	taskReport // it is paused: nothing but the status is written
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

// plan is what else is to be done once the objects were applied, decided from what is observed then. It neither reads nor
// writes anything.
type plan struct {
	replacePods      bool              // of the nodes, by package rollout
	attacherRuns     bool              // external-attacher, or it is to
	releaseFinalizer bool              // of external-attacher, whose pods are gone
	shared           map[string]string // the label of each Node that says whether shared volumes can be mounted there
	again            time.Duration
}

// failed says that an object could not be applied or removed.
func (s *situation) plan(failed bool) plan {
	p := plan{
		replacePods:  s.nodeSet != nil && s.nodeSet.DeletionTimestamp == nil,
		attacherRuns: s.cluster.Spec.CSI.AttachRequired && s.withCSI(),
		shared:       s.sharedLabels(),
	}
	// Pods of the other workload may still run one.
	p.releaseFinalizer = !p.attacherRuns && s.invalid == nil && !failed && s.controller().ready && len(s.controllers) == 1
	if failed {
		p.again = kube.RetryRefused
	}
	return p
}

// keeps says what is not removed. What replaces an object must be there: of a kind of which an object could not be applied
// none is removed, and the controller's old workload serves until the new one does.
func (s *situation) keeps(objects []*unstructured.Unstructured, failures []apply.Failure) func(*unstructured.Unstructured) bool {
	desired := apply.Keeping(objects)
	return func(o *unstructured.Unstructured) bool {
		return desired(o) || slices.ContainsFunc(failures, func(f apply.Failure) bool { return f.Kind == o.GetKind() }) ||
			isControllerWorkload(o) && !s.controller().ready
	}
}

// sharedLabels are those that Nodes do not have as their agents have found. Where no agent has said anything, the label
// stays as it is. The kubelet cannot say it: it would refuse the whole driver when the value changes.
func (s *situation) sharedLabels() map[string]string {
	change := map[string]string{}
	for name, n := range s.storageNodes {
		node := s.allNodes[name]
		can := canMountShared(n)
		if value := strconv.FormatBool(can == metav1.ConditionTrue); node != nil && can != metav1.ConditionUnknown && node.Labels[v1beta1.SharedVolumesKey] != value {
			change[name] = value
		}
	}
	return change
}

// rolloutAgain is when a node that has been away for its new pod counts as lost.
func (s *situation) rolloutAgain() time.Duration {
	if !s.rolling() || s.rollout.Since.IsZero() {
		return 0
	}
	return rollingLasts - s.now.Sub(s.rollout.Since)
}
