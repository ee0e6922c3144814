package cluster

import (
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// nfsServer makes one, as its own controller holds it.
func (r *rig) nfsServer(in, name string) (remove func()) {
	r.Helper()
	size := resource.MustParse("1Gi")
	s := &v1beta1.NFSServer{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{v1beta1.OperatorFinalizer}}, Spec: v1beta1.NFSServerSpec{Storage: &v1beta1.NFSStorage{Size: &size}}}
	servers := r.ours.HoldfastV1beta1().NFSServers(in)
	check.Got(servers.Create(r.Context(), s, metav1.CreateOptions{}))(r)
	remove = func() {
		_ = servers.Delete(background, name, metav1.DeleteOptions{})
		_, _ = servers.Patch(background, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	}
	r.Cleanup(remove)
	return remove
}

func TestNamespaces_WithFormerServersAreReported(t *testing.T) {
	node := func(name string) *v1beta1.StorageNode {
		return &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	got := served([]*v1beta1.StorageNode{node(v1beta1.NodeOfServer("shop/files")), node("node1"), node(v1beta1.NodeOfServer("shop/more")), node(v1beta1.NodeOfServer("bar/files"))})
	if !slices.Equal(got, []string{"bar", "shop"}) {
		t.Errorf("got %v", got)
	}
}

// allowsDefault lets NFSServers be made in another namespace than that of Holdfast.
func allowsDefault(s *v1beta1.StorageClusterSpec) {
	s.NFS.Namespaces = []string{metav1.NamespaceDefault}
}

func TestUninstall_DeletionIsRefusedWhileThereAreNFSServers(t *testing.T) {
	r := running(t, allowsDefault)
	first, second := r.nfsServer(metav1.NamespaceDefault, "one"), r.nfsServer(namespace, "two")
	r.delete("holdfast")
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonVolumesExist, "2 NFS servers", "Orphan")
	wait.Until(r, "the event", func() bool { return len(r.events.With("Warning Terminating", "2 NFS servers")) == 1 })
	r.volume("v1")
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonVolumesExist, "1 volume exists, and 2 NFS servers")
	r.noVolume("v1")
	first()
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonVolumesExist, "1 NFS server in the cluster")
	second()
	r.gone("holdfast")
}

// Of NFSServers there is no watch.
func TestNFSServers_AreCheckedAlsoWhileAnotherRequeueIsPending(t *testing.T) {
	r := newRig(t).start()
	r.create("holdfast", func(s *v1beta1.StorageClusterSpec) {
		allowsDefault(s)
		s.CSI.KubeletDir = realapi.KubeletRoot(r) // or the node pod, which mounts it, is not late but never starts
	})
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonRollingOut, "to become ready") // a pod may be late
	r.nfsServer(metav1.NamespaceDefault, "one")
	r.delete("holdfast")
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonVolumesExist)
	r.stop()
	if again, err := r.controller.reconcile(t.Context(), "holdfast"); err != nil || again == 0 || again > kube.LookAgain {
		t.Errorf("it looks again after %s (%v), want %s or sooner", again, err, kube.LookAgain)
	}
}

func TestOrphan_LeavesNFSServersOutsideTheNamespace(t *testing.T) {
	r := running(t, func(s *v1beta1.StorageClusterSpec) { allowsDefault(s); s.DeletionPolicy = v1beta1.OrphanVolumes })
	r.nfsServer(metav1.NamespaceDefault, "stays")
	goes := r.nfsServer(namespace, "goes")
	r.delete("holdfast")
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonVolumesExist, "1 NFS server in the namespace of Holdfast")
	goes()
	wait.Until(r, "the end of the StorageCluster and of the namespace", func() bool {
		_, err := r.theirs.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
		return r.cluster("holdfast") == nil && apierrors.IsNotFound(err)
	})
	if s, err := r.ours.HoldfastV1beta1().NFSServers(metav1.NamespaceDefault).Get(t.Context(), "stays", metav1.GetOptions{}); err != nil || s.DeletionTimestamp != nil {
		t.Errorf("the other server: %v, %v", s.DeletionTimestamp, err)
	}
}

func TestUninstall_LossIsCounted(t *testing.T) {
	for name, test := range map[string]struct {
		situation situation
		orphan    bool
		want      string // empty: nothing holds it up
	}{
		"nothing":                 {situation{}, false, ""},
		"a volume":                {situation{volumes: 1}, false, "1 volume exists: delete them, or set spec.deletionPolicy to Orphan to leave them on the disks"},
		"a volume, orphaned":      {situation{volumes: 1}, true, ""},
		"a server":                {situation{servers: servers{all: 1}}, false, "1 NFS server in the cluster: delete them, or set spec.deletionPolicy to Orphan to leave them as they are"},
		"servers and volumes":     {situation{volumes: 2, servers: servers{all: 3}}, false, "2 volumes exist, and 3 NFS servers: delete them, or set spec.deletionPolicy to Orphan to leave them as they are"},
		"servers, orphaned":       {situation{servers: servers{all: 3}}, true, ""},
		"one that goes, orphaned": {situation{servers: servers{all: 3, here: 1}}, true, "1 NFS server in the namespace of Holdfast would be deleted with it, and the volumes there: delete them first"},
	} {
		s := test.situation
		if holds := s.holdsUp(test.orphan); holds != (test.want != "") || holds && s.lost(test.orphan) != test.want {
			t.Errorf("%s: %v, %q", name, holds, s.lost(test.orphan))
		}
	}
}

// A namespace that is deleted in earnest takes its server's pod with it.
func TestNFSServerPolicy_NamespaceOfAServerInUseIsNotDeleted(t *testing.T) {
	r := newRig(t).start()
	const served, empty = "hb-served", "hb-empty"
	for _, name := range []string{served, empty} {
		ns := &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		check.Got(r.theirs.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}))(t)
		t.Cleanup(func() { _ = r.theirs.CoreV1().Namespaces().Delete(background, name, metav1.DeleteOptions{}) })
	}
	r.create("holdfast", func(s *v1beta1.StorageClusterSpec) { s.NFS.Namespaces = []string{served} })
	r.reconciled("holdfast")
	size, servers := resource.MustParse("1Gi"), r.ours.HoldfastV1beta1().NFSServers(served)
	t.Cleanup(func() { _ = servers.Delete(background, "files", metav1.DeleteOptions{}) })
	wait.Until(r, "the server", func() bool {
		s := &v1beta1.NFSServer{ObjectMeta: metav1.ObjectMeta{Name: "files"}, Spec: v1beta1.NFSServerSpec{Storage: &v1beta1.NFSStorage{Size: &size}}}
		_, err := servers.Create(t.Context(), s, metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err)
	})
	has := func(exports, snapshots int32) {
		t.Helper()
		s := check.Got(servers.Get(t.Context(), "files", metav1.GetOptions{}))(t)
		s.Status.Exports, s.Status.Snapshots = exports, snapshots
		check.Got(servers.UpdateStatus(t.Context(), s, metav1.UpdateOptions{}))(t)
	}
	try := func(name string) error {
		return r.theirs.CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	}
	for says, holds := range map[string][2]int32{"1 exports and 0 snapshots": {1, 0}, "0 exports and 1 snapshots": {0, 1}} {
		has(holds[0], holds[1])
		wait.Until(r, "a refusal because of "+says, func() bool {
			err := try(served)
			return realapi.RefusedBy("holdfast-nfs-exports", err) && strings.Contains(err.Error(), "NFS server files, which has "+says) && strings.Contains(err.Error(), "spec.node=hb-served.files.nfs.holdfast.dev")
		})
	}
	if err := try(empty); err != nil {
		t.Errorf("one without servers: %v", err)
	}
	has(0, 0)
	wait.Until(r, "the deletion of the namespace of an empty server being allowed", func() bool { return try(served) == nil })
}

// Who has every right, so that roles refuse nothing, stands for one who has the role edit by aggregation.
func TestNFSServerPolicy_ServerIsRefusedWhereTheStorageClusterAllowsNone(t *testing.T) {
	r := running(t, nil)
	const other = "hb-team"
	ns := &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}
	check.Got(r.theirs.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}))(t)
	t.Cleanup(func() { _ = r.theirs.CoreV1().Namespaces().Delete(background, other, metav1.DeleteOptions{}) })
	size := resource.MustParse("1Gi")
	s := &v1beta1.NFSServer{ObjectMeta: metav1.ObjectMeta{Name: "files"}, Spec: v1beta1.NFSServerSpec{Storage: &v1beta1.NFSStorage{Size: &size}}}
	ask := func(ours holdfast.Interface, in string) error {
		_, err := ours.HoldfastV1beta1().NFSServers(in).Create(t.Context(), s, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	wait.Until(r, "a refusal", func() bool { return realapi.RefusedBy("holdfast-nfs-namespaces", ask(r.ours, other)) })
	if err := ask(r.ours, other); !strings.Contains(err.Error(), "namespace "+other+" is not among those that may have NFS servers, which are "+namespace) ||
		!strings.Contains(err.Error(), "spec.nfs.namespaces") {
		t.Errorf("it says %v", err)
	}
	if err := ask(r.ours, namespace); err != nil {
		t.Errorf("in the namespace of Holdfast: %v", err)
	}
	if err := ask(holdfast.NewForConfigOrDie(r.as(controllerUser)), other); err != nil {
		t.Errorf("one of before cannot be made again with its kind: %v", err)
	}
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.NFS.Namespaces = []string{other} })
	wait.Until(r, "the namespace being allowed", func() bool { return ask(r.ours, other) == nil })
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.NFS.Namespaces = nil })
	wait.Until(r, "another refusal", func() bool { return realapi.RefusedBy("holdfast-nfs-namespaces", ask(r.ours, other)) })
}
