package doctor

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/report/facts"
)

// checkProtection looks for what no role can keep anybody from.
func checkProtection(f *Facts) (found []Finding) {
	if f.Unknown[facts.Policies] != nil {
		return append([]Finding{problem("", "", "%s", render.WithoutPolicies)}, checkBorrowers(f)...)
	}
	wanted := render.Limits(&f.Served().Spec)
	if len(f.Servers) > 0 {
		wanted = append(wanted, render.ServerLimits()...)
	}
	for _, name := range wanted {
		for _, kind := range []string{facts.PolicyKind, facts.BindingKind} {
			if object := kind + " " + name; !slices.Contains(f.Policies, object) {
				found = append(found, problem(object, "See the condition Protected of the StorageCluster, and whether a controller runs.",
					"it is missing, so an account may write what is not its own, no data is deleted on request, or no loop devices are allocated"))
			}
		}
	}
	if len(found) == 0 {
		found = checkChanged(f)
	}
	return append(found, checkBorrowers(f)...)
}

// checkChanged looks for policies that are there, and that the controller has found to refuse less than they should.
func checkChanged(f *Facts) (found []Finding) {
	look := func(object string, conditions []metav1.Condition) {
		if c := meta.FindStatusCondition(conditions, v1beta1.ProtectedCondition); c != nil && c.Status == metav1.ConditionFalse {
			found = append(found, problem(object, "See whether a controller runs, and the conditions of the StorageCluster.", "%s", c.Message))
		}
	}
	look("StorageCluster "+f.Served().Name, f.Served().Status.Conditions)
	for _, s := range f.Servers {
		look("NFSServer "+s.Namespace+"/"+s.Name, s.Status.Conditions)
	}
	return found
}

// checkBorrowers names pods that came before they would have been refused.
func checkBorrowers(f *Facts) (found []Finding) {
	allowed := append([]string{f.Namespace}, f.Served().Spec.NFS.Namespaces...)
	for _, n := range f.StorageNodes { // a server that has served gets them, allowed or not
		if namespace, _, is := v1beta1.ParseNFSNode(n.Name); is {
			allowed = append(allowed, namespace)
		}
	}
	for _, pod := range f.Borrowers {
		namespace, name, _ := strings.Cut(pod, "/")
		if slices.Contains(allowed, namespace) {
			continue
		}
		found = append(found, problem("pod "+pod, "Delete it with kubectl -n "+namespace+" delete pod "+name+", or, if it is an NFS server that is to stay, add "+namespace+" to spec.nfs.namespaces of the StorageCluster.",
			"it has loop devices of its node (%s), or waits for some, and its namespace is not allowed them: it came before that was refused, and may read and write volumes of others on its node", v1beta1.LoopSetResource))
	}
	return found
}
