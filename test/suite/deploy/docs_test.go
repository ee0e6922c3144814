package deploy

import (
	"maps"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// example is a file that the page shows, which begins with its name.
var example = regexp.MustCompile("(?ms)^```yaml\n# (\\S+)\n(.*?)^```$")

func TestDocs_ExamplesInstall(t *testing.T) {
	tried, usual, cluster := map[string]int{}, operated(t, nil), ""
	for _, match := range example.FindAllStringSubmatch(read(t, "docs/install.md"), -1) {
		file, content := match[1], match[2]
		values := map[string]any{}
		if err := yaml.UnmarshalStrict([]byte(content), &values); err != nil {
			t.Fatal(err)
		}
		var got Objects
		switch file {
		case "values.yaml":
			rendered := render(t, Release{Values: values})
			strict(t, rendered)
			got = operated(t, lookup(rendered["StorageCluster holdfast"].Object, "spec").(map[string]any), optionalKinds...)
		case "storagecluster.yaml":
			cluster = content
			got = operated(t, values["spec"].(map[string]any))
		case "mine/kustomization.yaml":
			got = overlaid(t, content, cluster)
			if got["StorageCluster holdfast"] == nil || len(got["Namespace "+namespace].GetAnnotations()) > 0 {
				t.Errorf("there would be two StorageClusters: %v", got["Namespace "+namespace])
			}
		default:
			t.Errorf("no test applies the example %s", file)
			continue
		}
		tried[file]++
		strict(t, got)
		if len(differences(usual, got)) == 0 {
			t.Errorf("this changes nothing:\n%s", content)
		}
	}
	if tried["values.yaml"] < 1 || tried["storagecluster.yaml"] < 2 || tried["mine/kustomization.yaml"] < 1 {
		t.Errorf("found were only %v", tried)
	}
}

func TestChart_NotesNameWhatIsMissing(t *testing.T) {
	const snapshots = "Holdfast installs them"
	always := map[string]bool{
		"kubectl label namespace storage pod-security.kubernetes.io/enforce=privileged": true, "kubectl annotate storageclass": false,
		"helm uninstall holdfast --namespace storage": true, "storageClassName: holdfast\n": true,
		"kubectl -n storage exec deploy/holdfast-controller -- holdfast doctor": true,
	}
	disks := of("cluster.pools", []any{map[string]any{"name": "fast", "devices": map[string]any{}}})
	for name, release := range map[string]Release{"with": {Kinds: optionalKinds}, "without": {}, "without, and with disks": {Values: disks}} {
		want := maps.Clone(always)
		want[snapshots], want["docs/pools.md"] = release.Kinds == nil, release.Values == nil
		release.Namespace = "storage"
		notes := must(loaded(t).files(release))(t)["holdfast/templates/NOTES.txt"]
		for snippet, is := range want {
			if strings.Contains(notes, snippet) != is {
				t.Errorf("%s snapshots: that the notes say %q is %t, not %t:\n%s", name, snippet, !is, is, notes)
			}
		}
	}
}
