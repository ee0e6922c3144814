package api_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
)

func TestASharedVolumeIsOnAServer(t *testing.T) {
	needServer(t)
	try := func(change func(*v1.VolumeSpec)) error {
		v := sharedVolume()
		change(&v.Spec)
		_, err := client.HoldfastV1().Volumes().Create(t.Context(), v, metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	for name, change := range map[string]func(*v1.VolumeSpec){
		"least":      func(*v1.VolumeSpec) {},
		"named":      func(s *v1.VolumeSpec) { s.Server = "no/server" },
		"more":       func(s *v1.VolumeSpec) { s.Pool, s.FSType, s.Mode = "default", v1.XFS, v1.ModeFilesystem },
		"not shared": func(s *v1.VolumeSpec) { s.Shared = false }, // found on the disk of a server by one that knows of no sharing
	} {
		if err := try(change); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, test := range []struct {
		field  string
		change func(*v1.VolumeSpec)
	}{
		{"spec.node", func(s *v1.VolumeSpec) { s.Node = "node-a" }},
		{"spec.node", func(s *v1.VolumeSpec) { s.Node = "server.nfs.holdfast.dev" }},
		{"spec.node", func(s *v1.VolumeSpec) { s.Node = "no.server.nfs.holdfast.dev.more" }},
		{"spec.server", func(s *v1.VolumeSpec) { s.Server = "other/server" }},
		{"spec.server", func(s *v1.VolumeSpec) { s.Server = "server" }},
		{"spec.server", func(s *v1.VolumeSpec) { s.Server = "no/../server" }},
		{"spec.server", func(s *v1.VolumeSpec) { s.Shared, s.Server = false, "no/server" }},
		{"spec.mode", func(s *v1.VolumeSpec) { s.Mode = v1.ModeBlock }},
		{"spec.onNodeLoss", func(s *v1.VolumeSpec) { s.OnNodeLoss = v1.DeleteOnNodeLoss }},
	} {
		t.Run(test.field, func(t *testing.T) { mustRefuse(t, try(test.change), test.field) })
	}
}

func TestWhereASharedVolumeIsNeverChanges(t *testing.T) {
	needServer(t)
	v := sharedVolume()
	v.Spec.Server = "no/server"
	named, free := makeVolume(t, v), makeVolume(t, sharedVolume())
	local := sharedVolume()
	local.Spec.Shared = false
	unshared := makeVolume(t, local)
	mustRefuse(t, patchVolume(t, named, `{"spec":{"server":null}}`), "spec.server")
	mustRefuse(t, patchVolume(t, free, `{"spec":{"server":"no/server"}}`), "spec.server")
	mustRefuse(t, patchVolume(t, free, `{"spec":{"shared":false}}`), "spec.shared")
	mustRefuse(t, patchVolume(t, free, `{"spec":{"shared":null}}`), "spec.shared")
	mustRefuse(t, patchVolume(t, unshared, `{"spec":{"shared":true}}`), "spec.shared")
}

func TestTheServerKeepsHowASharedVolumeIsReached(t *testing.T) {
	needServer(t)
	made := makeVolume(t, sharedVolume())
	made.Status = fullVolumeStatus()
	made.Status.Access = &v1.VolumeAccess{NFS: &v1.VolumeNFS{Server: "10.96.0.7", Path: "/a"}}
	want := made.Status.DeepCopy()
	updated, err := client.HoldfastV1().Volumes().UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !equality.Semantic.DeepEqual(updated.Status, *want) {
		t.Errorf("the status is %+v, want %+v", updated.Status, *want)
	}
	for _, both := range []string{`{"image":"/a"}`, `{"directory":"/a"}`} {
		mustRefuse(t, patchVolume(t, made, `{"status":{"access":`+both+`}}`, "status"), "status.access")
	}
}
