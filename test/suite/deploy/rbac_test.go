package deploy

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// served is which verbs an API serves, by GROUP/RESOURCE[/SUBRESOURCE].
type served map[string][]string

var (
	verbsOfObjects = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	verbsOfStatus  = []string{"get", "update", "patch"}
)

// beside is what only some clusters serve, or what no type shows.
var beside = served{
	"/pods/log":                       {"get"},
	"cilium.io/ciliumnetworkpolicies": verbsOfObjects, "cilium.io/ciliumnodes": verbsOfObjects,
	"monitoring.coreos.com/podmonitors": verbsOfObjects, "security.openshift.io/securitycontextconstraints": {"use"},
}

func TestRBAC_EveryRuleIsForAnExistingResource(t *testing.T) {
	api := knownAPI(t)
	for name, objects := range installations(t) {
		t.Run(name, func(t *testing.T) {
			for _, wrong := range wrongRules(t, objects, api) {
				t.Error(wrong)
			}
		})
	}
}

func TestRBAC_EveryBindingIsOfARoleToAnInstalledAccount(t *testing.T) {
	for name, objects := range installations(t) {
		bound := map[string]bool{}
		for key, object := range objects {
			if !strings.HasSuffix(object.GetKind(), "RoleBinding") {
				continue
			}
			binding := &rbac.RoleBinding{}
			convert(t, object, binding)
			role := binding.RoleRef.Kind + " " + object.GetNamespace() + "/" + binding.RoleRef.Name
			if binding.RoleRef.Kind == "ClusterRole" {
				role = "ClusterRole " + binding.RoleRef.Name
			}
			for _, needed := range append([]string{role}, subjects(binding)...) {
				bound[needed] = true
				if objects[needed] == nil {
					t.Errorf("%s: %s names %s, which is not there", name, key, needed)
				}
			}
		}
		for key, object := range objects {
			if kind := object.GetKind(); (strings.HasSuffix(kind, "Role") || kind == "ServiceAccount") && !bound[key] {
				t.Errorf("%s: nothing is bound to %s", name, key)
			}
		}
	}
}

func subjects(binding *rbac.RoleBinding) (keys []string) {
	for _, subject := range binding.Subjects {
		keys = append(keys, subject.Kind+" "+subject.Namespace+"/"+subject.Name)
	}
	return keys
}

// wrongRules lists what is granted in vain.
func wrongRules(t *testing.T, objects Objects, api served) (wrong []string) {
	t.Helper()
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		if !strings.HasSuffix(objects[key].GetKind(), "Role") {
			continue
		}
		role := &rbac.ClusterRole{}
		convert(t, objects[key], role)
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, complaint := range wrongRule(rule, group+"/"+resource, api) {
						wrong = append(wrong, key+": "+complaint)
					}
				}
			}
		}
	}
	return wrong
}

func wrongRule(rule rbac.PolicyRule, resource string, api served) (wrong []string) {
	verbs, exists := api[resource]
	if !exists {
		return []string{resource + ": there is no such resource"}
	}
	for _, verb := range rule.Verbs {
		switch {
		case !slices.Contains(verbs, verb):
			wrong = append(wrong, fmt.Sprintf("%s %s: it has only %s", verb, resource, strings.Join(verbs, ", ")))
		case len(rule.ResourceNames) > 0 && (verb == "create" || verb == "deletecollection"):
			wrong = append(wrong, fmt.Sprintf("%s %s by name: it has none when it is asked", verb, resource))
		}
	}
	return wrong
}

// knownAPI is what Kubernetes, its snapshots and Holdfast serve, as far as their types show.
func knownAPI(t *testing.T) served {
	t.Helper()
	api := maps.Clone(beside)
	kinds := kinds(t)
	for kind, goType := range kinds.AllKnownTypes() {
		if _, has := goType.FieldByName("ObjectMeta"); !has {
			continue
		}
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		name := plural.Group + "/" + plural.Resource
		api[name] = verbsOfObjects
		if _, has := goType.FieldByName("Status"); has {
			api[name+"/status"] = verbsOfStatus
		}
	}
	brought, err := filepath.Glob(root + "/deploy/snapshots/*.yaml")
	if err != nil || len(brought) == 0 {
		t.Fatalf("the kinds of snapshots are %v, %v", brought, err)
	}
	for _, file := range append([]string{root + "/" + manifest}, brought...) {
		objects, err := Read(strings.TrimPrefix(file, root+"/"))
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects {
			if object.GetKind() == "CustomResourceDefinition" {
				group, _, _ := unstructured.NestedString(object.Object, "spec", "group")
				plural, _, _ := unstructured.NestedString(object.Object, "spec", "names", "plural")
				api[group+"/"+plural] = verbsOfObjects
				api[group+"/"+plural+"/status"] = verbsOfStatus
			}
		}
	}
	return api
}

func convert(t *testing.T, from *unstructured.Unstructured, to any) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(from.Object, to); err != nil {
		t.Fatal(err)
	}
}
