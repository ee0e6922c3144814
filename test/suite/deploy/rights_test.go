package deploy

import (
	"slices"
	"strings"
	"testing"

	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
)

// rights are the rules that the controller has in every namespace, and in its own.
func rights(t *testing.T) []rbac.PolicyRule {
	t.Helper()
	objects, err := Read(manifest)
	if err != nil {
		t.Fatal(err)
	}
	var all []rbac.PolicyRule
	for _, key := range []string{"ClusterRole holdfast-controller", "Role " + namespace + "/holdfast-controller"} {
		role := &rbac.ClusterRole{}
		convert(t, objects[key], role)
		all = append(all, role.Rules...)
	}
	return all
}

// may says whether one of the rules allows a verb on an object.
func may(rules []rbac.PolicyRule, verb, group, resource, name string) bool {
	return slices.ContainsFunc(rules, func(r rbac.PolicyRule) bool {
		return slices.Contains(r.Verbs, verb) && slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) &&
			(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, name))
	})
}

func TestRights_ControllerMayCreateEveryObject(t *testing.T) {
	rules, seen := rights(t), map[string]bool{}
	for name, objects := range installations(t) {
		if !strings.HasPrefix(name, "operator") {
			continue
		}
		for key, object := range objects {
			plural, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
			seen[object.GetKind()] = true
			for _, verb := range []string{"get", "list", "watch", "create", "patch", "delete"} {
				if !may(rules, verb, plural.Group, plural.Resource, object.GetName()) {
					t.Errorf("%s: it may not %s %s", name, verb, key)
				}
			}
			for _, verb := range []string{"list", "watch", "create"} {
				if !may(rules, verb, plural.Group, plural.Resource, "") {
					t.Errorf("%s: it may not %s %s without a name", name, verb, plural)
				}
			}
		}
	}
	if len(seen) < 17 {
		t.Errorf("looked at were only %v", seen)
	}
}

func TestRights_ControllerMayMakeInstalledObjectsGoWithTheStorageCluster(t *testing.T) {
	objects, err := Read(manifest)
	if err != nil {
		t.Fatal(err)
	}
	rules := rights(t)
	for key, object := range objects {
		plural, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
		if !may(rules, "patch", plural.Group, plural.Resource, object.GetName()) {
			t.Errorf("it may not patch %s", key)
		}
		// Those of pools in Ceph clusters are named after the pools.
		ofPools := slices.Contains([]string{"Deployment", "ServiceAccount"}, object.GetKind())
		if may(rules, "patch", plural.Group, plural.Resource, "another") && !ofPools {
			t.Errorf("it may patch any %s", object.GetKind())
		}
	}
}

// Kubernetes lets no account grant rights that it does not have.
func TestRights_ControllerHasAllThatItGrantsToTheNodes(t *testing.T) {
	rules, given := rights(t), 0
	for key, object := range operated(t, everything(t), optionalKinds) {
		if !strings.HasSuffix(object.GetKind(), "Role") {
			continue
		}
		role := &rbac.ClusterRole{}
		convert(t, object, role)
		for _, rule := range role.Rules {
			eachRight(rule, func(verb, group, resource, name string) {
				given++
				// A right to all objects of a kind needs one that names none.
				if !may(rules, verb, group, resource, name) {
					t.Errorf("%s: it may not %s %s/%s %s itself", key, verb, group, resource, name)
				}
			})
		}
	}
	if given < 29 {
		t.Errorf("only %d rights were looked at", given)
	}
}

func eachRight(rule rbac.PolicyRule, visit func(verb, group, resource, name string)) {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, verb := range rule.Verbs {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					visit(verb, group, resource, name)
				}
			}
		}
	}
}

// Nothing of the others is changed or read that need not be.
func TestRights_ControllerHasNoWildcards(t *testing.T) {
	objects, err := Read(manifest)
	if err != nil {
		t.Fatal(err)
	}
	role := &rbac.ClusterRole{}
	convert(t, objects["ClusterRole holdfast-controller"], role)
	for _, rule := range role.Rules {
		eachRight(rule, func(verb, group, resource, name string) {
			if group == "" && (resource == "secrets" || resource == "configmaps" || resource == "pods/log" || resource == "pods/exec") {
				t.Errorf("it may %s the %s of all namespaces", verb, resource)
			}
			if slices.Contains([]string{"escalate", "bind", "impersonate", "deletecollection", "*"}, verb) || strings.Contains(group+resource, "*") {
				t.Errorf("it may %s %s/%s", verb, group, resource)
			}
			if name == "" && group == rbac.GroupName && slices.Contains([]string{"update", "patch", "delete"}, verb) {
				t.Errorf("it may %s any %s", verb, resource)
			}
		})
	}
}
