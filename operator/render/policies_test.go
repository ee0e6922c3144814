package render

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	admission "k8s.io/api/admissionregistration/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
)

// parametrized are the policies that depend on what is in the cluster, and the resources that they are about. Where there is no
// parameter, or the API server that has just started does not know its kind, all that they match is refused, before their
// conditions are asked.
var parametrized = map[string][]string{
	"holdfast-node-clients": {"storagenodes/status"},
	"holdfast-uninstall":    {"customresourcedefinitions", "namespaces"}, // of the namespaces only that of Holdfast
}

func TestPolicies_FailClosedAndDeny(t *testing.T) {
	in := ask(nil)
	for _, name := range Limits(&in.Cluster.Spec) {
		policy := must[admission.ValidatingAdmissionPolicy](t, in, "ValidatingAdmissionPolicy", name)
		if policy.Spec.FailurePolicy == nil || *policy.Spec.FailurePolicy != admission.Fail {
			t.Errorf("%s has the failurePolicy %v", name, policy.Spec.FailurePolicy)
		}
		if policy.Spec.ParamKind != nil {
			for _, r := range policy.Spec.MatchConstraints.ResourceRules {
				if len(r.Resources) != 1 || !slices.Contains(parametrized[name], r.Resources[0]) {
					t.Errorf("%s depends on %v, and would keep all from %v of %v", name, policy.Spec.ParamKind, r.Operations, r.Resources)
				}
			}
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

func TestFencingPolicy_HasWhatTheStorageClusterChooses(t *testing.T) {
	for _, pods := range []v1beta1.FencedPods{"", v1beta1.FenceNone, v1beta1.FenceWithCephVolumes} {
		in := ask(func(s *v1beta1.StorageClusterSpec) { s.Fencing.Pods = pods })
		policy := must[admission.ValidatingAdmissionPolicy](t, in, "ValidatingAdmissionPolicy", "holdfast-fencing")
		if v, want := policy.Spec.Variables, strconv.Quote(string(pods)); len(v) != 1 || v[0].Expression != want {
			t.Errorf("the variables are %+v, want %s", v, want)
		}
	}
}

func TestReplaceVariable_LeavesAPolicyWithoutItAsItIs(t *testing.T) {
	if ReplaceVariable(Policies(deploy.LoopSetPolicies, "a")[0], "other", "[]") {
		t.Error("it has a variable that is not in the manifest")
	}
}

func TestSetVariable_PanicsWithTheNamesOfAPolicyAndTheVariableThatItLacks(t *testing.T) {
	defer func() {
		if said, _ := recover().(string); !strings.Contains(said, LoopSetsPolicy) || !strings.Contains(said, "other") {
			t.Errorf("the panic says %q", said)
		}
	}()
	SetVariable(Policies(deploy.LoopSetPolicies, "a"), LoopSetsPolicy, "other", "[]")
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
