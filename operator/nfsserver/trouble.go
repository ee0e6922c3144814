package nfsserver

import (
	"fmt"
	"strings"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/operator/rollout"
)

// enforceLabel of a namespace says which pods may be made in it. Without it, the API server's own configuration does.
const enforceLabel = "pod-security.kubernetes.io/enforce"

const privilegedLevel = "privileged"

// trouble is why the server does not serve, or not as it is asked for.
func (o *situation) trouble() (reason, message string) {
	if reason, message := o.fault(); reason != "" {
		return reason, message
	}
	name := objectName(o.server)
	if why := o.claimTrouble(); why != "" {
		return reasonClaim, why
	}
	pod := o.pod()
	switch {
	case o.namespace != nil && o.namespace.DeletionTimestamp != nil && pod == nil:
		return reasonPod, fmt.Sprintf("namespace %s is being deleted, so no pod can be made in it", o.server.Namespace)
	case pod == nil && o.forbidden() != "":
		return reasonPodSecurity, o.forbidden()
	case o.set == nil:
		return reasonCreating, "its pod is to be made"
	case pod == nil:
		return reasonCreating, fmt.Sprintf("StatefulSet %s has made no pod yet; its events say why if that lasts", name)
	case pod.DeletionTimestamp != nil:
		return reasonCreating, fmt.Sprintf("pod %s to end%s", pod.Name, on(pod))
	}
	why, _ := rollout.Trouble(pod)
	switch {
	case why == "" && o.poolTrouble() != "":
		why = o.poolTrouble()
	case strings.Contains(why, string(LoopSet)) && o.unguarded:
		why += fmt.Sprintf("; no node has %s: the API server knows no ValidatingAdmissionPolicy, as Kubernetes 1.30 and newer do, and without it nothing keeps loop devices from other pods; the engine directory needs none", LoopSet)
	case strings.Contains(why, string(LoopSet)):
		why += fmt.Sprintf("; nodes have %s while a pod of the DaemonSet holdfast-node, or holdfast-loop-sets where csi.enable is false, is ready there; the engine directory needs none", LoopSet)
	case why == "" && !rollout.IsReady(pod):
		why = "it starts"
	case why == "":
		why = "it is to be replaced"
	}
	return reasonPod, fmt.Sprintf("pod %s%s: %s", pod.Name, on(pod), why)
}

// poolTrouble is what the server says of its pool.
func (o *situation) poolTrouble() string {
	if o.storage == nil {
		return ""
	}
	for _, p := range o.storage.Status.Pools {
		if p.Reason != "" {
			return p.Message
		}
	}
	return ""
}

func on(p *core.Pod) string {
	if p.Spec.NodeName == "" {
		return ""
	}
	return " on node " + p.Spec.NodeName
}

// claimTrouble is about a claim that no pod can use. One that is not bound yet may wait for the pod.
func (o *situation) claimTrouble() string {
	name := claimName(o.server)
	switch {
	case name == "":
		return ""
	case o.claim == nil && makesClaim(o.server):
		return fmt.Sprintf("claim %s is to be made", name)
	case o.claim == nil:
		return fmt.Sprintf("there is no claim %s in namespace %s: make it", name, o.server.Namespace)
	case o.claim.Status.Phase == core.ClaimLost:
		return fmt.Sprintf("claim %s has lost its volume", name)
	case o.claim.Spec.VolumeMode != nil && *o.claim.Spec.VolumeMode == core.PersistentVolumeBlock:
		return fmt.Sprintf("claim %s is a block device: it must have volumeMode Filesystem", name)
	}
	return ""
}

// forbidden says why no pod of a server can be made in the namespace.
func (o *situation) forbidden() string {
	if o.namespace == nil {
		return ""
	}
	level := o.namespace.Labels[enforceLabel]
	if level == "" || level == privilegedLevel {
		return ""
	}
	return fmt.Sprintf("namespace %s enforces the Pod Security level %s, which forbids a pod that mounts file systems: "+
		"kubectl label --overwrite namespace %s %s=%s, or make the server in a namespace that allows it", o.namespace.Name, level, o.namespace.Name, enforceLabel, privilegedLevel)
}

// growing says what a larger claim waits for, "" if it has its size.
func (o *situation) growing() string {
	if !makesClaim(o.server) || o.claim == nil || o.claim.Status.Phase != core.ClaimBound {
		return ""
	}
	has := o.claim.Status.Capacity[core.ResourceStorage]
	want := o.server.Spec.Storage.Size
	if has.Cmp(*want) >= 0 {
		return ""
	}
	said := ""
	for _, c := range o.claim.Status.Conditions {
		if c.Status == core.ConditionTrue && c.Message != "" {
			said = ": " + c.Message
		}
	}
	return fmt.Sprintf("claim %s has %s and is to have %s%s", o.claim.Name, has.String(), want, said)
}
