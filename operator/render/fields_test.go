package render

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// elsewhere are the fields that no object shows, and the code that applies them.
var elsewhere = map[string]string{
	"fencing.after":                 "what shuts out lost nodes",
	"fencing.namespaces[0]":         "what shuts out lost nodes",
	"defaultClass":                  "a cluster whose classes are not named, which all are here",
	"deletionPolicy":                "what removes the StorageCluster",
	"imageRegistry":                 "images that are not named, which all are here",
	"images.nfs":                    "what makes NFS servers",
	"paused":                        "what applies the objects",
	"nfs.networkPolicies":           "what makes NFS servers",
	"nfs.inlineVolumeNamespaces[0]": "what makes NFS servers",
	"nfs.nodeNetworks[0]":           "what makes NFS servers",
	"secretRef.name":                "what reads the secret",
	"secretRef.namespace":           "what reads the secret",
}

// otherwise are values to try instead of leaving the field out, which would mean the same.
var otherwise = map[string]any{
	"csi.ephemeral.pools": []string{"disk"}, "csi.ephemeral.maxSize": "20Gi",
	"csi.enabled": false, "controller.kind": "StatefulSet", "monitoring.enabled": false,
}

// spelledOut is a spec in which every field is set.
func spelledOut(t *testing.T) map[string]any {
	t.Helper()
	content := check.Got(os.ReadFile("../../test/suite/deploy/testdata/everything.yaml"))(t)
	values := map[string]any{}
	check.OK(t, yaml.Unmarshal(content, &values))
	return values["cluster"].(map[string]any)
}

func asked(t *testing.T, spec map[string]any) Input {
	t.Helper()
	in := everything()
	content := check.Got(yaml.Marshal(spec))(t)
	in.Cluster.Spec = v1beta1.StorageClusterSpec{}
	in.Has = func(kind schema.GroupKind) bool { return kind != securityContextConstraints } // by which OpenShift is known, too
	check.OK(t, yaml.UnmarshalStrict(content, &in.Cluster.Spec))
	return in
}

// leaves calls visit for each value that is no map, with its path.
func leaves(path string, value any, visit func(path string)) {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			leaves(path+"."+key, value[key], visit)
		}
	case []any:
		for i, element := range value {
			leaves(fmt.Sprintf("%s[%d]", path, i), element, visit)
		}
	default:
		visit(path[1:])
	}
}

// changed is a copy of a spec in which the value at a path is gone, or another.
func changed(at string, value any, path string) any {
	switch value := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, field := range value {
			if inner := changed(at, field, path+"."+key); inner != nil {
				out[key] = inner
			}
		}
		return out
	case []any:
		out := []any{}
		for i, element := range value {
			if inner := changed(at, element, fmt.Sprintf("%s[%d]", path, i)); inner != nil {
				out = append(out, inner)
			}
		}
		return out
	}
	if path[1:] == at {
		return otherwise[at]
	}
	return value
}

func TestFields_EachOfTheSpecReachesAnObject(t *testing.T) {
	spec := spelledOut(t)
	before, seen := rendered(t, asked(t, spec)), 0
	leaves("", spec, func(path string) {
		seen++
		after, err := Objects(asked(t, changed(path, spec, "").(map[string]any)))
		if err != nil {
			return // it is needed by another
		}
		if reached := !reflect.DeepEqual(before, after); reached == (elsewhere[path] != "") {
			t.Errorf("that %s is seen is %v; seen elsewhere by: %q", path, reached, elsewhere[path])
		}
	})
	if seen < 70 {
		t.Errorf("only %d fields were tried", seen)
	}
}

func TestFields_EachOfTheSpecIsTested(t *testing.T) {
	in := asked(t, spelledOut(t))
	var missing func(v reflect.Value, path string)
	missing = func(v reflect.Value, path string) {
		switch {
		case v.Kind() == reflect.Pointer && !v.IsNil():
			missing(v.Elem(), path)
		case v.Kind() == reflect.Slice && v.Len() > 0 && v.Index(0).Kind() == reflect.Struct && v.Index(0).Type().PkgPath() == reflect.TypeFor[v1beta1.PoolSpec]().PkgPath():
			for i := range v.Type().Elem().NumField() {
				set := false
				for j := range v.Len() {
					set = set || !v.Index(j).Field(i).IsZero()
				}
				if !set {
					t.Errorf("%s.%s is in no element", path, v.Type().Elem().Field(i).Name)
				}
			}
		case v.Kind() == reflect.Struct && v.Type().PkgPath() == reflect.TypeFor[v1beta1.PoolSpec]().PkgPath():
			for i := range v.NumField() {
				missing(v.Field(i), path+"."+v.Type().Field(i).Name)
			}
		case v.IsZero() && path != ".Paused":
			t.Errorf("%s is not set", path)
		}
	}
	missing(reflect.ValueOf(in.Cluster.Spec), "")
}

func TestFields_CompleteSpecRendersEveryKind(t *testing.T) {
	var seen []string
	for _, o := range rendered(t, asked(t, spelledOut(t))) {
		seen = append(seen, o.GetKind())
	}
	for _, kind := range slices.Concat(
		[]string{"Secret", "CSIDriver", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ConfigMap", "DaemonSet"},
		[]string{"StorageClass", "VolumeSnapshotClass", "VolumeGroupSnapshotClass", "Service", "Ingress", "PodMonitor", "FlowSchema", "Deployment"},
	) {
		if !slices.Contains(seen, kind) {
			t.Errorf("there is no %s", kind)
		}
	}
}
