package cluster

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
)

const (
	reasonInPlace    = "PoliciesInPlace"
	reasonMissing    = "PoliciesMissing"
	reasonNoPolicies = "PoliciesUnknown" // to the API server
)

// protected says whether the API server holds the limits that no role can say.
func protected(set *apply.Set) metav1.Condition {
	if !render.HasPolicies(set.Has) {
		return kube.NewCondition(v1.ProtectedCondition, false, reasonNoPolicies, render.WithoutPolicies)
	}
	var missing []string
	for _, name := range render.Limits() {
		for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
			ref := apply.Ref{GroupKind: schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: kind}, NamespacedName: types.NamespacedName{Name: name}}
			if o := set.Get(ref); o == nil || o.GetDeletionTimestamp() != nil {
				missing = append(missing, kind+" "+name)
			}
		}
	}
	if len(missing) > 0 {
		return kube.NewCondition(v1.ProtectedCondition, false, reasonMissing,
			fmt.Sprintf("there is no %s: an account may write what is not its own, no data is deleted on request, or no loop devices are lent, until the operator has made it", strings.Join(missing, ", ")))
	}
	return kube.NewCondition(v1.ProtectedCondition, true, reasonInPlace, "accounts write only what is their own, and loop devices are for NFS servers alone")
}
