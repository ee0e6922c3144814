package deploy

import (
	"archive/tar"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/loader"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"sigs.k8s.io/yaml"
)

// released returns the one file of the release in HOLDFAST_RELEASE that a pattern matches.
func released(t *testing.T, pattern string) string {
	t.Helper()
	dir := os.Getenv("HOLDFAST_RELEASE")
	if dir == "" {
		t.Skip("needs a release: make release-check")
	}
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s has %q for %s", dir, files, pattern)
	}
	return files[0]
}

func TestAReleaseInstallsItsVersionWithKubectlAndHelm(t *testing.T) {
	file := released(t, "holdfast-*.tgz")
	opened, err := loader.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	chart := opened.(*chartv2.Chart)
	version := filepath.Base(os.Getenv("HOLDFAST_RELEASE"))
	if chart.Metadata.AppVersion != version || "v"+chart.Metadata.Version != version {
		t.Errorf("%s is the chart %s of %s", filepath.Base(file), chart.Metadata.Version, chart.Metadata.AppVersion)
	}
	rendered, err := (&Chart{chart}).Render(Release{})
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(released(t, "install.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	applied, err := Parse(content)
	if err != nil {
		t.Fatal(err)
	}
	key := "Deployment " + namespace + "/holdfast-controller"
	if text := compact(rendered[key].Object); !strings.Contains(text, "holdfast/holdfast:"+version) {
		t.Errorf("the chart has not the image of %s: %s", version, text)
	}
	for _, difference := range Differences(Objects{key: rendered[key]}, Objects{key: applied[key]}) {
		t.Error("as install.yaml has it, " + difference)
	}
}

func TestAReleaseNamesItsImagesToTheOperatorLifecycleManager(t *testing.T) {
	file, err := os.Open(released(t, "olm-bundle-*.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	version := filepath.Base(os.Getenv("HOLDFAST_RELEASE"))
	packed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var csv struct {
		Metadata struct{ Name string }
		Spec     struct {
			Version       string
			RelatedImages []struct{ Image string }
		}
	}
	for entries := tar.NewReader(packed); ; {
		entry, err := entries.Next()
		if err != nil {
			t.Fatalf("no ClusterServiceVersion is in the bundle: %v", err)
		}
		if entry.Name != "bundle/manifests/holdfast.clusterserviceversion.yaml" {
			continue
		}
		content, err := io.ReadAll(entries)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(content, &csv); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(content), ":dev\n") || strings.Contains(string(content), "version: dev\n") {
			t.Error("something in it is of no version")
		}
		break
	}
	if csv.Metadata.Name != "holdfast."+version || "v"+csv.Spec.Version != version {
		t.Errorf("the bundle is %s of %s", csv.Metadata.Name, csv.Spec.Version)
	}
	var own int
	for _, related := range csv.Spec.RelatedImages {
		if strings.HasPrefix(related.Image, "holdfast/") && strings.HasSuffix(related.Image, ":"+version) {
			own++
		}
	}
	if images := []string{"holdfast", "nfs", "ceph"}; own != len(images) {
		t.Errorf("of %+v %v must be of %s", csv.Spec.RelatedImages, images, version)
	}
}
