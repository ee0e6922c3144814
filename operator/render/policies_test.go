package render

import (
	"slices"
	"strings"
	"testing"

	admission "k8s.io/api/admissionregistration/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
)

// parametrized are the policies whose rules depend on what is in the cluster: where there is none of it, all is allowed, or the
// conditions spare all but the account.
var parametrized = []string{"holdfast-cascade", "holdfast-fencing", "holdfast-node-clients", "holdfast-uninstall"}

func TestPolicies_FailClosedAndDeny(t *testing.T) {
	in := ask(nil)
	for _, name := range Limits(&in.Cluster.Spec) {
		policy := must[admission.ValidatingAdmissionPolicy](t, in, "ValidatingAdmissionPolicy", name)
		if policy.Spec.FailurePolicy == nil || *policy.Spec.FailurePolicy != admission.Fail {
			t.Errorf("%s has the failurePolicy %v", name, policy.Spec.FailurePolicy)
		}
		// One that is missing would refuse what everybody writes, whom the conditions do not spare.
		if policy.Spec.ParamKind != nil && !slices.Contains(parametrized, name) {
			t.Errorf("%s depends on %v", name, policy.Spec.ParamKind)
		}
		if slices.Contains(parametrized, name) {
			continue // its binding says for what
		}
		binding := must[admission.ValidatingAdmissionPolicyBinding](t, in, "ValidatingAdmissionPolicyBinding", name)
		if binding.Spec.PolicyName != name || !slices.Equal(binding.Spec.ValidationActions, []admission.ValidationAction{admission.Deny}) || binding.Spec.MatchResources != nil {
			t.Errorf("%s is bound by %+v", name, binding.Spec)
		}
	}
}

func TestPolicies_NodeAccountIsInTheNamespaceOfHoldfast(t *testing.T) {
	policy := must[admission.ValidatingAdmissionPolicy](t, ask(nil), "ValidatingAdmissionPolicy", "holdfast-node-account")
	if c := policy.Spec.MatchConditions; len(c) != 1 || !strings.Contains(c[0].Expression, "'system:serviceaccount:"+testNamespace+":holdfast-node'") {
		t.Errorf("it is for %+v", c)
	}
}

func TestLoopDevices_AreForTheNamespacesThatTheStorageClusterNames(t *testing.T) {
	for name, test := range map[string]struct {
		namespaces []string
		served     []string
		want       string
	}{
		"none":                  {nil, nil, `["` + testNamespace + `"]`},
		"some":                  {[]string{"team-a", "team-b"}, nil, `["` + testNamespace + `", "team-a", "team-b"]`},
		"those that serve":      {[]string{"team-a"}, []string{"team-a", "team-c"}, `["` + testNamespace + `", "team-a", "team-c"]`},
		"that of the manifests": {[]string{deploy.Namespace}, nil, `["` + testNamespace + `", "` + deploy.Namespace + `"]`},
		"what is no namespace":  {[]string{"a', request.namespace, \""}, nil, `["` + testNamespace + `", "a', request.namespace, \""]`},
	} {
		in := ask(func(s *v1beta1.StorageClusterSpec) { s.NFS.Namespaces = test.namespaces })
		in.Served = test.served
		policy := must[admission.ValidatingAdmissionPolicy](t, in, "ValidatingAdmissionPolicy", LoopSetsPolicy)
		if v := policy.Spec.Variables; len(v) != 1 || v[0].Name != "allowed" || v[0].Expression != test.want {
			t.Errorf("%s: the variables are %+v, want %s", name, v, test.want)
		}
	}
}

func TestSetVariable_RefusesWhatThePolicyDoesNotHave(t *testing.T) {
	all, err := Policies(deploy.LoopSetPolicies, "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := SetVariable(all[0], "other", "[]"); err == nil || !strings.Contains(err.Error(), "other") {
		t.Errorf("it says %v", err)
	}
}

func TestPolicies_AreNotRenderedWithoutSupport(t *testing.T) {
	in := ask(nil)
	in.Has = noKind
	for _, o := range rendered(t, in) {
		if strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") {
			t.Errorf("there is %s %s", o.GetKind(), o.GetName())
		}
	}
}
