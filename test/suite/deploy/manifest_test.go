package deploy

import (
	"os/exec"
	"strings"
	"testing"
)

func TestManifest_OfAVersionEqualsTheCharts(t *testing.T) {
	version := exec.Command("make", "--no-print-directory", "install-manifest", "VERSION=v7.1")
	version.Dir = root
	out, err := version.Output()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(out)
	if err != nil {
		t.Fatal(err)
	}
	chart := *loaded(t).Chart
	metadata := *chart.Metadata
	metadata.AppVersion, chart.Metadata = "v7.1", &metadata
	want, err := (&Chart{&chart}).Render(Release{})
	if err != nil {
		t.Fatal(err)
	}
	key := "Deployment " + namespace + "/holdfast-controller"
	for _, difference := range Differences(Objects{key: want[key]}, Objects{key: got[key]}) {
		t.Error("as the manifest has it, " + difference)
	}
	for key, object := range got {
		if text := compact(object.Object); strings.Contains(text, "holdfast:dev") || strings.Contains(text, "version: dev") {
			t.Errorf("%s is of no version: %s", key, text)
		}
	}
}

func TestManifest_VersionThatIsNoTagGivesNone(t *testing.T) {
	for _, version := range []string{"", "v1 v2", "-v1", "v1|e", strings.Repeat("v", 64)} {
		command := exec.Command("make", "--no-print-directory", "install-manifest", "VERSION="+version)
		command.Dir = root
		if out, err := command.Output(); err == nil || len(out) > 0 {
			t.Errorf("%q gives %.80s %v", version, out, err)
		}
	}
}
