package nfsserver

import (
	"fmt"
	"strings"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube/podstatus"
	"github.com/holdfast-storage/holdfast/operator/rollout"
)

// enforceLabel of a namespace says which pods may be created in it. Without it, the configuration of the API server does.
const enforceLabel = "pod-security.kubernetes.io/enforce"

const privilegedLevel = "privileged"

// trouble is why the server does not serve, or not as specified.
func (r *round) trouble() (reason, message string) {
	if reason, message := r.fault(); reason != "" {
		return reason, message
	}
	name := objectName(r.server)
	if why := r.claimTrouble(); why != "" {
		return reasonClaim, why
	}
	pod := r.pod()
	switch {
	case r.isNamespaceLeaving():
		return reasonPod, fmt.Sprintf("namespace %s is being deleted, so no pod can be created in it", r.server.Namespace)
	case pod == nil && r.forbidden() != "":
		return reasonPodSecurity, r.forbidden()
	case r.set == nil:
		return reasonCreating, "its pod to be created"
	case pod == nil:
		return reasonCreating, fmt.Sprintf("StatefulSet %s has created no pod yet; if that lasts, see its events", name)
	case pod.DeletionTimestamp != nil:
		return reasonCreating, fmt.Sprintf("pod %s to end%s", pod.Name, on(pod))
	}
	why, _ := rollout.Trouble(pod)
	switch {
	case why == "" && r.poolTrouble() != "":
		why = r.poolTrouble()
	case strings.Contains(why, v1beta1.LoopSetResource) && r.unguarded:
		why += fmt.Sprintf("; no node has %s: ValidatingAdmissionPolicy is switched off in the API server, and without it loop devices cannot be refused to other pods; the engine Directory needs none", v1beta1.LoopSetResource)
	case strings.Contains(why, v1beta1.LoopSetResource):
		why += fmt.Sprintf("; nodes have %s while a pod of the DaemonSet holdfast-node, or holdfast-loop-sets where csi.enabled is false, is ready there; the engine Directory needs none", v1beta1.LoopSetResource)
	case why == "" && !podstatus.IsReady(pod):
		why = "it starts"
	case why == "":
		why = "it is to be replaced"
	}
	return reasonPod, fmt.Sprintf("pod %s%s: %s", pod.Name, on(pod), why)
}

// poolTrouble is the server's report about its pool.
func (r *round) poolTrouble() string {
	if r.storage == nil {
		return ""
	}
	for _, p := range r.storage.Status.Pools {
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
func (r *round) claimTrouble() string {
	name := claimName(r.server)
	switch {
	case name == "":
		return ""
	case r.claim == nil && makesClaim(r.server):
		return fmt.Sprintf("claim %s to be created", name)
	case r.claim == nil:
		return fmt.Sprintf("there is no claim %s in namespace %s: create it", name, r.server.Namespace)
	case r.claim.Status.Phase == core.ClaimLost:
		return fmt.Sprintf("claim %s has lost its volume", name)
	case r.claim.Spec.VolumeMode != nil && *r.claim.Spec.VolumeMode == core.PersistentVolumeBlock:
		return fmt.Sprintf("claim %s is a block device: it must have volumeMode Filesystem", name)
	}
	return ""
}

// forbidden says why no pod of a server can be created in the namespace.
func (r *round) forbidden() string {
	if r.namespace == nil {
		return ""
	}
	level := r.namespace.Labels[enforceLabel]
	if level == "" || level == privilegedLevel {
		return ""
	}
	return fmt.Sprintf("namespace %s enforces the Pod Security level %s, which forbids pods that mount file systems: "+
		"kubectl label --overwrite namespace %s %s=%s, or create the server in a namespace that allows it", r.namespace.Name, level, r.namespace.Name, enforceLabel, privilegedLevel)
}

// growing says what a larger claim waits for, "" if it has its size.
func (r *round) growing() string {
	if !makesClaim(r.server) || r.claim == nil || r.claim.Status.Phase != core.ClaimBound {
		return ""
	}
	has := r.claim.Status.Capacity[core.ResourceStorage]
	want := r.server.Spec.Storage.Size
	if has.Cmp(*want) >= 0 {
		return ""
	}
	said := ""
	for _, c := range r.claim.Status.Conditions {
		if c.Status == core.ConditionTrue && c.Message != "" {
			said = ": " + c.Message
		}
	}
	return fmt.Sprintf("claim %s has %s and should have %s%s", r.claim.Name, has.String(), want, said)
}
