package render

import (
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
)

func TestImages_AreThoseOfTheReleaseUnlessNamed(t *testing.T) {
	var release Release
	defaults := release.Images(ask(nil).Cluster)
	if defaults.Holdfast != v1beta1.Image("holdfast/holdfast:"+deploy.Version) || defaults.NFS != v1beta1.Image("holdfast/nfs:"+deploy.Version) {
		t.Errorf("those of Holdfast are %s and %s", defaults.Holdfast, defaults.NFS)
	}
	for _, sidecar := range []v1beta1.Image{defaults.CSIProvisioner, defaults.CSIAttacher, defaults.CSIResizer, defaults.CSISnapshotter} {
		if sidecar == "" {
			t.Errorf("a sidecar has none: %+v", defaults)
		}
	}
	if defaults.SnapshotController != "" || defaults.CSINodeDriverRegistrar != "" || defaults.CSILivenessProbe != "" {
		t.Errorf("what runs only if asked has an image: %+v", defaults)
	}
	var named v1beta1.Images
	for i := range reflect.TypeFor[v1beta1.Images]().NumField() {
		reflect.ValueOf(&named).Elem().Field(i).SetString("r/" + reflect.TypeFor[v1beta1.Images]().Field(i).Name)
	}
	in := ask(func(s *v1beta1.StorageClusterSpec) { s.Images = named })
	if got := release.Images(in.Cluster); got != named {
		t.Errorf("named were %+v, but they are %+v", named, got)
	}
	only := ask(func(s *v1beta1.StorageClusterSpec) { s.Images.Holdfast = "r/h:2" })
	if got := release.Images(only.Cluster); got.NFS != defaults.NFS || got.CSIResizer != defaults.CSIResizer {
		t.Errorf("with an image of Holdfast alone they are %+v", got)
	}
}

func TestImages_ProgramIsTheDefault(t *testing.T) {
	unnamed, named := everything(), everything()
	unnamed.Release.Own, named.Release.Own = "mirror.example/holdfast@sha256:1", "mirror.example/holdfast@sha256:1"
	named.Cluster.Spec.Images.Holdfast = "r/h:2"
	for want, in := range map[string]Input{"mirror.example/holdfast@sha256:1": unnamed, "r/h:2": named} {
		controller, node := controllerOf(t, in).Spec.Template.Spec, nodeOf(t, in).Spec.Template.Spec
		for _, got := range []string{container(&controller, "holdfast").Image, container(&node, "holdfast").Image} {
			if got != want {
				t.Errorf("it is %s, not %s", got, want)
			}
		}
	}
}

func TestImages_EnvironmentNamesAnotherRegistry(t *testing.T) {
	want, environment := Release{}.Images(ask(nil).Cluster), map[string]string{}
	for container, image := range map[string]*v1beta1.Image{
		"HOLDFAST": &want.Holdfast, "CSI_PROVISIONER": &want.CSIProvisioner, "CSI_ATTACHER": &want.CSIAttacher,
		"CSI_RESIZER": &want.CSIResizer, "CSI_SNAPSHOTTER": &want.CSISnapshotter, "NFS": &want.NFS, "CEPH": &want.Ceph,
	} {
		*image = v1beta1.Image("mirror.example/" + container)
		environment["RELATED_IMAGE_"+container] = string(*image)
	}
	release := NewRelease("", func(variable string) string { return environment[variable] })
	if got := release.Images(ask(nil).Cluster); got != want {
		t.Errorf("they are %+v, not %+v", got, want)
	}
	named := ask(func(s *v1beta1.StorageClusterSpec) {
		s.Images = v1beta1.Images{Holdfast: "r/holdfast:2", CSIResizer: "r/resizer:2"}
	})
	if got := release.Images(named.Cluster); got.Holdfast != "r/holdfast:2" || got.CSIResizer != "r/resizer:2" || got.CSIAttacher != want.CSIAttacher {
		t.Errorf("what the StorageCluster names goes first: %+v", got)
	}
	// The image of an upgrade has its own beside it.
	if got := release.NFSImage("r/holdfast:2"); got != "r/nfs:2" {
		t.Errorf("with r/holdfast:2 NFS servers run %s", got)
	}
	// The controller hands it on, whatever workload it becomes.
	in := ask(nil)
	in.Release = release
	pod := controllerOf(t, in).Spec.Template.Spec
	related := map[string]string{}
	for _, e := range container(&pod, name).Env {
		if strings.HasPrefix(e.Name, "RELATED_IMAGE_") {
			related[e.Name] = e.Value
		}
	}
	if !maps.Equal(related, environment) || container(&pod, "csi-resizer").Image != "mirror.example/CSI_RESIZER" {
		t.Errorf("the controller has %v, not %v", related, environment)
	}
}

func TestImages_NFSServersIsBesideHoldfasts(t *testing.T) {
	ours := v1beta1.Image("holdfast/nfs:" + deploy.Version)
	for holdfast, want := range map[v1beta1.Image]v1beta1.Image{
		"holdfast:v1":                                "nfs:v1",
		"holdfast/holdfast:v1":                       "holdfast/nfs:v1",
		"docker.io/holdfast/holdfast:v1.2":           "docker.io/holdfast/nfs:v1.2",
		"mirror.example:5000/a/b/holdfast:v1":        "mirror.example:5000/a/b/nfs:v1",
		"mirror.example:5000/holdfast":               v1beta1.Image("mirror.example:5000/nfs:" + deploy.Version),
		"mirror.example/holdfast@sha256:1":           v1beta1.Image("mirror.example/nfs:" + deploy.Version),
		"mirror.example/holdfast:v1@sha256:1":        "mirror.example/nfs:v1",
		"r/h:2":                                      ours,
		"mirror.example/holdfast-of-another-kind:v1": ours,
		"mirror.example/my-holdfast:v1":              ours,
		"":                                           ours,
	} {
		if got := (Release{}).NFSImage(holdfast); got != want {
			t.Errorf("of %q it is %s, not %s", holdfast, got, want)
		}
	}
	named := ask(func(s *v1beta1.StorageClusterSpec) { s.Images.Holdfast = "r/holdfast:2" })
	if got := (Release{}).Images(named.Cluster).NFS; got != "r/nfs:2" {
		t.Errorf("beside r/holdfast:2 is %s", got)
	}
}

func TestImages_UpgradeReplacesIt(t *testing.T) {
	for name, test := range map[string]struct{ image, controllerImage, controller, node string }{
		"none":       {"", "", "r/old", "r/old"},
		"all":        {"r/new", "", "r/new", "r/new"},
		"nodes":      {"r/new", "r/old", "r/old", "r/new"},
		"controller": {"", "r/new", "r/new", "r/old"},
	} {
		in := everything()
		in.Cluster.Spec.Images.Holdfast = "r/old"
		in.Image, in.ControllerImage = v1beta1.Image(test.image), v1beta1.Image(test.controllerImage)
		controller, node := controllerOf(t, in).Spec.Template.Spec, nodeOf(t, in).Spec.Template.Spec
		if c, n := container(&controller, "holdfast").Image, container(&node, "holdfast").Image; c != test.controller || n != test.node {
			t.Errorf("%s: the controller has %s, the nodes %s", name, c, n)
		}
	}
}

func TestImages_AreInTheRegistryUnlessNamed(t *testing.T) {
	release := Release{Own: "old.example/holdfast:v0", Related: map[string]v1beta1.Image{"csi-resizer": "localhost/own/resizer:1"}}
	in := ask(func(s *v1beta1.StorageClusterSpec) {
		s.ImageRegistry, s.Images.CSIProvisioner = "mirror.example:5000/all", "r/h:2"
	})
	got := release.Images(in.Cluster)
	defaults := Release{}.Images(ask(nil).Cluster)
	path := strings.TrimPrefix(string(defaults.CSISnapshotter), "registry.k8s.io/")
	if version := v1beta1.Image(deploy.Version); got.Holdfast != "mirror.example:5000/all/holdfast/holdfast:"+version || got.NFS != "mirror.example:5000/all/holdfast/nfs:"+version ||
		got.CSIResizer != "mirror.example:5000/all/own/resizer:1" || got.CSIProvisioner != "r/h:2" || string(got.CSISnapshotter) != "mirror.example:5000/all/"+path {
		t.Errorf("they are %+v", got)
	}
	if got.SnapshotController != "" {
		t.Errorf("a registry makes %s run", got.SnapshotController)
	}
	in.Release, in.Snapshots = release, true
	in.Has = everything().Has
	for _, pod := range podsOf(t, in) {
		for _, c := range pod.Containers {
			if !strings.HasPrefix(c.Image, "mirror.example:5000/all/") && c.Image != "r/h:2" {
				t.Errorf("container %s has the image %s", c.Name, c.Image)
			}
		}
	}
}
