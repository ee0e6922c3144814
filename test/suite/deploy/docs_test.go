package deploy

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// page is what users install by.
const page = "docs/install.md"

// example is a file that the page shows, which begins with its name.
var example = regexp.MustCompile("(?ms)^```yaml\n# (\\S+)\n(.*?)^```$")

func TestDocs_ExamplesInstall(t *testing.T) {
	check, tried := strict(t), map[string]int{}
	usual, cluster := operated(t, nil, nil), ""
	for _, match := range example.FindAllStringSubmatch(read(t, page), -1) {
		file, content := match[1], match[2]
		values := map[string]any{}
		if err := yaml.UnmarshalStrict([]byte(content), &values); err != nil {
			t.Fatal(err)
		}
		var got Objects
		switch file {
		case "values.yaml":
			rendered := render(t, Release{Values: values})
			check(t, rendered)
			spec, _ := lookup(rendered["StorageCluster holdfast"].Object, "spec")
			got = operated(t, spec.(map[string]any), optionalKinds)
		case "storagecluster.yaml":
			cluster = content
			got = operated(t, values["spec"].(map[string]any), nil)
		case "mine/kustomization.yaml":
			got = overlaid(t, content, map[string]string{"storagecluster.yaml": cluster})
			if got["StorageCluster holdfast"] == nil || len(got["Namespace "+namespace].GetAnnotations()) > 0 {
				t.Errorf("there would be two StorageClusters: %v", got["Namespace "+namespace])
			}
		default:
			t.Errorf("no test applies the example %s", file)
			continue
		}
		tried[file]++
		check(t, got)
		if len(Differences(usual, got)) == 0 {
			t.Errorf("this changes nothing:\n%s", content)
		}
	}
	if tried["values.yaml"] < 1 || tried["storagecluster.yaml"] < 2 || tried["mine/kustomization.yaml"] < 1 {
		t.Errorf("found were only %v", tried)
	}
}

func TestChart_NotesNameWhatIsMissing(t *testing.T) {
	for name, c := range map[string]struct {
		kinds   []string
		snippet string
		want    bool
	}{
		"a namespace without a label":      {nil, "kubectl label namespace storage pod-security.kubernetes.io/enforce=privileged", true},
		"a cluster without snapshots":      {nil, "Holdfast installs them", true},
		"a cluster with snapshots":         {optionalKinds, "Holdfast installs them", false},
		"no other default StorageClass":    {nil, "kubectl annotate storageclass", false},
		"the commands are for the release": {nil, "helm uninstall holdfast --namespace storage", true},
		"a claim":                          {nil, "storageClassName: holdfast\n", true},
		"what is wrong":                    {nil, "kubectl -n storage exec deploy/holdfast-controller -- holdfast doctor", true},
	} {
		t.Run(name, func(t *testing.T) {
			files, err := loaded(t).Files(Release{Namespace: "storage", Kinds: c.kinds})
			if err != nil {
				t.Fatal(err)
			}
			if notes := files["holdfast/templates/NOTES.txt"]; strings.Contains(notes, c.snippet) != c.want {
				t.Errorf("that the notes say %q is %t, not %t:\n%s", c.snippet, !c.want, c.want, notes)
			}
		})
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(path.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
