package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/loader/archive"
)

// installManifest is what make prints for a version.
func installManifest(version string) ([]byte, error) {
	command := exec.Command("make", "--no-print-directory", "install-manifest", "VERSION="+version)
	command.Dir = root
	return command.Output()
}

func TestManifest_OfAVersionEqualsTheCharts(t *testing.T) {
	got := parse(t, string(must(installManifest("v7.1"))(t)))
	chart := *loaded(t).Chart
	metadata := *chart.Metadata
	metadata.AppVersion, chart.Metadata = "v7.1", &metadata
	want, _ := Chart{&chart}.render(t, Release{})
	compare(t, "as the manifest has it", want.only(controller), got.only(controller))
	for key, object := range got {
		if text := compact(object.Object); strings.Contains(text, "holdfast:dev") || strings.Contains(text, "version: dev") {
			t.Errorf("%s is of no version: %s", key, text)
		}
	}
}

func TestManifest_VersionThatIsNoTagGivesNone(t *testing.T) {
	for _, version := range []string{"", "v1 v2", "-v1", "v1|e", strings.Repeat("v", 64)} {
		if out, err := installManifest(version); err == nil || len(out) > 0 {
			t.Errorf("%q gives %.80s %v", version, out, err)
		}
	}
}

// released returns the one file of the release in HOLDFAST_RELEASE that a pattern matches, and its version.
func released(t *testing.T, pattern string) (file, version string) {
	t.Helper()
	dir := os.Getenv("HOLDFAST_RELEASE")
	if dir == "" {
		t.Skip("needs a release: make release-check")
	}
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s has %q for %s", dir, files, pattern)
	}
	return files[0], filepath.Base(dir)
}

func TestAReleaseInstallsItsVersionWithKubectlAndHelm(t *testing.T) {
	file, version := released(t, "holdfast-*.tgz")
	chart := must(loadChart(file))(t)
	if chart.Metadata.AppVersion != version || "v"+chart.Metadata.Version != version {
		t.Errorf("%s is the chart %s of %s", filepath.Base(file), chart.Metadata.Version, chart.Metadata.AppVersion)
	}
	rendered, _ := chart.render(t, Release{})
	if text := compact(rendered[controller].Object); !strings.Contains(text, "holdfast/holdfast:"+version) {
		t.Errorf("the chart has not the image of %s: %s", version, text)
	}
	file, _ = released(t, "install.yaml")
	applied := parse(t, string(must(os.ReadFile(file))(t)))
	compare(t, "as install.yaml has it", rendered.only(controller), applied.only(controller))
}

func TestAReleaseNamesItsImagesToTheOperatorLifecycleManager(t *testing.T) {
	file, version := released(t, "olm-bundle-*.tar.gz")
	packed := must(os.Open(file))(t)
	defer packed.Close()
	files := must(archive.LoadArchiveFiles(packed))(t)
	i := slices.IndexFunc(files, func(f *archive.BufferedFile) bool { return f.Name == "manifests/holdfast.clusterserviceversion.yaml" })
	if i < 0 {
		t.Fatal("no ClusterServiceVersion is in the bundle")
	}
	content := string(files[i].Data)
	if strings.Contains(content, ":dev\n") || strings.Contains(content, "version: dev\n") {
		t.Error("something in it is of no version")
	}
	csv := readService(t, content)
	if csv.Name != "holdfast."+version || "v"+csv.Spec.Version != version {
		t.Errorf("the bundle is %s of %s", csv.Name, csv.Spec.Version)
	}
	var own []string
	for _, related := range csv.Spec.RelatedImages {
		if name, ours := strings.CutPrefix(related.Image, "holdfast/"); ours {
			own = append(own, name)
		}
	}
	slices.Sort(own)
	if want := []string{"ceph:" + version, "holdfast:" + version, "nfs:" + version}; !slices.Equal(own, want) {
		t.Errorf("the images are %v, want %v", own, want)
	}
}
