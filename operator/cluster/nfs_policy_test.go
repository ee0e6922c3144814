package cluster

import (
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

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
	r := newRig(t).start()
	r.create("holdfast", nil)
	r.reconciled("holdfast")
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
	if err := ask(holdfast.NewForConfigOrDie(r.account(v1beta1.ControllerName)), other); err != nil {
		t.Errorf("one of before cannot be made again with its kind: %v", err)
	}
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.NFS.Namespaces = []string{other} })
	wait.Until(r, "the namespace being allowed", func() bool { return ask(r.ours, other) == nil })
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.NFS.Namespaces = nil })
	wait.Until(r, "another refusal", func() bool { return realapi.RefusedBy("holdfast-nfs-namespaces", ask(r.ours, other)) })
}
