package deploy

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// overlays are the directories of deploy/overlays.
var overlays = []string{"attach", "disks", "kubelet-dir", "sidecars"}

func TestKustomize_EachOverlayIsTheManifestWithItsOwnStorageCluster(t *testing.T) {
	entries, err := os.ReadDir(root + "/deploy/overlays")
	if err != nil || len(entries) != len(overlays) {
		t.Errorf("there are %v, tried are %v: %v", entries, overlays, err)
	}
	usual := operated(t, nil, nil)
	for _, overlay := range overlays {
		want, err := Read(manifest)
		if err != nil {
			t.Fatal(err)
		}
		asking := want["Namespace "+namespace]
		if asking.GetAnnotations()["holdfast.dev/first-cluster"] != "holdfast" {
			t.Errorf("the manifest asks for no StorageCluster: %v", asking.GetAnnotations())
		}
		asking.SetAnnotations(nil)
		got := built(t, "deploy/overlays/"+overlay)
		cluster := got["StorageCluster holdfast"]
		delete(got, "StorageCluster holdfast")
		for _, difference := range Differences(want, got) {
			t.Errorf("%s: as the overlay has it, %s", overlay, difference)
		}
		made := operated(t, cluster.Object["spec"].(map[string]any), nil)
		if len(Differences(usual, made)) == 0 {
			t.Errorf("%s changes nothing", overlay)
		}
	}
}

// built is a kustomization of the repository.
func built(t *testing.T, dir string) Objects {
	t.Helper()
	objects, err := Kustomize(dir)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// overlaid is what a kustomization of a user gives, with his files in a directory beside deploy.
func overlaid(t *testing.T, kustomization string, mine map[string]string) Objects {
	t.Helper()
	files := filesys.MakeFsInMemory()
	source := os.DirFS(root + "/deploy")
	err := fs.WalkDir(source, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".yaml" || strings.HasPrefix(name, "chart/") {
			return err
		}
		content, err := fs.ReadFile(source, name)
		if err != nil {
			return err
		}
		return files.WriteFile("/deploy/"+name, content)
	})
	if err != nil {
		t.Fatal(err)
	}
	mine = maps.Clone(mine)
	mine["kustomization.yaml"] = kustomization
	for name, content := range mine {
		if err := files.WriteFile("/mine/"+name, []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	objects, err := kustomize(files, "/mine")
	if err != nil {
		t.Fatal(err)
	}
	return objects
}
