// Package deploy tests the manifests of Holdfast: that all ways to install it install the same, and that the API server
// takes it.
package deploy

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// root is where the repository is.
const root = "../../.."

// namespace is where install.yaml puts Holdfast.
const namespace = "holdfast-system"

// manifest is what kubectl installs.
const manifest = "deploy/install.yaml"

// optionalKinds are kinds that a cluster may have, as the chart asks for them.
var optionalKinds = []string{
	"snapshot.storage.k8s.io/v1/VolumeSnapshotClass",
	"groupsnapshot.storage.k8s.io/v1/VolumeGroupSnapshotClass",
	"monitoring.coreos.com/v1/PodMonitor",
	"flowcontrol.apiserver.k8s.io/v1/FlowSchema",
	"admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy",
	"admissionregistration.k8s.io/v1/ValidatingAdmissionPolicyBinding",
}

// Chart is the Helm chart, loaded.
type Chart struct{ *chartv2.Chart }

// LoadChart loads the chart of this repository.
func LoadChart() (*Chart, error) {
	loaded, err := loader.Load(root + "/deploy/chart")
	if err != nil {
		return nil, err
	}
	c, ok := loaded.(*chartv2.Chart)
	if !ok {
		return nil, fmt.Errorf("the chart is a %T", loaded)
	}
	return &Chart{c}, nil
}

// Release is how a chart is installed.
type Release struct {
	Namespace string
	Values    map[string]any
	Kinds     []string // that the cluster has beside those of Kubernetes
}

// Files returns what helm would print for a release, by template.
func (c *Chart) Files(r Release) (map[string]string, error) {
	if r.Namespace == "" {
		r.Namespace = namespace
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.APIVersions = append(slices.Clone(capabilities.APIVersions), r.Kinds...)
	values, err := util.ToRenderValues(c.Chart, copyOf(r.Values), common.ReleaseOptions{Name: "holdfast", Namespace: r.Namespace, IsInstall: true, Revision: 1}, capabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c.Chart, values)
}

// hook is the annotation of what is no part of a release, such as what helm test runs.
const hook = "helm.sh/hook"

// Render returns the objects of a release.
func (c *Chart) Render(r Release) (Objects, error) {
	objects, err := c.objects(r)
	maps.DeleteFunc(objects, func(_ string, o *unstructured.Unstructured) bool { return o.GetAnnotations()[hook] != "" })
	return objects, err
}

// Hooks returns what Helm makes when it runs the tests of a release.
func (c *Chart) Hooks(r Release) (Objects, error) {
	objects, err := c.objects(r)
	maps.DeleteFunc(objects, func(_ string, o *unstructured.Unstructured) bool { return o.GetAnnotations()[hook] == "" })
	return objects, err
}

func (c *Chart) objects(r Release) (Objects, error) {
	files, err := c.Files(r)
	if err != nil {
		return nil, err
	}
	var manifest strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) == ".yaml" {
			fmt.Fprintf(&manifest, "---\n%s\n", files[name])
		}
	}
	return Parse([]byte(manifest.String()))
}

// copyOf returns a copy that shares nothing with the values.
func copyOf[T any](value T) T {
	switch v := any(value).(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, field := range v {
			out[key] = copyOf(field)
		}
		return any(out).(T)
	case []any:
		out := make([]any, len(v))
		for i, element := range v {
			out[i] = copyOf(element)
		}
		return any(out).(T)
	}
	return value
}
