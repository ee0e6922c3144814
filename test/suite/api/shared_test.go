package api_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

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
	updated := check.Got(client.HoldfastV1beta1().Volumes().UpdateStatus(t.Context(), made, metav1.UpdateOptions{}))(t)
	if !equality.Semantic.DeepEqual(updated.Status, *want) {
		t.Errorf("the status is %+v, want %+v", updated.Status, *want)
	}
	for _, both := range []string{`{"image":"/a"}`, `{"directory":"/a"}`} {
		mustRefuse(t, patchVolume(t, made, `{"status":{"access":`+both+`}}`, "status"), "status.access")
	}
}
