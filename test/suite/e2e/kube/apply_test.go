package kube

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	"k8s.io/client-go/kubernetes/scheme"
)

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestApply_ManifestIsReadDocumentByDocument(t *testing.T) {
	objects, err := readManifests(file(t, "# only a comment\n---\nkind: A\nmetadata: {name: a}\n---\n---\nkind: B\nspec: {count: 3}\n"))
	if err != nil || len(objects) != 2 || objects[0].GetName() != "a" || objects[1].GetKind() != "B" {
		t.Errorf("%v, %v", objects, err)
	}
	if _, err := readManifests(file(t, "kind: A\n---\n\tno: yaml\n")); err == nil {
		t.Error("what is no YAML was read")
	}
}

func TestApply_OnlyNamespacedObjectsAreApplied(t *testing.T) {
	c, _ := imitation(t)
	c.mapper = resettable{testrestmapper.TestOnlyStaticRESTMapper(scheme.Scheme)}
	failed := try(t, "TestIt", func(t testing.TB) {
		s := &Space{Cluster: c, Namespace: "test", t: t}
		s.Apply(file(t.(*trial).TB.(*testing.T), "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: fast}\n"))
	})
	if !failed.failed || !strings.Contains(failed.said.String(), "StorageClass fast belongs to no namespace") {
		t.Errorf("the failure says %q", failed.said.String())
	}
}

type resettable struct{ meta.RESTMapper }

func (resettable) Reset() {}
