package api_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

func TestSharedVolume_IsOnAServer(t *testing.T) {
	needServer(t)
	try := func(change func(*v1beta1.VolumeSpec)) error {
		v := sharedVolume()
		change(&v.Spec)
		_, err := client.HoldfastV1beta1().Volumes().Create(t.Context(), v, metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	for name, change := range map[string]func(*v1beta1.VolumeSpec){
		"least":      func(*v1beta1.VolumeSpec) {},
		"named":      func(s *v1beta1.VolumeSpec) { s.ServerRef = v1beta1.ReferenceTo("no/server") },
		"more":       func(s *v1beta1.VolumeSpec) { s.Pool, s.FSType, s.Mode = "default", v1beta1.XFS, v1beta1.ModeFilesystem },
		"not shared": func(s *v1beta1.VolumeSpec) { s.Shared = false }, // found on the disk of a server by one that knows of no sharing
	} {
		if err := try(change); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, test := range []struct {
		field  string
		change func(*v1beta1.VolumeSpec)
	}{
		{"spec.node", func(s *v1beta1.VolumeSpec) { s.Node = "node-a" }},
		{"spec.node", func(s *v1beta1.VolumeSpec) { s.Node = "server.nfs.holdfast.dev" }},
		{"spec.node", func(s *v1beta1.VolumeSpec) { s.Node = "no.server.nfs.holdfast.dev.more" }},
		{"spec.serverRef", func(s *v1beta1.VolumeSpec) { s.ServerRef = v1beta1.ReferenceTo("other/server") }},
		{"spec.serverRef.name", func(s *v1beta1.VolumeSpec) { s.ServerRef = v1beta1.ReferenceTo("no/" + strings.Repeat("s", 254)) }},
		{"spec.serverRef", func(s *v1beta1.VolumeSpec) { s.ServerRef = v1beta1.ReferenceTo("no/../server") }},
		{"spec.serverRef", func(s *v1beta1.VolumeSpec) { s.Shared, s.ServerRef = false, v1beta1.ReferenceTo("no/server") }},
		{"spec.mode", func(s *v1beta1.VolumeSpec) { s.Mode = v1beta1.ModeBlock }},
		{"spec.onNodeLoss", func(s *v1beta1.VolumeSpec) { s.OnNodeLoss = v1beta1.DeleteOnNodeLoss }},
	} {
		t.Run(test.field, func(t *testing.T) { mustRefuse(t, try(test.change), test.field) })
	}
}

func TestSharedVolume_ServerNeverChanges(t *testing.T) {
	needServer(t)
	v := sharedVolume()
	v.Spec.ServerRef = v1beta1.ReferenceTo("no/server")
	named, free := makeVolume(t, v), makeVolume(t, sharedVolume())
	local := sharedVolume()
	local.Spec.Shared = false
	unshared := makeVolume(t, local)
	mustRefuse(t, patchVolume(t, named, `{"spec":{"serverRef":null}}`), "spec.serverRef")
	mustRefuse(t, patchVolume(t, free, `{"spec":{"serverRef":{"namespace":"no","name":"server"}}}`), "spec.serverRef")
	mustRefuse(t, patchVolume(t, free, `{"spec":{"shared":false}}`), "spec.shared")
	mustRefuse(t, patchVolume(t, free, `{"spec":{"shared":null}}`), "spec.shared")
	mustRefuse(t, patchVolume(t, unshared, `{"spec":{"shared":true}}`), "spec.shared")
}

func TestSharedVolume_StatusKeepsItsAddress(t *testing.T) {
	needServer(t)
	made := makeVolume(t, sharedVolume())
	made.Status = fullVolumeStatus()
	made.Status.Access = &v1beta1.VolumeAccess{NFS: &v1beta1.VolumeNFS{Server: "10.96.0.7", Path: "/a"}}
	want := made.Status.DeepCopy()
	updated, err := client.HoldfastV1beta1().Volumes().UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
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
