package nfsserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	admission "k8s.io/api/admissionregistration/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func (r *rig) protected(status metav1.ConditionStatus, says string) {
	r.Helper()
	wait.For(r, fmt.Sprintf("Protected being %s because of %q", status, says), func() error {
		c := meta.FindStatusCondition(r.server("data").Status.Conditions, v1beta1.ProtectedCondition)
		if c == nil || c.Status != status || !strings.Contains(c.Message, says) {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
}

func TestProtected_PolicyOfServersThatWasDeletedOrChangedDoesNotCount(t *testing.T) {
	r := newRig(t)
	r.create("data", nil)
	r.serve("data")
	r.protected(metav1.ConditionTrue, "")
	policies, bindings := r.theirs.AdmissionregistrationV1().ValidatingAdmissionPolicies(), r.theirs.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	patch := func(body string) func(string) error {
		return func(name string) error {
			_, err := policies.Patch(t.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
			return err
		}
	}
	toothless := func(variable, expression string) func(string) error {
		return func(name string) error {
			p, err := policies.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			i := slices.IndexFunc(p.Spec.Variables, func(v admission.Variable) bool { return v.Name == variable })
			p.Spec.Variables[i].Expression = expression
			_, err = policies.Update(t.Context(), p, metav1.UpdateOptions{})
			return err
		}
	}
	for _, test := range []struct {
		what, policy string
		change       func(name string) error
	}{
		{"fails open", accountPolicy, patch(`{"spec":{"failurePolicy":"Ignore"}}`)},
		{"for no account", accountPolicy, patch(`{"spec":{"matchConditions":[{"name":"never","expression":"false"}]}}`)},
		{"for any server", accountPolicy, toothless("site", "'any'")},
		{"deleted", accountPolicy, func(name string) error { return policies.Delete(t.Context(), name, metav1.DeleteOptions{}) }},
		{"not bound", accountPolicy, func(name string) error { return bindings.Delete(t.Context(), name, metav1.DeleteOptions{}) }},
		{"fails open", render.MountsPolicy, patch(`{"spec":{"failurePolicy":"Ignore"}}`)},
		{"for no namespace", render.MountsPolicy, toothless("allowed", "[request.namespace]")},
		{"deleted", render.MountsPolicy, func(name string) error { return policies.Delete(t.Context(), name, metav1.DeleteOptions{}) }},
	} {
		t.Run(test.policy+" "+test.what, func(t *testing.T) {
			r.changeCluster(func(s *v1beta1.StorageClusterSpec) { s.Paused = true })
			r.condition("data", v1beta1.ProgressingCondition, reasonPaused)
			check.OK(t, test.change(test.policy))
			r.protected(metav1.ConditionFalse, test.policy)
			r.changeCluster(func(s *v1beta1.StorageClusterSpec) { s.Paused = false })
			r.protected(metav1.ConditionTrue, "")
		})
	}
}

func TestProtected_PoliciesOfServersFailClosed(t *testing.T) {
	all := limitsOf(nil, nil, &v1beta1.NFSSpec{}, "ours")
	for _, o := range all {
		policy, _, err := unstructured.NestedString(o.Object, "spec", "failurePolicy")
		if open := o.GetName() == "holdfast-nfs-classes"; o.GetKind() == policyKind && (err != nil || !open && policy != "Fail") {
			t.Errorf("%s has the failurePolicy %q, %v", o.GetName(), policy, err)
		}
	}
}

func TestRights_NoServerHasAnyWhileAPolicyCannotBeMade(t *testing.T) {
	r := newRig(t)
	policies, bindings := r.theirs.AdmissionregistrationV1().ValidatingAdmissionPolicies(), r.theirs.RbacV1().ClusterRoleBindings()
	foreign := &admission.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: render.MountsPolicy}, Spec: admission.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admission.MatchResources{ResourceRules: []admission.NamedRuleWithOperations{{RuleWithOperations: admission.RuleWithOperations{
			Operations: []admission.OperationType{admission.Create}, Rule: admission.Rule{APIGroups: []string{"example.com"}, APIVersions: []string{"v1"}, Resources: []string{"none"}},
		}}}},
		Validations: []admission.Validation{{Expression: "true"}},
	}}
	check.Got(policies.Create(t.Context(), foreign, metav1.CreateOptions{}))(t)
	r.create("data", nil)
	wait.Until(r, "the server saying which policy is another's", func() bool {
		return slices.ContainsFunc(r.server("data").Status.Conditions, func(c metav1.Condition) bool {
			return c.Type != v1beta1.ProtectedCondition && strings.Contains(c.Message, render.MountsPolicy)
		})
	})
	if _, err := bindings.Get(t.Context(), rightsName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the account of the server, which nothing limits, has rights: %v", err)
	}
	check.OK(t, policies.Delete(t.Context(), render.MountsPolicy, metav1.DeleteOptions{}))
	wait.Until(r, "its rights, once the account is limited", func() bool {
		_, err := bindings.Get(t.Context(), rightsName, metav1.GetOptions{})
		return err == nil
	})
}

// mounting is a pod with a volume that is no claim.
func mounting(source core.VolumeSource) *core.Pod {
	return &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: "thief"}, Spec: core.PodSpec{
		Containers: []core.Container{{Name: "c", Image: "holdfast.test/pause:1"}}, Volumes: []core.Volume{{Name: "all", VolumeSource: source}},
	}}
}

func TestPolicy_PodsMountNFSByThemselvesOnlyInNamespacesThatAreNamed(t *testing.T) {
	r := newRig(t)
	r.create("data", nil)
	r.serve("data")
	try := func(namespace string, source core.VolumeSource) error {
		_, err := r.theirs.CoreV1().Pods(namespace).Create(t.Context(), mounting(source), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	nfs := func(server, path string) core.VolumeSource {
		return core.VolumeSource{NFS: &core.NFSVolumeSource{Server: server, Path: path}}
	}
	thefts := map[string]core.VolumeSource{
		"by address": nfs(r.server("data").Status.Address(), "/pvc-1"), "by name": nfs("nfs-data."+r.namespace+".svc", "/pvc-1"), "all at once": nfs("10.0.0.1", "/"),
		"by another driver": {CSI: &core.CSIVolumeSource{Driver: "nfs.csi.k8s.io", VolumeAttributes: map[string]string{"server": "10.0.0.1", "share": "/"}}},
	}
	wait.Until(r, "the policy", func() bool { return realapi.RefusedBy(render.MountsPolicy, try("default", thefts["by address"])) })
	for what, source := range thefts {
		for _, namespace := range []string{"default", r.namespace} {
			if err := try(namespace, source); !realapi.RefusedBy(render.MountsPolicy, err) || !strings.Contains(err.Error(), "add "+namespace+" to spec.nfs.inlineVolumeNamespaces") {
				t.Errorf("%s, in %s: %v", what, namespace, err)
			}
		}
	}
	claim := core.VolumeSource{PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: "shop"}}
	for what, source := range map[string]core.VolumeSource{"a claim": claim, "nothing": {EmptyDir: &core.EmptyDirVolumeSource{}}} {
		if err := try("default", source); err != nil {
			t.Errorf("a pod with %s: %v", what, err)
		}
	}
	r.changeCluster(func(s *v1beta1.StorageClusterSpec) { s.NFS.InlineVolumeNamespaces = []string{"default"} })
	wait.Until(r, "the namespace being allowed", func() bool { return try("default", thefts["by name"]) == nil })
	if err := try("kube-public", thefts["by name"]); !realapi.RefusedBy(render.MountsPolicy, err) {
		t.Errorf("in a namespace that is not named, beside one that is: %v", err)
	}
	wait.Until(r, "the server saying so", func() bool {
		return meta.IsStatusConditionTrue(r.server("data").Status.Conditions, v1beta1.ProtectedCondition)
	})
}
