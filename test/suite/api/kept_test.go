package api_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// everyFieldIsSet finds what a test of all fields forgot. The first of several is looked at.
func everyFieldIsSet(t *testing.T, path string, value reflect.Value, but ...string) {
	t.Helper()
	if _, rest, _ := strings.Cut(path, "."); slices.Contains(but, rest) {
		return
	}
	if value.IsZero() {
		t.Fatalf("the test leaves out %s", path)
	}
	switch {
	case value.Kind() == reflect.Pointer:
		everyFieldIsSet(t, path, value.Elem(), but...)
	case value.Kind() == reflect.Slice:
		everyFieldIsSet(t, path, value.Index(0), but...)
	case value.Kind() == reflect.Struct && value.Type().PkgPath() == reflect.TypeFor[v1beta1.Volume]().PkgPath():
		for field, inner := range value.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			everyFieldIsSet(t, path+"."+name, inner, but...)
		}
	}
}

func part[T any](o T, name string) reflect.Value { return reflect.ValueOf(o).Elem().FieldByName(name) }

// same checks that what the server gave back has the fields that were written.
func same(t *testing.T, what string, got, want reflect.Value) {
	t.Helper()
	if !equality.Semantic.DeepEqual(got.Interface(), want.Interface()) {
		t.Errorf("the %s is %+v, want %+v", what, got, want)
	}
}

// keepsSpec creates an object, of whose spec all fields but some are set, and expects each of them back.
func keepsSpec[T metav1.Object](t *testing.T, kind clientOf[T], o T, but ...string) T {
	t.Helper()
	everyFieldIsSet(t, "spec", part(o, "Spec"), but...)
	made := create(t, kind, o)
	same(t, "spec", part(made, "Spec"), part(o, "Spec"))
	return made
}

// keepsStatus writes the status of an object, of which all fields but some are set, and expects each of them back.
func keepsStatus[T metav1.Object](t *testing.T, kind clientOf[T], o T, but ...string) T {
	t.Helper()
	everyFieldIsSet(t, "status", part(o, "Status"), but...)
	updated := check.Got(kind.UpdateStatus(t.Context(), o, metav1.UpdateOptions{}))(t)
	same(t, "status", part(updated, "Status"), part(o, "Status"))
	return updated
}

func TestStatus_KeepsEveryField(t *testing.T) {
	needServer(t)
	v := keepsSpec(t, volumes(), fullVolume(), "shared", "serverRef")
	waiting := v1beta1.VolumeStatus{Conditions: []metav1.Condition{{
		Type: v1beta1.ReadyCondition, Status: metav1.ConditionUnknown, Reason: "Pending", Message: "waiting for the agent", LastTransitionTime: metav1.Unix(0, 0),
	}}}
	if !equality.Semantic.DeepEqual(v.Status, waiting) {
		t.Errorf("who creates an object wrote the status %+v", v.Status)
	}
	v.Status, v.Spec.ClaimRef = fullVolumeStatus(), v1beta1.ReferenceTo("is/ignored")
	updated := keepsStatus(t, volumes(), v, "access.directory", "access.nfs", "access.rbd", "access.cephfs")
	if updated.Spec.ClaimRef.String() != "team/data" || updated.Generation != 1 {
		t.Errorf("writing the status changed the spec to %+v", updated.Spec)
	}
	if used := updated.Status.Used.Value(); used != 1_234_567_891 {
		t.Errorf("of 1234567891 bytes %d are left", used)
	}
	s := keepsSpec(t, snapshots(), fullSnapshot())
	s.Status = fullSnapshotStatus()
	keepsStatus(t, snapshots(), s)
	n := create(t, nodes(), &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{GenerateName: "test.node-"}})
	n.Status = fullNodeStatus()
	if n = keepsStatus(t, nodes(), n); n.Status.Pools[0].Name != "fast" {
		t.Errorf("the first pool is no more the first: %v", n.Status.Pools)
	}
	server := fullServer()
	same(t, "spec", part(create(t, servers(), server), "Spec"), part(server, "Spec"))
}

func TestStatus_KeepsTheAddressOfAVolume(t *testing.T) {
	needServer(t)
	ceph := v1beta1.VolumeCeph{
		FSID: "0e5f3a52-5ed5-4c4b-9b6c-9a4a7f7c2d10", Monitors: []string{"v2:192.0.2.1:3300", "v1:[2001:db8::1]:6789"}, User: "holdfast-node", Secure: true,
	}
	all := []string{"image", "directory", "nfs", "rbd", "cephfs"}
	for name, access := range map[string]v1beta1.VolumeAccess{
		"rbd":    {RBD: &v1beta1.VolumeRBD{Cluster: ceph, Pool: "disks", Namespace: "team", Image: "a", ImageID: "10f8a2b3"}},
		"cephfs": {CephFS: &v1beta1.VolumeCephFS{Cluster: ceph, FileSystem: "files", Path: "/volumes/holdfast/a/1"}},
		"nfs":    {NFS: &v1beta1.VolumeNFS{Server: "10.96.0.7", Port: 2050, Path: "/a"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := fullVolume()
			if name == "nfs" {
				v = sharedVolume()
			}
			made := create(t, volumes(), v)
			made.Status = fullVolumeStatus()
			made.Status.Access = &access
			var others []string
			for _, other := range all {
				if other != name {
					others = append(others, "access."+other)
				}
			}
			keepsStatus(t, volumes(), made, others...)
		})
	}
}

func TestAgent_SeesOnlyObjectsOfItsNode(t *testing.T) {
	needServer(t)
	other := fullVolume()
	other.Spec.Node = "another." + nowhere
	v, w := create(t, volumes(), fullVolume()), create(t, volumes(), other)
	ofNode := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.node", other.Spec.Node).String()}
	list, err := volumes().List(t.Context(), ofNode)
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != w.Name {
		t.Errorf("of the other node are %v, %v; want %s", list, err, w.Name)
	}
	ofNode.ResourceVersion = v.ResourceVersion
	changes := check.Got(volumes().Watch(t.Context(), ofNode))(t)
	defer changes.Stop()
	if first := (<-changes.ResultChan()).Object.(*v1beta1.Volume); first.Name != w.Name {
		t.Errorf("a watch of the other node has %s on %s", first.Name, first.Spec.Node)
	}
	s := create(t, snapshots(), fullSnapshot())
	for selector, found := range map[string]bool{
		"spec.node=" + nowhere + ",spec.sourceRef.name=a,spec.group.name=Group": true,
		"spec.node=" + nowhere + ",spec.sourceRef.name=b":                       false,
	} {
		list := check.Got(snapshots().List(t.Context(), metav1.ListOptions{FieldSelector: selector}))(t)
		if has := slices.ContainsFunc(list.Items, func(have v1beta1.Snapshot) bool { return have.Name == s.Name }); has != found {
			t.Errorf("%s: found %v, want %v", selector, has, found)
		}
	}
}
