package lint

import (
	"encoding/json"
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
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/parameters"
	"github.com/holdfast-storage/holdfast/test/rig/documents"
)

// checkedElsewhere are commands whose lines another test checks.
var checkedElsewhere = map[string]string{
	"holdfast": "TestExamples_OfTheDocumentsAreAccepted parses them", "bin/holdfast": "the same",
}

// onTheHost are commands that no test runs, since they change a host or need what is not part of this repository.
var onTheHost = map[string]string{
	"mkfs.xfs": "formats a disk", "wipefs": "erases a disk", "chattr": "changes a directory of the host", "mount": "mounts on the host", "umount": "the same",
	"blkid": "reads a disk", "rm": "removes data", "mkdir": "makes a directory of the host", "cat": "reads a pool of the host", "ls": "the same",
	"ctr": "loads into the container runtime", "skopeo": "pushes to a registry", "curl": "asks a running process", "jq": "is a filter", "grep": "is a filter", "sed": "is a filter",
	"sort": "is a filter", "comm": "is a filter", "base64": "is a filter", "openssl": "makes a password", "hostname": "asks the host",
	"echo": "prints", "export": "sets a variable", "read": "is of the shell", "for": "is of the shell", "case": "is of the shell",
	"bin/cluster": "starts and stops machines", "source": "is of the user's shell", "xargs": "passes names on", "dirname": "is of the shell", "dlv": "is a debugger",
	"rbd": "asks a Ceph cluster", "rados": "the same",
	"ceph": "asks a Ceph cluster", "podman": "runs an image that is not built here", "getfattr": "reads a pool of the host",
	"cd": "is of the shell", "alias": "is of the user's shell", "0": "is a branch of case", "1": "is a branch of case", "*": "is a branch of case",
}

// noCommands begin the indented blocks that are not commands, with what they are.
var noCommands = map[string]string{
	"class holdfast of": "output of holdfast bench", "allocatable = ": "a formula", "no room: ": "a message", "pool.json ": "files of a pool",
	"/volumes/<group>": "the files of a pool in Ceph", "[Unit]": "a unit of systemd", "scrape_configs:": "of the configuration of Prometheus",
}

// printed is what commands within manifests print, such as it may be.
var printed = strings.NewReplacer(
	"$(ceph fsid)", "11111111-2222-3333-4444-555555555555",
	"$(ceph mon dump | grep -o 'v2:[^/]*' | paste -sd,)", "v2:10.0.0.1:3300,v2:10.0.0.2:3300",
)

// fragments are the indented parts of objects, by page and first word, and the kind that each is part of.
var fragments = map[string][2]string{
	"docs/ceph.md spec:":                   {"StorageCluster", ""},
	"docs/pools.md spec:":                  {"StorageCluster", ""},
	"docs/volume-objects.md spec:":         {"Volume", ""},
	"docs/nodejob.md command:":             {"NodeJob", "spec"},
	"docs/shared-volumes.md nodeSelector:": {"Pod", "spec"},
}

// foreignResources are the resources of Kubernetes and others that documents name.
var foreignResources = map[string]string{
	"pods": "Pod", "pod": "Pod", "pvc": "PersistentVolumeClaim", "persistentvolume": "PersistentVolume", "persistentvolumes": "PersistentVolume",
	"storageclass": "StorageClass", "namespace": "Namespace", "ns": "Namespace", "crd": "", "secret": "Secret", "clusterroles": "ClusterRole", "prometheusrule": "", "configmap": "ConfigMap",
	"validatingadmissionpolicy": "", "validatingadmissionpolicybinding": "", "storageoscluster": "", "deployment": "Deployment", "pv": "PersistentVolume",
}

// custom is what a CustomResourceDefinition says about its kind.
type custom struct {
	APIVersion, Kind string
	Selectable       []string
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
					Name             string
					SelectableFields []struct{ JSONPath string }
					Schema           struct{ OpenAPIV3Schema map[string]any }
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
		kind := custom{
			APIVersion: crd.Spec.Group + "/" + version.Name, Kind: crd.Spec.Names.Kind,
			Selectable: []string{"metadata.name", "metadata.namespace"}, Schema: version.Schema.OpenAPIV3Schema,
		}
		for _, field := range version.SelectableFields {
			kind.Selectable = append(kind.Selectable, strings.TrimPrefix(field.JSONPath, "."))
		}
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

// sample makes a value with all that a schema has.
func sample(schema map[string]any) any {
	if items, ok := schema["items"].(map[string]any); ok {
		return []any{sample(items)}
	}
	if schema["type"] != "object" {
		return "x"
	}
	value := map[string]any{}
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		if property, ok := property.(map[string]any); ok {
			value[name] = sample(property)
		}
	}
	return value
}

// reader checks the commands and manifests of one page.
type reader struct {
	page, text string
	kinds      map[string]custom
	decoder    apiruntime.Decoder
	makefile   string
	partial    bool   // what is checked refers to the rest of an object that is not there
	settings   string // the Makefile and what it reads
	lanes      string // the file that lists them
}

func newReader(t *testing.T, page string) *reader {
	t.Helper()
	kinds := apiruntime.NewScheme()
	for _, add := range []func(*apiruntime.Scheme) error{scheme.AddToScheme, v1beta1.AddToScheme} {
		if err := add(kinds); err != nil {
			t.Fatal(err)
		}
	}
	return &reader{
		page: page, kinds: customKinds(t), makefile: read(t, "Makefile"), settings: read(t, "Makefile") + read(t, "test/run/env.sh") + read(t, "test/run/lanes.sh"),
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
	if content["apiVersion"] == "kustomize.config.k8s.io/v1beta1" {
		return nil // test/suite/deploy builds each of the repository
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
	if ours, ok := object.(interface{ Unreadable() error }); ok && ours.Unreadable() != nil {
		return ours.Unreadable()
	}
	switch object := object.(type) {
	case *v1beta1.StorageCluster:
		if r.partial {
			return nil
		}
		_, err = render.Objects(render.Input{Cluster: object, Namespace: "holdfast-system", Release: render.NewRelease("holdfast/holdfast:v1", func(string) string { return "" })})
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

// command checks one command.
func (r *reader) command(c documents.Call) error {
	name, args := strings.Trim(c.Words[0], "[]"), c.Words[1:]
	switch {
	case checkedElsewhere[name] != "" || onTheHost[name] != "":
		return nil
	case name == "make":
		return r.make(args)
	case name == "kubectl":
		return r.kubectl(args, c.Stdin)
	case name == "helm":
		return r.helm(args)
	case name == "go":
		return r.golang(args)
	case strings.HasPrefix(name, "test/tool/") || strings.HasPrefix(name, "images/"):
		_, err := os.Stat(filepath.Join(repository, name))
		return err
	}
	return fmt.Errorf("no check is known for %s: add one here, or to onTheHost with the reason", name)
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

func (r *reader) golang(args []string) error {
	for _, arg := range args {
		if path, ok := strings.CutPrefix(arg, "./"); ok {
			if _, err := os.Stat(filepath.Join(repository, strings.TrimSuffix(path, "/..."))); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *reader) helm(args []string) error {
	for i, arg := range args {
		switch {
		case strings.HasPrefix(arg, "deploy/"):
			if _, err := os.Stat(filepath.Join(repository, arg, "Chart.yaml")); err != nil {
				return err
			}
		case strings.HasPrefix(arg, "--set"):
			return fmt.Errorf("%s is not checked: show a values.yaml, which test/suite/deploy checks", arg)
		case arg == "--values" && !strings.Contains(r.install(), "# "+args[i+1]+"\n"):
			return fmt.Errorf("docs/install.md shows no %s", args[i+1])
		}
	}
	return nil
}

func (r *reader) install() string {
	text, _ := os.ReadFile(filepath.Join(repository, "docs/install.md"))
	return string(text)
}

// valueFlags are the flags of kubectl that documents give with a value in a word of its own.
var valueFlags = []string{"-n", "-o", "-p", "-f", "-k", "-l", "-c", "--type", "--as", "--kubeconfig", "--field-selector", "--namespace", "--context"}

// kubectl checks a command of kubectl: its resource, and what its flags give.
func (r *reader) kubectl(args []string, stdin string) error {
	flags, words := map[string]string{}, []string{}
	for i := 0; i < len(args) && args[i] != ">"; i++ {
		switch name, value, ok := strings.Cut(args[i], "="); {
		case args[i] == "<" || !strings.HasPrefix(args[i], "-") || args[i] == "-":
			words = append(words, args[i])
		case !ok && slices.Contains(valueFlags, name) && i+1 < len(args):
			i++
			flags[name] = args[i]
		default:
			flags[name] = value
		}
	}
	if len(words) == 0 {
		return nil
	}
	verb := words[0]
	switch verb {
	case "holdfast", "logs", "port-forward", "rollout", "drain", "explain", "taint":
		return nil
	case "apply", "create", "delete", "replace":
		if file, ok := flags["-f"]; ok && file != "" {
			return r.file(file, stdin)
		}
		if dir, ok := flags["-k"]; ok {
			return r.kustomization(dir)
		}
		if verb != "delete" {
			return nil // kubectl create secret and others of kubectl's own
		}
	case "get", "describe", "wait", "patch", "edit", "label", "annotate":
	default:
		return fmt.Errorf("no check is known for kubectl %s", verb)
	}
	if len(words) < 2 {
		return nil
	}
	for name := range strings.SplitSeq(strings.SplitN(words[1], "/", 2)[0], ",") {
		if err := r.resource(strings.TrimSuffix(name, ".holdfast.dev"), flags); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// resource checks a resource, and what flags say about its fields.
func (r *reader) resource(name string, flags map[string]string) error {
	kind, our := r.kinds[name]
	other, known := foreignResources[name]
	if !our && !known {
		return fmt.Errorf("it is no resource of Holdfast, and not in foreignResources")
	}
	if patch := flags["-p"] + flags["--patch"]; patch != "" {
		if !our {
			kind.Kind = other
		}
		return r.patch(kind, flags["--type"], patch)
	}
	if !our {
		return nil
	}
	if selector := flags["--field-selector"]; selector != "" {
		if field, _, _ := strings.Cut(selector, "="); !slices.Contains(kind.Selectable, field) {
			return fmt.Errorf("%s cannot be selected: only %v can", field, kind.Selectable)
		}
	}
	output := flags["-o"]
	if condition, ok := strings.CutPrefix(flags["--for"], "jsonpath="); ok {
		output = "jsonpath=" + strings.SplitAfter(condition, "}")[0]
	}
	template, ok := strings.CutPrefix(output, "jsonpath=")
	if !ok {
		return nil
	}
	path := jsonpath.New(name)
	if err := path.Parse(template); err != nil {
		return err
	}
	if err := path.Parse(filter.ReplaceAllString(template, "[*]")); err != nil {
		return err
	}
	return path.Execute(&strings.Builder{}, sample(kind.Schema))
}

// filter is a filter of a JSONPath, which selects nothing of a sample.
var filter = regexp.MustCompile(`\[\?\([^)]*\)\]`)

func (r *reader) patch(kind custom, patchType, patch string) error {
	if patchType == "json" {
		var operations []struct{ Op, Path string }
		if err := json.Unmarshal([]byte(patch), &operations); err != nil {
			return err
		}
		for _, operation := range operations {
			if err := jsonPointer(sample(kind.Schema), operation.Path); err != nil {
				return err
			}
		}
		return nil
	}
	object := map[string]any{}
	if err := json.Unmarshal([]byte(patch), &object); err != nil {
		return fmt.Errorf("%w: %s", err, patch)
	}
	patched := *r
	patched.partial = true
	return patched.part(kind.Kind, object)
}

// part checks a part of an object as if the rest of the object were around it.
func (r *reader) part(kind string, object map[string]any) error {
	object["apiVersion"], object["kind"] = "v1", kind
	if known, ok := r.kinds[kind]; ok {
		object["apiVersion"] = known.APIVersion
	}
	if object["metadata"] == nil {
		object["metadata"] = map[string]any{"name": "holdfast"}
	}
	content, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return r.object(string(content))
}

// jsonPointer refuses a path to a field that an object does not have.
func jsonPointer(object any, path string) error {
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		fields, _ := object.(map[string]any)
		if _, ok := fields[name]; !ok {
			return fmt.Errorf("%s: there is no %s", path, name)
		}
		object = fields[name]
	}
	return nil
}

// file checks what kubectl reads: a file of the repository, or its standard input.
func (r *reader) file(name, stdin string) error {
	switch name {
	case "-":
		if stdin == "" {
			return nil // from a pipe, whose other command is checked
		}
		return r.manifest(stdin)
	case "install.yaml": // as it is called in a release
		name = "deploy/install.yaml"
	}
	if _, err := os.Stat(filepath.Join(repository, name)); err != nil {
		return err
	}
	if name == "deploy/install.yaml" {
		return nil // test/suite/deploy decodes it
	}
	text, err := os.ReadFile(filepath.Join(repository, name))
	if err != nil {
		return err
	}
	return r.manifest(string(text))
}

func (r *reader) kustomization(dir string) error {
	if strings.Contains(r.text, "# "+dir+"/kustomization.yaml\n") {
		return nil
	}
	_, err := os.Stat(filepath.Join(repository, dir, "kustomization.yaml"))
	return err
}

var inlineOfOurs = regexp.MustCompile("`((?:kubectl|make|helm|go) [^`\n]+)`")

// blocks checks all of a page, and returns how many commands and manifests it has.
func (r *reader) blocks(text string) (count int, wrong []error) {
	note := func(err error) {
		count++
		if err != nil {
			wrong = append(wrong, err)
		}
	}
	r.text = text
	for _, block := range documents.Fenced.FindAllStringSubmatch(text, -1) {
		first, _, _ := strings.Cut(block[2], "\n")
		switch {
		case block[1] == "mermaid" || block[1] == "text": // pictures
		case block[1] != "yaml":
			note(fmt.Errorf("no check is known for a block of %q", block[1]))
		case first == "# values.yaml" || first == "# mine/kustomization.yaml":
			if r.page != "docs/install.md" { // TestDocs_ExamplesInstall reads that page alone
				note(fmt.Errorf("%s is checked in docs/install.md only", first))
			}
		default:
			note(r.manifest(block[2]))
		}
	}
	text = documents.Fenced.ReplaceAllString(text, "")
	for _, block := range documents.Paragraphs(text) {
		for _, err := range r.block(block) {
			note(err)
		}
	}
	for _, span := range inlineOfOurs.FindAllStringSubmatch(text, -1) {
		for _, c := range documents.Shell(span[1]) {
			note(r.command(c))
		}
	}
	return count, wrong
}

// block checks an indented block, and returns a result for each of its commands.
func (r *reader) block(text string) (results []error) {
	for begin := range noCommands {
		if strings.HasPrefix(text, begin) {
			return nil
		}
	}
	if manifest, rest, ok := strings.Cut(text, "\n\n"); strings.HasPrefix(text, "apiVersion:") {
		results = append(results, r.manifest(manifest))
		if text = rest; !ok {
			return results
		}
	}
	word, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	if part, ok := fragments[r.page+" "+strings.TrimSpace(word)]; ok || strings.HasPrefix(text, "spec:\n") {
		return append(results, r.fragment(part, text))
	}
	for _, c := range documents.Commands(text) {
		err := r.command(c)
		if err != nil {
			err = fmt.Errorf("%s: %w", strings.Join(c.Words, " "), err)
		}
		results = append(results, err)
	}
	return results
}

// fragment checks an indented part of an object.
func (r *reader) fragment(part [2]string, text string) error {
	kind, field := part[0], part[1]
	object := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(text), &object); err != nil {
		return err
	}
	if field != "" {
		object = map[string]any{field: object}
	}
	return r.part(kind, object)
}

func TestCommands_OfTheDocumentsAreCorrect(t *testing.T) {
	total := 0
	for _, page := range append(glob(t, "docs/*.md"), "README.md", "CONTRIBUTING.md") {
		count, wrong := newReader(t, page).blocks(read(t, page))
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
	for _, wrong := range []string{
		"    make instal\n", "    make lane-golde\n", "    make e2e KUBECONFG=x\n", "    kubectl apply -f deploy/examples/clam.yaml\n", "    kubectl apply -k deploy/crd\n",
		"    kubectl get storageclutser\n", "    kubectl get volumes --field-selector spec.size=1\n", "    kubectl frobnicate x\n",
		"    kubectl get storagenode n -o jsonpath='{.status.pols[*].name}'\n", "    kubectl get storagenode n -o jsonpath='{.status'\n",
		"    kubectl get storagenode n -o jsonpath='{.status.pools[?(@.name==\"fast\")].idd}'\n",
		"    kubectl patch storagecluster holdfast --type=merge -p '{\"spec\":{\"debugg\":true}}'\n", "    kubectl patch storagecluster h -p '{\"spec\":'\n",
		"    kubectl patch storagecluster h --type=json -p '[{\"op\":\"remove\",\"path\":\"/spec/image\"}]'\n",
		"    kubectl patch persistentvolume p -p '{\"spec\":{\"reclaimPolicy\":\"Retain\"}}'\n",
		"    helm install holdfast deploy/charts\n", "    helm install holdfast deploy/chart --values mine.yaml\n", "    helm install holdfast deploy/chart --set a=b\n",
		"    go test ./drivers\n", "    shutdown now\n", "    test/tool/nothing\n", "Run `make nothing`.\n",
		"    kubectl apply -f - <<END\n    apiVersion: holdfast.dev/v1beta1\n    kind: StorageUpgrade\n    metadata: {name: v2}\n    spec: {imag: x}\n    END\n",
		"    apiVersion: holdfast.dev/v1beta1\n    kind: NFSServer\n    metadata: {name: a}\n    spec: {store: {}}\n", "    spec:\n      pools: []\n",
		"```yaml\napiVersion: holdfast.dev/v1beta1\nkind: StorageCluster\nmetadata: {name: a}\nspec: {controller: {replicas: 10}}\n```\n",
		"```yaml\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: a}\nprovisioner: csi.holdfast.dev\nparameters: {fsType: xfs}\n```\n",
		"```yaml\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: a}\nprovisioner: nfs.holdfast.dev\nparameters: {server: x}\n```\n",
		"```bash\nls\n```\n", "```yaml\n# values.yaml\na: 1\n```\n",
	} {
		if count, got := newReader(t, "docs/x.md").blocks(wrong); len(got) == 0 {
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
