package deploy

import (
	"errors"
	"os"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// kustomize returns what kubectl apply -k would apply of a directory.
func kustomize(t *testing.T, dir string) Objects {
	t.Helper()
	options := krusty.MakeDefaultOptions()
	options.LoadRestrictions = types.LoadRestrictionsRootOnly
	built := must(krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), dir))(t)
	return parse(t, string(must(built.AsYaml())(t)))
}

func TestKustomize_EachOverlayIsTheManifestWithItsOwnStorageCluster(t *testing.T) {
	usual := operated(t, nil)
	overlays := must(os.ReadDir(root + "/deploy/overlays"))(t)
	if len(overlays) < 3 {
		t.Errorf("there are only %v", overlays)
	}
	for _, overlay := range overlays {
		want := parse(t, read(t, manifest))
		asking := want["Namespace "+namespace]
		if asking.GetAnnotations()["holdfast.dev/first-cluster"] != "holdfast" {
			t.Errorf("the manifest asks for no StorageCluster: %v", asking.GetAnnotations())
		}
		asking.SetAnnotations(nil)
		got := kustomize(t, root+"/deploy/overlays/"+overlay.Name())
		cluster := got["StorageCluster holdfast"]
		delete(got, "StorageCluster holdfast")
		compare(t, "as the overlay "+overlay.Name()+" has it", want, got)
		made := operated(t, cluster.Object["spec"].(map[string]any))
		if len(differences(usual, made)) == 0 {
			t.Errorf("%s changes nothing", overlay.Name())
		}
	}
}

// overlaid is what a kustomization of a user gives, with his StorageCluster in a directory beside deploy.
func overlaid(t *testing.T, kustomization, cluster string) Objects {
	t.Helper()
	dir := t.TempDir()
	err := os.CopyFS(dir+"/deploy", os.DirFS(root+"/deploy"))
	err = errors.Join(err, os.Mkdir(dir+"/mine", 0o755))
	for name, content := range map[string]string{"kustomization.yaml": kustomization, "storagecluster.yaml": cluster} {
		err = errors.Join(err, os.WriteFile(dir+"/mine/"+name, []byte(content), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return kustomize(t, dir+"/mine")
}
