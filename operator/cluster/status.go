package cluster

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/held"
	"github.com/holdfast-storage/holdfast/operator/render"
)

// The reasons of the conditions.
const (
	reasonAvailable    = "Available"
	reasonCreating     = "Creating" // until everything was ready once
	reasonUpToDate     = "UpToDate"
	reasonHealthy      = "Healthy"
	reasonNoNodes      = "NoNodes"
	reasonNodes        = "NodesNotReady"
	reasonLeftOut      = "NodesLeftOut"
	reasonHidden       = "VolumesHidden" // they would be hidden, so the spec is not applied
	reasonUnreachable  = "VolumesUnreachable"
	reasonController   = "ControllerNotReady"
	reasonRollingOut   = "RollingOut"
	reasonStuck        = "RolloutStuck"
	reasonCephPools    = "CephPoolsNotReady"
	reasonInvalid      = "InvalidSpec"
	reasonNotApplied   = "NotApplied"
	reasonForeign      = "NameTaken"
	reasonPaused       = "Paused"
	reasonUpgrading    = "Upgrading"
	reasonRefused      = "Refused"
	reasonVolumesExist = "VolumesExist"
	reasonTerminating  = "Terminating"
	reasonImagePinned  = "ImagePinned"
	reasonNoRoom       = "NoRoom"
)

// status computes the status from what is observed and from the previous status.
func (s *situation) status() v1beta1.StorageClusterStatus {
	old := s.cluster.Status
	next := *old.DeepCopy()
	next.ObservedGeneration = s.cluster.Generation
	next.Volumes, next.Snapshots, next.Pools = int32(s.volumes), int32(s.snapshots), s.held
	var nodes []v1beta1.NodeHealth
	if s.withCSI() {
		nodes = s.health()
	}
	next.DesiredNodes, next.ReadyNodes = int32(len(nodes)), int32(len(nodes)-len(unready(nodes)))
	next.Version, next.OldestVersion = versions(nodes)
	next.Nodes = ailing(nodes)
	next.Images = s.images()
	next.Upgrade = s.cluster.Annotations[v1beta1.PausedByAnnotation]
	v := s.verdict(&next, nodes)
	next.Phase = v.phase
	for _, c := range []metav1.Condition{v.available, v.progressing, v.degraded, s.protected} {
		s.set(&next, c)
	}
	meta.SetStatusCondition(&next.Conditions, kube.Ready(next.Conditions))
	stalls := []string{reasonHidden, reasonForeign}
	if !errors.Is(s.invalid, render.ErrSecret) {
		stalls = append(stalls, reasonInvalid)
	}
	kube.Stall(&next.Conditions, stalls...)
	s.setReleaseIgnored(&next)
	s.setEphemeralNotAllowed(&next)
	s.setPoolsFull(&next)
	return next
}

// mostNodes limits the list of nodes in the status, which otherwise grows with the cluster.
const mostNodes = 100

// ailing returns the nodes that need attention.
func ailing(nodes []v1beta1.NodeHealth) []v1beta1.NodeHealth {
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n v1beta1.NodeHealth) bool { return n.Ready && n.Message == "" })
	return nodes[:min(len(nodes), mostNodes)]
}

func (s *situation) set(next *v1beta1.StorageClusterStatus, c metav1.Condition) {
	c.ObservedGeneration = s.cluster.Generation
	c.Message = kube.Shorten(c.Message, kube.LongestMessage)
	meta.SetStatusCondition(&next.Conditions, c)
}

func (s *situation) images() v1beta1.Images {
	images := s.release.Images(s.cluster)
	if !s.cluster.Spec.Attaches() || !s.withCSI() {
		images.CSIAttacher = ""
	}
	if !s.withCSI() {
		images.CSIProvisioner, images.CSIResizer, images.CSISnapshotter, images.CSINodeDriverRegistrar, images.CSILivenessProbe = "", "", "", "", ""
	}
	if s.world.DaemonSet != nil {
		images.Holdfast = cmp.Or(render.ImageOf(&s.world.DaemonSet.Spec.Template.Spec), images.Holdfast)
	}
	return images
}

// verdict computes the conditions from the counts.
type verdict struct {
	phase                            v1beta1.ClusterPhase
	available, progressing, degraded metav1.Condition
}

func (s *situation) verdict(next *v1beta1.StorageClusterStatus, nodes []v1beta1.NodeHealth) verdict {
	wasComplete := wasComplete(&s.cluster.Status)
	ready, total := int(next.ReadyNodes), int(next.DesiredNodes)
	complete := ready == total && s.controller().Ready && !s.rollout.Stuck
	rolling := s.rolling() && slices.Equal(unready(nodes), []string{s.rollout.Node})

	v := verdict{
		available:   s.available(ready, total, complete || wasComplete),
		progressing: s.progressing(next, complete),
		degraded:    kube.NewCondition(v1beta1.DegradedCondition, false, reasonHealthy, ""),
	}
	switch reason, message := s.fault(); {
	case reason != "":
		v.degraded = kube.NewCondition(v1beta1.DegradedCondition, true, reason, message)
	case s.rollout.Stuck:
		v.degraded = kube.NewCondition(v1beta1.DegradedCondition, true, reasonStuck, s.stuck())
	case wasComplete && s.controller().Failed:
		v.degraded = kube.NewCondition(v1beta1.DegradedCondition, true, reasonController, s.controller().Waiting)
	case wasComplete && ready < total && !rolling:
		v.degraded = kube.NewCondition(v1beta1.DegradedCondition, true, reasonNodes, complaints(nodes))
	case len(s.ailingSites()) > 0:
		v.degraded = kube.NewCondition(v1beta1.DegradedCondition, true, reasonCephPools, kube.Few(s.ailingSites(), mostNamed, ". ", ". and %d more pools"))
	case len(s.leftOut) > 0:
		v.degraded = kube.NewCondition(v1beta1.DegradedCondition, true, reasonLeftOut, s.stranded())
	case len(s.unreachable) > 0:
		v.degraded = kube.NewCondition(v1beta1.DegradedCondition, true, reasonUnreachable, s.notReached())
	}
	if len(s.unreachable) > 0 && v.degraded.Status == metav1.ConditionTrue && v.degraded.Reason != reasonUnreachable {
		v.degraded.Message += ". " + s.notReached()
	}
	v.phase = s.phase(v, complete || rolling && wasComplete, wasComplete, total)
	return v
}

// rollingLasts is how long a node may be unready with a new pod before it counts as lost.
const rollingLasts = 2 * time.Minute

// rolling says whether a node is unready for its new pod, and not for too long.
func (s *situation) rolling() bool {
	return s.rollout.Node != "" && !s.rollout.Stuck && (s.rollout.Since.IsZero() || s.now.Sub(s.rollout.Since) < rollingLasts)
}

func (s *situation) phase(v verdict, complete, wasComplete bool, total int) v1beta1.ClusterPhase {
	faulty := v.degraded.Status == metav1.ConditionTrue
	switch {
	case s.cluster.DeletionTimestamp != nil:
		return v1beta1.ClusterTerminating
	case s.cluster.Spec.Paused && s.cluster.Annotations[v1beta1.PausedByAnnotation] != "":
		return v1beta1.ClusterUpgrading
	case s.cluster.Spec.Paused:
		return v1beta1.ClusterPaused
	case s.withCSI() && total == 0:
		return v1beta1.ClusterPending
	case faulty && (wasComplete || complete):
		return v1beta1.ClusterDegraded
	case faulty:
		return v1beta1.ClusterPending
	case complete:
		return v1beta1.ClusterRunning
	case wasComplete && s.onlyControllerMoves(v):
		return v1beta1.ClusterRunning
	case wasComplete:
		return v1beta1.ClusterDegraded
	}
	return v1beta1.ClusterCreating
}

// onlyControllerMoves says whether only new pods of the controller are starting, beside the old ones.
func (s *situation) onlyControllerMoves(v verdict) bool {
	return v.available.Status == metav1.ConditionTrue && s.controllerAvailable() && !s.controller().Ready && v.degraded.Status == metav1.ConditionFalse
}

// wasComplete says whether everything was ready once.
func wasComplete(old *v1beta1.StorageClusterStatus) bool {
	c := meta.FindStatusCondition(old.Conditions, v1beta1.AvailableCondition)
	return c != nil && (c.Reason == reasonAvailable || c.Reason == reasonNodes || c.Reason == reasonController)
}

func (s *situation) available(ready, total int, ever bool) metav1.Condition {
	is := func(status bool, reason, format string, args ...any) metav1.Condition {
		return kube.NewCondition(v1beta1.AvailableCondition, status, reason, fmt.Sprintf(format, args...))
	}
	switch {
	case s.cluster.DeletionTimestamp != nil && s.leaving != "":
		return is(false, reasonTerminating, "waiting for %s", s.leaving)
	case s.withCSI() && total == 0:
		return is(false, reasonNoNodes, "no node matches %s: label a node, or change the selector", s.selector())
	case !s.controllerAvailable() && ever:
		return is(false, reasonController, "waiting for %s", s.controller().Waiting)
	case !s.controllerAvailable():
		return is(false, reasonCreating, "waiting for %s", s.controller().Waiting)
	case s.withCSI() && ready == 0 && ever:
		return is(false, reasonNodes, "none of %d nodes is ready", total)
	case s.withCSI() && ready == 0:
		return is(false, reasonCreating, "none of %d nodes is ready yet", total)
	case !ever:
		return is(true, reasonCreating, "%d of %d nodes are ready", ready, total)
	}
	return is(true, reasonAvailable, "%d of %d nodes are ready", ready, total)
}

func (s *situation) progressing(next *v1beta1.StorageClusterStatus, complete bool) metav1.Condition {
	is := func(status bool, reason, format string, args ...any) metav1.Condition {
		return kube.NewCondition(v1beta1.ProgressingCondition, status, reason, fmt.Sprintf(format, args...))
	}
	fault, message := s.fault()
	switch {
	case s.cluster.DeletionTimestamp != nil && s.leaving != "":
		return is(true, reasonTerminating, "waiting for %s", s.leaving)
	case s.cluster.DeletionTimestamp != nil:
		return is(false, reasonVolumesExist, "%s", s.lost(s.cluster.Spec.DeletionPolicy == v1beta1.OrphanVolumes))
	case s.cluster.Spec.Paused && next.Upgrade != "":
		return is(true, reasonUpgrading, "StorageUpgrade %s is running", next.Upgrade)
	case s.cluster.Spec.Paused:
		return is(false, reasonPaused, "spec.paused is set: nothing is changed or repaired")
	case s.handingTo != "":
		return is(true, reasonUpgrading, "release %s was installed: nothing is changed until its controller leads", s.handingTo)
	case fault != "":
		return is(false, fault, "%s", message)
	case s.rollout.Stuck:
		return is(false, reasonStuck, "%s", s.stuck())
	case s.world.DaemonSet != nil && !s.rollout.Done:
		return is(true, reasonRollingOut, "%d of %d node pods are up to date; waiting for %s", s.rollout.Updated, s.rollout.Total, s.rollout.Waiting)
	case !s.controller().Ready:
		return is(true, cmp.Or(s.controller().reason, reasonRollingOut), "waiting for %s", s.controller().Waiting)
	case s.rollingSite() != "":
		return is(true, reasonRollingOut, "waiting for %s", s.rollingSite())
	case !complete && !wasComplete(&s.cluster.Status):
		return is(true, reasonCreating, "%d of %d nodes are ready", next.ReadyNodes, next.DesiredNodes)
	}
	return is(false, reasonUpToDate, "all objects match the spec")
}

// fault says why the spec cannot be applied.
func (s *situation) fault() (reason, message string) {
	if s.refused != nil {
		return reasonHidden, s.refused.Error()
	}
	if len(s.hidden) > 0 {
		return reasonHidden, held.Text(s.hidden)
	}
	if s.invalid != nil {
		return reasonInvalid, s.invalid.Error()
	}
	if len(s.failures) == 0 {
		return "", ""
	}
	reason = reasonForeign
	var all []string
	for _, f := range s.failures {
		if !errors.Is(f, apply.ErrForeign) {
			reason = reasonNotApplied
		}
		all = append(all, f.Error())
	}
	return reason, kube.Few(all, mostNamed, "; ", "; and %d more objects")
}

// stranded reports the volumes on nodes without a node pod.
func (s *situation) stranded() string {
	return kube.Few(s.leftOut, mostNamed, "; ", "; and %d more nodes") + ": no pod can mount them and they cannot be deleted; let spec.nodeSelectorTerms select the node again, and delete them first"
}

func (s *situation) stuck() string {
	return fmt.Sprintf("node pods are not replaced any further: waiting for %s", s.rollout.Waiting)
}

// kept says what prevents the deletion of a StorageCluster.
func (s *situation) kept() string {
	text := fmt.Sprintf("%d volumes exist", s.volumes)
	switch {
	case s.volumes == 1:
		text = "1 volume exists"
	case s.volumes == 0 && s.snapshots == 1:
		return "1 snapshot exists"
	case s.volumes == 0:
		return fmt.Sprintf("%d snapshots exist", s.snapshots)
	}
	if s.snapshots > 0 {
		text += fmt.Sprintf(", and %d snapshots", s.snapshots)
	}
	return text
}

func (s *situation) selector() string {
	terms := s.cluster.Spec.NodeSelectorTerms
	if len(terms) == 0 {
		return "kubernetes.io/os=linux, which every storage node must have"
	}
	text, err := json.Marshal(terms)
	if err != nil {
		return "spec.nodeSelectorTerms"
	}
	return "spec.nodeSelectorTerms " + string(text)
}

// refused returns the status of a StorageCluster that is not served.
func refused(c, served *v1beta1.StorageCluster) v1beta1.StorageClusterStatus {
	next := v1beta1.StorageClusterStatus{Phase: v1beta1.ClusterPending, ObservedGeneration: c.Generation, Conditions: c.DeepCopy().Status.Conditions}
	message := fmt.Sprintf("StorageCluster %s exists already, and only one is allowed: delete this one, or that one to replace it with this", served.Name)
	for _, one := range []metav1.Condition{
		kube.NewCondition(v1beta1.AvailableCondition, false, reasonRefused, message),
		kube.NewCondition(v1beta1.ProgressingCondition, false, reasonRefused, message),
		kube.NewCondition(v1beta1.DegradedCondition, false, reasonRefused, ""),
		kube.NewCondition(v1beta1.StalledCondition, true, reasonRefused, message),
	} {
		one.ObservedGeneration = c.Generation
		meta.SetStatusCondition(&next.Conditions, one)
	}
	meta.SetStatusCondition(&next.Conditions, kube.Ready(next.Conditions))
	return next
}
