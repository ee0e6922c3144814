// Bundle writes the bundle for the Operator Lifecycle Manager of the manifests in deploy: what is installed is the same.
//
//	bundle DEPLOY-DIRECTORY OUT-DIRECTORY
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/yaml"
	write "sigs.k8s.io/yaml"
)

type object = map[string]any

func main() {
	b := bundle{deploy: os.Args[1], out: os.Args[2]}
	if err := b.write(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type bundle struct {
	deploy, out string
	read        map[string][]object // what is in the files of sources
}

var sources = []string{
	"chart/Chart.yaml", "olm/description.yaml", "olm/examples.yaml", "base/controller-rbac.yaml", "base/controller.yaml",
	"operated/sidecars.yaml", "operated/snapshot-controller.yaml", "operated/nfs.yaml", "operated/ceph.yaml",
}

func (b *bundle) write() error {
	for _, dir := range []string{"manifests", "metadata"} {
		if err := os.MkdirAll(filepath.Join(b.out, dir), 0o755); err != nil {
			return err
		}
	}
	b.read = map[string][]object{}
	for _, file := range sources {
		content, err := os.ReadFile(filepath.Join(b.deploy, file))
		if err != nil {
			return err
		}
		if b.read[file], err = parse(content); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	csv, version := b.read["olm/description.yaml"][0], b.read["chart/Chart.yaml"][0]["version"].(string)
	spec, metadata := at(csv, "spec"), at(csv, "metadata")
	metadata["name"], metadata["namespace"] = "holdfast.v"+version, "placeholder"
	spec["version"] = version
	icon, err := os.ReadFile(filepath.Join(b.deploy, "olm/icon.svg"))
	if err != nil {
		return err
	}
	spec["icon"] = []any{object{"base64data": icon, "mediatype": "image/svg+xml"}}
	examples, err := json.MarshalIndent(b.read["olm/examples.yaml"], "", "  ")
	if err != nil {
		return err
	}
	at(metadata, "annotations")["alm-examples"] = string(examples)
	if err := b.kinds(spec); err != nil {
		return err
	}
	b.install(spec)
	if err := b.save("manifests/holdfast.clusterserviceversion.yaml", csv); err != nil {
		return err
	}
	return b.save("metadata/annotations.yaml", object{"annotations": object{
		"operators.operatorframework.io.bundle.mediatype.v1":       "registry+v1",
		"operators.operatorframework.io.bundle.manifests.v1":       "manifests/",
		"operators.operatorframework.io.bundle.metadata.v1":        "metadata/",
		"operators.operatorframework.io.bundle.package.v1":         "holdfast",
		"operators.operatorframework.io.bundle.channels.v1":        "candidate",
		"operators.operatorframework.io.bundle.channel.default.v1": "candidate",
	}})
}

// byTheOperator are the kinds that the operator brings itself: of each kind that a bundle owns, the Operator Lifecycle
// Manager gives create to users with the role edit or admin in a namespace, and an NFSServer has rights beyond these.
var byTheOperator = []string{"holdfast.dev_nfsservers.yaml"}

// kinds copies the definitions and says whose they are.
func (b *bundle) kinds(spec object) error {
	files, err := filepath.Glob(filepath.Join(b.deploy, "crds", "holdfast.dev_*.yaml"))
	if err != nil {
		return err
	}
	var owned []any
	for _, file := range files {
		if slices.Contains(byTheOperator, filepath.Base(file)) {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(b.out, "manifests", filepath.Base(file)), content, 0o644); err != nil {
			return err
		}
		crds, err := parse(content)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		crd := at(crds[0], "spec")
		version := crd["versions"].([]any)[0].(object)
		described := at(version, "schema")["openAPIV3Schema"].(object)["description"].(string)
		owned = append(owned, object{
			"name": at(crds[0], "metadata")["name"], "version": version["name"], "kind": at(crd, "names")["kind"],
			"displayName": at(crd, "names")["kind"], "description": strings.Join(strings.Fields(described), " "),
		})
	}
	spec["customresourcedefinitions"] = object{"owned": owned}
	return nil
}

// install is the controller and what it may do.
func (b *bundle) install(spec object) {
	rights, deployment := b.read["base/controller-rbac.yaml"], find(b.read["base/controller.yaml"], "Deployment")
	account := at(at(at(deployment, "spec"), "template"), "spec")["serviceAccountName"]
	permissions := func(kind string) []any {
		return []any{object{"serviceAccountName": account, "rules": find(rights, kind)["rules"]}}
	}
	spec["install"] = object{"strategy": "deployment", "spec": object{
		"deployments": []any{object{
			"name": at(deployment, "metadata")["name"], "label": at(deployment, "metadata")["labels"], "spec": deployment["spec"],
		}},
		"clusterPermissions": permissions("ClusterRole"),
		"permissions":        permissions("Role"),
	}}
	var named []any
	workloads := append([]object{at(deployment, "spec")}, b.read["operated/sidecars.yaml"]...)
	for _, workload := range append(workloads, at(find(b.read["operated/snapshot-controller.yaml"], "Deployment"), "spec")) {
		for _, c := range containers(workload) {
			if image := c.(object)["image"]; image != nil {
				named = append(named, object{"name": c.(object)["name"], "image": image})
			}
		}
	}
	for _, site := range []struct{ name, kind string }{{"nfs", "StatefulSet"}, {"ceph", "Deployment"}} {
		workload := find(b.read["operated/"+site.name+".yaml"], site.kind)
		named = append(named, object{"name": site.name, "image": containers(at(workload, "spec"))[0].(object)["image"]})
	}
	spec["relatedImages"] = named
	setImages(containers(at(deployment, "spec"))[0].(object), named)
}

func containers(workload object) []any {
	return at(at(workload, "template"), "spec")["containers"].([]any)
}

// setImages hands the images to the program, so that an administrator who mirrors them changes the bundle alone.
func setImages(program object, named []any) {
	environment, _ := program["env"].([]any)
	for _, image := range named {
		variable := "RELATED_IMAGE_" + strings.ToUpper(strings.ReplaceAll(image.(object)["name"].(string), "-", "_"))
		environment = append(environment, object{"name": variable, "value": image.(object)["image"]})
	}
	program["env"] = environment
}

func find(objects []object, kind string) object {
	return objects[slices.IndexFunc(objects, func(o object) bool { return o["kind"] == kind })]
}

func at(o object, key string) object {
	inner, _ := o[key].(object)
	return inner
}

func parse(content []byte) (objects []object, err error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		o := object{}
		if err := decoder.Decode(&o); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, err
		}
		if len(o) > 0 {
			objects = append(objects, o)
		}
	}
}

func (b *bundle) save(file string, o object) error {
	content, err := write.Marshal(o)
	if err != nil {
		return err
	}
	head := []byte("# Written by make generate: change what is in deploy.\n")
	return os.WriteFile(filepath.Join(b.out, file), append(head, content...), 0o644)
}
