package api_test

import (
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestCephVolume_StatusKeepsItsAddress(t *testing.T) {
	needServer(t)
	cluster := v1beta1.VolumeCeph{
		FSID: "0e5f3a52-5ed5-4c4b-9b6c-9a4a7f7c2d10", Monitors: []string{"v2:192.0.2.1:3300", "v1:[2001:db8::1]:6789"}, User: "holdfast-node", Secure: true,
	}
	for name, access := range map[string]v1beta1.VolumeAccess{
		"rbd":    {RBD: &v1beta1.VolumeRBD{Cluster: cluster, Pool: "disks", Namespace: "team", Image: "a", ImageID: "10f8a2b3"}},
		"cephfs": {CephFS: &v1beta1.VolumeCephFS{Cluster: cluster, FileSystem: "files", Path: "/volumes/holdfast/a/1"}},
	} {
		t.Run(name, func(t *testing.T) {
			others := []string{"image", "directory", "nfs", "rbd", "cephfs"}
			everyFieldIsSet(t, "access", reflect.ValueOf(access), slices.DeleteFunc(others, func(other string) bool { return other == name })...)
			made := makeVolume(t, fullVolume())
			made.Status = fullVolumeStatus()
			made.Status.Access = &access
			want := made.Status.DeepCopy()
			updated := check.Got(client.HoldfastV1beta1().Volumes().UpdateStatus(t.Context(), made, metav1.UpdateOptions{}))(t)
			if !equality.Semantic.DeepEqual(updated.Status, *want) {
				t.Errorf("the status is %+v, want %+v", updated.Status, *want)
			}
			mustRefuse(t, patchVolume(t, made, `{"status":{"access":{"image":"/a"}}}`, "status"), "status.access")
			for wrong, field := range map[string]string{
				`{"fsid":"files"}`: "fsid", `{"monitors":["192.0.2.1"]}`: "monitors[0]", `{"monitors":["v2:192.0.2.1:3300,name=admin"]}`: "monitors[0]",
				`{"monitors":[]}`: "monitors", `{"user":""}`: "user",
			} {
				mustRefuse(t, patchVolume(t, made, `{"status":{"access":{"`+name+`":{"cluster":`+wrong+`}}}}`, "status"), "status.access."+name+".cluster."+field)
			}
		})
	}
}
