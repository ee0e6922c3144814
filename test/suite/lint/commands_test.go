package lint

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	storage "k8s.io/api/storage/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/parameters"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/documents"
)

// The commands of kubectl and holdfast are run in a cluster by TestDocuments_CommandsRunInACluster, those of helm by
// test/suite/helm. What is read here needs no cluster: that what they and others name exists.

// foreignResources are the resources of Kubernetes and others that documents name.
var foreignResources = []string{
	"clusterroles", "configmap", "crd", "deployment", "namespace", "node", "nodes", "ns", "persistentvolume", "persistentvolumes", "pod", "pods", "prometheusrule", "pv", "pvc",
	"secret", "storageclass", "storageoscluster", "validatingadmissionpolicy", "validatingadmissionpolicybinding",
}

// ofOthersToo are the names of resources that other products have as well: kubectl may take theirs.
var ofOthersToo = regexp.MustCompile(`^(nfsserver|snapshot|storagecluster|storagenode|volume)s?$`)

// printed is what commands within manifests print, such as it may be.
var printed = strings.NewReplacer(
	"$(ceph fsid)", "11111111-2222-3333-4444-555555555555",
	"$(ceph mon dump | grep -o 'v2:[^/]*' | paste -sd,)", "v2:10.0.0.1:3300,v2:10.0.0.2:3300",
)

// custom is what a CustomResourceDefinition says about its kind.
type custom struct {
	APIVersion, Kind string
	Schema           map[string]any
}

// customKinds are the kinds that Holdfast installs, by their kind and each name that kubectl knows them by.
func customKinds(t *testing.T) map[string]custom {
	t.Helper()
	all := map[string]custom{}
	for _, file := range append(glob(t, "deploy/crds/holdfast.dev_*.yaml"), glob(t, "deploy/snapshots/*.yaml")...) {
		var crd struct {
			Spec struct {
				Group string
				Names struct {
					Plural, Singular, Kind string
					ShortNames             []string
				}
				Versions []struct {
					Name   string
					Schema struct{ OpenAPIV3Schema map[string]any }
				}
			}
		}
		check.OK(t, yaml.Unmarshal([]byte(read(t, file)), &crd))
		names, version := crd.Spec.Names, crd.Spec.Versions[0]
		for _, name := range append(names.ShortNames, names.Plural, names.Singular, names.Kind) {
			all[name] = custom{crd.Spec.Group + "/" + version.Name, names.Kind, version.Schema.OpenAPIV3Schema}
		}
	}
	return all
}

// unknown is the path of a field that a schema does not have; "" if there is none.
func unknown(schema map[string]any, value any) string {
	properties, _ := schema["properties"].(map[string]any)
	items, _ := schema["items"].(map[string]any)
	switch value := value.(type) {
	case []any:
		for _, one := range value {
			if path := unknown(items, one); path != "" {
				return "[]" + path
			}
		}
	case map[string]any:
		for name, one := range value {
			property, ok := properties[name].(map[string]any)
			if path := unknown(property, one); len(properties) > 0 && (!ok || path != "") {
				return "." + name + path
			}
		}
	}
	return ""
}

// reader checks commands and manifests.
type reader struct {
	kinds    map[string]custom
	decoder  apiruntime.Decoder
	makefile string
	settings string // the Makefile and what it reads
	lanes    string // the file that lists them
}

func newReader(t *testing.T) *reader {
	t.Helper()
	kinds := apiruntime.NewScheme()
	check.OK(t, scheme.AddToScheme(kinds))
	check.OK(t, v1beta1.AddToScheme(kinds))
	return &reader{
		kinds: customKinds(t), makefile: read(t, "Makefile"), settings: read(t, "Makefile") + read(t, "test/run/env.sh") + read(t, "test/run/lanes.sh"),
		lanes:   read(t, "test/tool/lane/lanes.go"),
		decoder: serializer.NewCodecFactory(kinds, serializer.EnableStrict).UniversalDeserializer(),
	}
}

// manifest checks each document of a manifest. A spec that is shown without its object is of a kind that has all of its fields.
func (r *reader) manifest(text string) error {
	for document := range strings.SplitSeq(printed.Replace(text), "\n---\n") {
		content := map[string]any{}
		err := yaml.UnmarshalStrict([]byte(document), &content)
		switch {
		case err != nil:
		case content["kind"] != nil && content["apiVersion"] != "kustomize.config.k8s.io/v1beta1":
			err = r.object(content, document)
		case content["spec"] != nil:
			hasAll := func(kind custom) bool { return unknown(kind.Schema, content) == "" }
			if !slices.ContainsFunc(slices.Collect(maps.Values(r.kinds)), hasAll) {
				err = errors.New("no kind has all fields")
			}
		} // else values of the chart or a kustomization: test/suite/deploy builds both
		if err != nil {
			return fmt.Errorf("%w in\n%s", err, document)
		}
	}
	return nil
}

func (r *reader) object(content map[string]any, document string) error {
	kind, isCustom := r.kinds[fmt.Sprint(content["kind"])]
	if isCustom && content["apiVersion"] != kind.APIVersion {
		return fmt.Errorf("apiVersion %v is not allowed: it must be %s", content["apiVersion"], kind.APIVersion)
	}
	if path := unknown(kind.Schema, content); path != "" { // the types of Holdfast decode what they can
		return fmt.Errorf("%s has no field %s", kind.Kind, path)
	}
	if isCustom && kind.APIVersion != v1beta1.SchemeGroupVersion.String() {
		return nil // this module has no types for it
	}
	object, _, err := r.decoder.Decode([]byte(document), nil, nil)
	if err != nil {
		return err
	}
	switch object := object.(type) {
	case interface{ Unreadable() error }:
		return object.Unreadable()
	case *storage.StorageClass:
		switch object.Provisioner {
		case "csi.holdfast.dev":
			_, err = parameters.CSI.Read(object.Parameters)
		case "nfs.holdfast.dev":
			_, err = parameters.Plain.Read(object.Parameters)
		}
	}
	return err
}

// command checks what a command names.
func (r *reader) command(c documents.Call) error {
	name, args := c.Words[0], c.Words[1:]
	paths := slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return name != "go" || !strings.HasPrefix(arg, "./") })
	switch {
	case name == "make":
		return r.make(args)
	case name == "kubectl":
		return r.kubectl(args, c.Stdin)
	case strings.HasPrefix(name, "test/tool/"), strings.HasPrefix(name, "test/cluster/"), strings.HasPrefix(name, "images/"):
		paths = append(paths, name)
	}
	for _, path := range paths {
		if !exists(strings.TrimSuffix(path, "/...")) {
			return fmt.Errorf("%s does not exist", path)
		}
	}
	return nil
}

func (r *reader) make(args []string) error {
	for _, arg := range args {
		if variable, _, ok := strings.Cut(arg, "="); ok {
			if !regexp.MustCompile(`\b` + variable + `\b`).MatchString(r.settings) {
				return fmt.Errorf("the Makefile has no variable %s", variable)
			}
		} else if lane, ok := strings.CutPrefix(arg, "lane-"); ok {
			if lane != "NAME" && !strings.Contains(r.lanes, fmt.Sprintf("name: %q,", lane)) {
				return fmt.Errorf("test/tool/lane has no lane %s", lane)
			}
		} else if !regexp.MustCompile(`(?m)^(?:[a-z-]+ )*` + regexp.QuoteMeta(arg) + `(?: [a-z-]+)*:(?:[^=]|$)`).MatchString(r.makefile) {
			return fmt.Errorf("the Makefile has no target %s", arg)
		}
	}
	return nil
}

// kubectl checks the files and kinds of a command of kubectl.
func (r *reader) kubectl(args []string, stdin string) error {
	var words []string // which are no flags
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "-f", "-k":
			if i++; i == len(args) || args[i] == "install.yaml" || args[i] == "mine" || args[i] == "-" {
				return r.manifest(stdin) // what a release has, and what docs/install.md shows
			}
			if !exists(args[i]) {
				return fmt.Errorf("%s does not exist", args[i])
			}
			return nil
		case "-n", "-o", "-p", "-l", "--as", "--field-selector", "--type":
			i++
		default:
			if !strings.HasPrefix(args[i], "-") {
				words = append(words, args[i])
			}
		}
	}
	if len(words) < 2 || !slices.Contains([]string{"get", "describe", "wait", "patch", "edit", "label", "annotate", "delete"}, words[0]) {
		return nil
	}
	var kind custom
	for name := range strings.SplitSeq(strings.SplitN(words[1], "/", 2)[0], ",") {
		var ours bool
		if kind, ours = r.kinds[strings.TrimSuffix(name, ".holdfast.dev")]; !ours && !slices.Contains(foreignResources, name) {
			return fmt.Errorf("%s is no resource of Holdfast, and not in foreignResources", name)
		}
		if ofOthersToo.MatchString(name) {
			return fmt.Errorf("%s is a resource of others, too: it must be %s.holdfast.dev", name, name)
		}
	}
	return r.patch(kind, args)
}

// patch checks the fields of a merge patch for a kind of Holdfast.
func (r *reader) patch(kind custom, args []string) error {
	var content any
	i := slices.IndexFunc(args, func(arg string) bool { return arg == "-p" || strings.HasPrefix(arg, "--patch=") })
	if i < 0 || kind.Schema == nil {
		return nil
	}
	text := strings.TrimPrefix(args[i], "--patch=")
	if text == "-p" {
		text = strings.Join(args[i+1:min(i+2, len(args))], "")
	}
	if err := json.Unmarshal([]byte(text), &content); err != nil {
		return err
	}
	if path := unknown(kind.Schema, content); path != "" {
		return fmt.Errorf("%s has no field %s", kind.Kind, path)
	}
	return nil
}

// page checks all commands and manifests of a page, and returns what is wrong of each, or nil.
func (r *reader) page(text string) (checked []error) {
	for _, block := range documents.Fenced.FindAllStringSubmatch(text, -1) {
		if block[1] == "yaml" {
			checked = append(checked, r.manifest(block[2]))
		}
	}
	for _, block := range documents.Paragraphs(documents.Fenced.ReplaceAllString(text, "")) {
		switch {
		case strings.HasPrefix(block, "apiVersion:"):
			manifest, _, _ := strings.Cut(block, "\n\n")
			checked = append(checked, r.manifest(manifest))
		case strings.HasPrefix(block, "spec:\n"):
			checked = append(checked, r.manifest(block))
		}
	}
	for _, c := range documents.Of(text) {
		err := r.command(c)
		if err != nil {
			err = fmt.Errorf("%s: %w", strings.Join(c.Words, " "), err)
		}
		checked = append(checked, err)
	}
	return checked
}

func TestCommands_OfTheDocumentsAreCorrect(t *testing.T) {
	r, total := newReader(t), 0
	for _, page := range append(pages(t), "CONTRIBUTING.md") {
		for _, err := range r.page(read(t, page)) {
			if total++; err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
	if total < 150 {
		t.Errorf("only %d commands and manifests were found", total)
	}
}
