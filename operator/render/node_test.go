package render

import (
	"encoding/json"
	"testing"

	apps "k8s.io/api/apps/v1"
	rbac "k8s.io/api/rbac/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func nodeOf(t *testing.T, in Input) *apps.DaemonSet {
	t.Helper()
	return must[apps.DaemonSet](t, in, "DaemonSet", "holdfast-node")
}

// same compares as JSON does, in which an empty list is as good as none.
func same(t *testing.T, want, got any) {
	t.Helper()
	a := check.Got(json.Marshal(want))(t)
	b := check.Got(json.Marshal(got))(t)
	if string(a) != string(b) {
		t.Errorf("wanted\n%s\ngot\n%s", a, b)
	}
}

func TestNode_ChangeOfPoolsReplacesThePods(t *testing.T) {
	seen := map[string]bool{}
	for _, pools := range [][]v1beta1.PoolSpec{nil, {{Name: "a"}}, {{Name: "a", Reserved: "1%"}}, {{Name: "a"}, {Name: "b"}}} {
		seen[nodeOf(t, ask(func(s *v1beta1.StorageClusterSpec) { s.Pools = pools })).Spec.Template.Annotations["holdfast.dev/config-hash"]] = true
	}
	if len(seen) != 4 || seen[""] {
		t.Errorf("the hashes are %v", seen)
	}
}

func TestNode_MayBePrivilegedOnOpenShift(t *testing.T) {
	for distro, want := range map[string]bool{"openshift": true, "OpenShift-4.20": true, "okd": true, "": false, "eks": false} {
		in := ask(func(s *v1beta1.StorageClusterSpec) { s.Distribution = distro })
		in.Has = noKind
		role := look[rbac.Role](t, in, "Role", "holdfast-node-scc")
		binding := look[rbac.RoleBinding](t, in, "RoleBinding", "holdfast-node-scc")
		if (role != nil) != want || (binding != nil) != want {
			t.Errorf("%q: %v %v", distro, role, binding)
			continue
		}
		if want && (role.Rules[0].ResourceNames[0] != "privileged" || role.Rules[0].Verbs[0] != "use" || len(role.Rules) != 1 ||
			binding.RoleRef.Name != role.Name || binding.Subjects[0].Name != "holdfast-node" || binding.Subjects[0].Namespace != testNamespace) {
			t.Errorf("%q: %+v %+v", distro, role, binding)
		}
	}
	if look[rbac.Role](t, ask(nil), "Role", "holdfast-node-scc") == nil {
		t.Error("a cluster that has the constraints gets none unless it is named")
	}
}
