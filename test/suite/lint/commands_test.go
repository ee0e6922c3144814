package lint

import (
	"fmt"
	"os"
	"path/filepath"
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
	"clusterroles", "configmap", "crd", "deployment", "namespace", "nodes", "ns", "persistentvolume", "persistentvolumes", "pod", "pods", "prometheusrule", "pv", "pvc",
	"secret", "storageclass", "storageoscluster", "validatingadmissionpolicy", "validatingadmissionpolicybinding",
}

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
			Kind string
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
		if err := yaml.Unmarshal([]byte(read(t, file)), &crd); err != nil {
			t.Fatal(file, err)
		}
		if crd.Kind != "CustomResourceDefinition" {
			continue
		}
		version := crd.Spec.Versions[0]
		kind := custom{crd.Spec.Group + "/" + version.Name, crd.Spec.Names.Kind, version.Schema.OpenAPIV3Schema}
		for _, name := range append(crd.Spec.Names.ShortNames, crd.Spec.Names.Plural, crd.Spec.Names.Singular, crd.Spec.Names.Kind) {
			all[name] = kind
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

// reader checks the commands and manifests of one page.
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
	for _, add := range []func(*apiruntime.Scheme) error{scheme.AddToScheme, v1beta1.AddToScheme} {
		check.OK(t, add(kinds))
	}
	return &reader{
		kinds: customKinds(t), makefile: read(t, "Makefile"), settings: read(t, "Makefile") + read(t, "test/run/env.sh") + read(t, "test/run/lanes.sh"),
		lanes:   read(t, "test/tool/lane/lanes.go"),
		decoder: serializer.NewCodecFactory(kinds, serializer.EnableStrict).UniversalDeserializer(),
	}
}

// manifest checks each document of a manifest.
func (r *reader) manifest(text string) error {
	for document := range strings.SplitSeq(printed.Replace(text), "\n---\n") {
		if err := r.object(document); err != nil {
			return fmt.Errorf("%w in\n%s", err, document)
		}
	}
	return nil
}

func (r *reader) object(document string) error {
	content := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(document), &content); err != nil {
		return err
	}
	if content["kind"] == nil || content["apiVersion"] == "kustomize.config.k8s.io/v1beta1" {
		return nil // values of the chart or a kustomization: test/suite/deploy builds both
	}
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

// spec checks a spec that is shown without its object: one of the kinds must have all of its fields.
func (r *reader) spec(text string) error {
	content := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(text), &content); err != nil {
		return err
	}
	for _, kind := range r.kinds {
		if unknown(kind.Schema, content) == "" {
			return nil
		}
	}
	return fmt.Errorf("no kind has all fields of\n%s", text)
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

func exists(path string) bool {
	_, err := os.Stat(filepath.Join(repository, path))
	return err == nil
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
	if len(words) < 2 || !slices.Contains([]string{"get", "describe", "wait", "patch", "edit", "label", "annotate"}, words[0]) {
		return nil
	}
	for name := range strings.SplitSeq(strings.SplitN(words[1], "/", 2)[0], ",") {
		name = strings.TrimSuffix(name, ".holdfast.dev")
		if _, ours := r.kinds[name]; !ours && !slices.Contains(foreignResources, name) {
			return fmt.Errorf("%s is no resource of Holdfast, and not in foreignResources", name)
		}
	}
	return nil
}

// page checks all of a page, and returns how many commands and manifests it has.
func (r *reader) page(text string) (count int, wrong []error) {
	note := func(err error) {
		count++
		if err != nil {
			wrong = append(wrong, err)
		}
	}
	for _, block := range documents.Fenced.FindAllStringSubmatch(text, -1) {
		if block[1] == "yaml" {
			note(r.manifest(block[2]))
		}
	}
	for _, block := range documents.Paragraphs(documents.Fenced.ReplaceAllString(text, "")) {
		switch {
		case strings.HasPrefix(block, "apiVersion:"):
			manifest, _, _ := strings.Cut(block, "\n\n")
			note(r.manifest(manifest))
		case strings.HasPrefix(block, "spec:\n"):
			note(r.spec(block))
		}
	}
	for _, c := range documents.Of(text) {
		if err := r.command(c); err != nil {
			note(fmt.Errorf("%s: %w", strings.Join(c.Words, " "), err))
		} else {
			note(nil)
		}
	}
	return count, wrong
}

func TestCommands_OfTheDocumentsAreCorrect(t *testing.T) {
	r, total := newReader(t), 0
	for _, page := range append(glob(t, "docs/*.md"), "README.md", "CONTRIBUTING.md") {
		count, wrong := r.page(read(t, page))
		total += count
		for _, err := range wrong {
			t.Errorf("%s: %v", page, err)
		}
	}
	if total < 150 {
		t.Errorf("only %d commands and manifests were found", total)
	}
}

func TestCommands_WrongOnesAreRefused(t *testing.T) {
	const class = "```yaml\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: a}\nprovisioner: csi.holdfast.dev\nparameters: {fsType: xfs}\n```\n"
	r := newReader(t)
	for _, wrong := range []string{
		"    make instal\n", "    make lane-golde\n", "    make e2e KUBECONFG=x\n", "Run `make nothing`.\n", "    go test ./drivers\n", "    test/tool/nothing -v\n",
		"    kubectl apply -f deploy/examples/clam.yaml\n", "    kubectl apply -k deploy/crd\n", "    kubectl get storageclutser\n", class,
		"    kubectl apply -f - <<END\n    apiVersion: holdfast.dev/v1beta1\n    kind: StorageUpgrade\n    metadata: {name: v2}\n    spec: {imag: x}\n    END\n",
		"    apiVersion: holdfast.dev/v1beta1\n    kind: NFSServer\n    metadata: {name: a}\n    spec: {store: {}}\n", "    spec:\n      pols: []\n",
	} {
		if count, got := r.page(wrong); len(got) == 0 {
			t.Errorf("%d commands were found and none refused in\n%s", count, wrong)
		}
	}
}

func TestREADME_NamesEachParameterOfAStorageClass(t *testing.T) {
	_, section, _ := strings.Cut(read(t, "README.md"), "\n## Parameters\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var named []string
	for _, span := range codeSpan.FindAllStringSubmatch(section, -1) {
		named = append(named, span[1])
	}
	slices.Sort(named)
	want := slices.DeleteFunc(parameters.CSI.Keys(), func(key string) bool { return strings.HasSuffix(key, "/...") })
	if !slices.Equal(named, want) {
		t.Errorf("it names %v, and there are %v", named, want)
	}
}
