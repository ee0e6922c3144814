package cluster

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
)

const (
	reasonInPlace    = "PoliciesInPlace"
	reasonMissing    = "PoliciesMissing"
	reasonChanged    = "PoliciesChanged"
	reasonNoPolicies = "PoliciesUnknown" // to the API server
)

const unprotected = "until they are as they were, deletions of volumes and loop devices of NFS servers wait, and the accounts of nodes and servers are not kept to their own objects. " +
	"The operator writes them again within seconds; if not, see spec.paused and the condition Degraded"

// protected says whether the API server enforces the limits that RBAC cannot express.
func (r *Controller) protected(c *v1beta1.StorageCluster) metav1.Condition {
	is := func(status bool, reason, message string) metav1.Condition {
		return kube.NewCondition(v1beta1.ProtectedCondition, status, reason, message)
	}
	if !render.HasPolicies(r.Owned.Has) {
		return is(false, reasonNoPolicies, render.WithoutPolicies)
	}
	var missing, changed []string
	for _, wanted := range render.LimitsOf(r.input(c)) {
		ref := apply.RefOf(wanted)
		switch live := r.Owned.Get(ref); {
		case live == nil || live.GetDeletionTimestamp() != nil:
			missing = append(missing, ref.String())
		case c.Annotations[v1beta1.PausedByAnnotation] != "": // an upgrade keeps those of the previous release until its end
		case !render.SameRules(live, wanted):
			changed = append(changed, ref.String())
		}
	}
	switch {
	case len(missing) > 0:
		return is(false, reasonMissing, fmt.Sprintf("there is no %s: %s", strings.Join(missing, ", "), unprotected))
	case len(changed) > 0:
		return is(false, reasonChanged, fmt.Sprintf("%s was changed: %s", strings.Join(changed, ", "), unprotected))
	}
	return is(true, reasonInPlace, "accounts write only their own objects, and loop devices are for NFS servers alone")
}
