package deploy

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// right is one verb on one resource, of one name if it has one.
type right struct{ verb, group, resource, name string }

// rights are those of a role, which has rules of that form whatever its kind.
func rights(t *testing.T, role *unstructured.Unstructured) (all []right) {
	t.Helper()
	for _, rule := range as[rbac.ClusterRole](t, role.Object).Rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, verb := range rule.Verbs {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, name := range names {
						all = append(all, right{verb, group, resource, name})
					}
				}
			}
		}
	}
	return all
}

// granted are the rights that the controller has in every namespace, and in its own.
type granted []right

func ofController(t *testing.T) granted {
	t.Helper()
	objects := installations(t)[manifest]
	return slices.Concat(rights(t, objects["ClusterRole holdfast-controller"]), rights(t, objects["Role "+namespace+"/holdfast-controller"]))
}

// allow says whether one of the rights is the other, or the same to all objects.
func (g granted) allow(r right) bool {
	all := r
	all.name = ""
	return slices.Contains(g, r) || slices.Contains(g, all)
}

func TestRights_ControllerMayCreateEveryObject(t *testing.T) {
	own, seen := ofController(t), map[string]bool{}
	for name, objects := range installations(t) {
		if !strings.HasPrefix(name, "operator") {
			continue
		}
		for key, object := range objects {
			plural, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
			seen[object.GetKind()] = true
			for _, verb := range []string{"get", "list", "watch", "create", "patch", "delete"} {
				if !own.allow(right{verb, plural.Group, plural.Resource, object.GetName()}) {
					t.Errorf("%s: it may not %s %s", name, verb, key)
				}
			}
			for _, verb := range []string{"list", "watch", "create"} {
				if !own.allow(right{verb, plural.Group, plural.Resource, ""}) {
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
	own := ofController(t)
	for key, object := range installations(t)[manifest] {
		plural, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
		if !own.allow(right{"patch", plural.Group, plural.Resource, object.GetName()}) {
			t.Errorf("it may not patch %s", key)
		}
		// Those of pools in Ceph clusters are named after the pools.
		ofPools := slices.Contains([]string{"Deployment", "ServiceAccount"}, object.GetKind())
		if own.allow(right{"patch", plural.Group, plural.Resource, "another"}) && !ofPools {
			t.Errorf("it may patch any %s", object.GetKind())
		}
	}
}

// Kubernetes lets no account grant rights that it does not have.
func TestRights_ControllerHasAllThatItGrantsToTheNodes(t *testing.T) {
	own, given := ofController(t), 0
	for key, object := range installations(t)["operator everything"] {
		if !strings.HasSuffix(object.GetKind(), "Role") {
			continue
		}
		for _, r := range rights(t, object) {
			given++
			if !own.allow(r) {
				t.Errorf("%s: it may not %+v itself", key, r)
			}
		}
	}
	if given < 29 {
		t.Errorf("only %d rights were looked at", given)
	}
}

// Nothing of the others is changed or read that need not be.
func TestRights_ControllerHasNoWildcards(t *testing.T) {
	for _, r := range rights(t, installations(t)[manifest]["ClusterRole holdfast-controller"]) {
		switch {
		case r.group == "" && slices.Contains([]string{"secrets", "configmaps", "pods/log", "pods/exec"}, r.resource),
			slices.Contains([]string{"escalate", "bind", "impersonate", "deletecollection", "*"}, r.verb), strings.Contains(r.group+r.resource, "*"),
			r.name == "" && r.group == rbac.GroupName && slices.Contains([]string{"update", "patch", "delete"}, r.verb):
			t.Errorf("it may %+v in all namespaces", r)
		}
	}
}

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

// knownAPI is what Kubernetes, its snapshots and Holdfast serve, as far as their types show.
func knownAPI(t *testing.T) served {
	t.Helper()
	api := maps.Clone(beside)
	for kind, goType := range kinds(t).AllKnownTypes() {
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
	files := []string{manifest}
	for _, brought := range must(os.ReadDir(root + "/deploy/snapshots"))(t) {
		files = append(files, "deploy/snapshots/"+brought.Name())
	}
	for _, file := range files {
		for _, object := range parse(t, read(t, file)) {
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

func TestRBAC_EveryRuleIsForAnExistingResource(t *testing.T) {
	api := knownAPI(t)
	for name, objects := range installations(t) {
		for key, object := range objects {
			if !strings.HasSuffix(object.GetKind(), "Role") {
				continue
			}
			for _, r := range rights(t, object) {
				verbs, exists := api[r.group+"/"+r.resource]
				switch {
				case !exists:
					t.Errorf("%s: %s: there is no resource of %+v", name, key, r)
				case !slices.Contains(verbs, r.verb):
					t.Errorf("%s: %s: %+v: it has only %s", name, key, r, strings.Join(verbs, ", "))
				case r.name != "" && (r.verb == "create" || r.verb == "deletecollection"):
					t.Errorf("%s: %s: %+v by name: it has none when it is asked", name, key, r)
				}
			}
		}
	}
}

func TestRBAC_EveryBindingIsOfARoleToAnInstalledAccount(t *testing.T) {
	for name, objects := range installations(t) {
		bound := map[string]bool{}
		for key, object := range objects {
			if !strings.HasSuffix(object.GetKind(), "RoleBinding") {
				continue
			}
			binding := as[rbac.RoleBinding](t, object.Object)
			needed := []string{binding.RoleRef.Kind + " " + object.GetNamespace() + "/" + binding.RoleRef.Name}
			if binding.RoleRef.Kind == "ClusterRole" {
				needed = []string{"ClusterRole " + binding.RoleRef.Name}
			}
			for _, subject := range binding.Subjects {
				needed = append(needed, subject.Kind+" "+subject.Namespace+"/"+subject.Name)
			}
			for _, one := range needed {
				bound[one] = true
				if objects[one] == nil {
					t.Errorf("%s: %s names %s, which is not there", name, key, one)
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
