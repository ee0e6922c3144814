package doctor

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
)

// ownKinds are those of this release, by the names of their definitions.
var ownKinds = map[string]reflect.Type{
	"nfsservers.holdfast.dev":      reflect.TypeFor[v1.NFSServer](),
	"nodejobs.holdfast.dev":        reflect.TypeFor[v1.NodeJob](),
	"snapshots.holdfast.dev":       reflect.TypeFor[v1.Snapshot](),
	"storageclusters.holdfast.dev": reflect.TypeFor[v1.StorageCluster](),
	"storagenodes.holdfast.dev":    reflect.TypeFor[v1.StorageNode](),
	"storageupgrades.holdfast.dev": reflect.TypeFor[v1.StorageUpgrade](),
	"volumes.holdfast.dev":         reflect.TypeFor[v1.Volume](),
}

const (
	snapshotDefinition      = "volumesnapshots.snapshot.storage.k8s.io"
	snapshotClassDefinition = "volumesnapshotclasses.snapshot.storage.k8s.io"
	contentDefinition       = "volumesnapshotcontents.snapshot.storage.k8s.io"
	groupClassDefinition    = "volumegroupsnapshotclasses.groupsnapshot.storage.k8s.io"
)

func wantedDefinitions() []string {
	return append(slices.Sorted(maps.Keys(ownKinds)), snapshotDefinition, snapshotClassDefinition, contentDefinition, groupClassDefinition)
}

const applyManifest = "kubectl apply --server-side -f deploy/install.yaml of the release that is to run."

func lookAtKinds(f *Facts) (found []Finding) {
	for _, name := range slices.Sorted(maps.Keys(ownKinds)) {
		d := f.Definitions[name]
		object := "CustomResourceDefinition " + name
		if d == nil {
			found = append(found, problem(object, applyManifest, "it is missing"))
			continue
		}
		if reason := refusedNames(d); reason != "" {
			found = append(found, problem(object, "Another definition has one of its names; remove that one.", "the API server does not serve it: %s", reason))
		}
		missing, extra := compare(ownKinds[name], schemaOf(d))
		if len(missing) > 0 {
			found = append(found, problem(object, applyManifest, "it is of an older release than this program: it lacks %s", few(missing)))
		}
		if len(extra) > 0 {
			found = append(found, warn(object, "Use the program of the release that is installed: kubectl exec in a controller pod has it.", "it is of a newer release than this program: it has %s", few(extra)))
		}
	}
	return found
}

// few names some of many.
func few(all []string) string {
	slices.Sort(all)
	if len(all) > 4 {
		return strings.Join(all[:4], ", ") + " and more"
	}
	return strings.Join(all, ", ")
}

// refusedNames is why a definition is not served.
func refusedNames(d *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(d.Object, "status", "conditions")
	for _, one := range conditions {
		c, _ := one.(map[string]any)
		if (c["type"] == "NamesAccepted" || c["type"] == "Established") && c["status"] == "False" {
			message, _ := c["message"].(string)
			return message
		}
	}
	return ""
}

// schemaOf the version that is used here; nil if it has none.
func schemaOf(d *unstructured.Unstructured) map[string]any {
	all, _, _ := unstructured.NestedSlice(d.Object, "spec", "versions")
	for _, one := range all {
		version, _ := one.(map[string]any)
		if version["name"] == v1.SchemeGroupVersion.Version && version["served"] == true {
			s, _, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema")
			return s
		}
	}
	return nil
}

// compare finds the fields that only the type or only the schema has. Types of Kubernetes are not looked into.
func compare(t reflect.Type, schema map[string]any) (missing, extra []string) {
	c := &comparison{}
	c.fields("", t, schema)
	return c.missing, c.extra
}

type comparison struct{ missing, extra []string }

func (c *comparison) fields(path string, t reflect.Type, schema map[string]any) {
	properties, _ := schema["properties"].(map[string]any)
	known := map[string]bool{}
	for _, f := range reflect.VisibleFields(t) { // with those of what is inline
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		ofKubernetes := path == "" && len(f.Index) > 1 // what every object has
		if strings.Contains(options, "inline") || name == "metadata" || name == "-" || ofKubernetes {
			continue
		}
		known[name] = true
		at := strings.TrimPrefix(path+"."+name, ".")
		property, has := properties[name].(map[string]any)
		if !has {
			c.missing = append(c.missing, at)
			continue
		}
		c.below(at, f.Type, property)
	}
	for name := range properties {
		standard := path == "" && slices.Contains([]string{"apiVersion", "kind", "metadata"}, name)
		if !known[name] && !standard {
			c.extra = append(c.extra, strings.TrimPrefix(path+"."+name, "."))
		}
	}
}

func (c *comparison) below(path string, t reflect.Type, schema map[string]any) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		if t.Kind() == reflect.Slice {
			schema, _ = schema["items"].(map[string]any)
		}
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct && t.PkgPath() == reflect.TypeFor[v1.Volume]().PkgPath() {
		c.fields(path, t, schema)
	}
}
