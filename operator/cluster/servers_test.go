package cluster

import (
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
	r := newRig(t).start()
	r.create("holdfast", allowsDefault)
	r.reconciled("holdfast")
	first, second := r.nfsServer(metav1.NamespaceDefault, "one"), r.nfsServer(namespace, "two")
	r.delete("holdfast")
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonVolumesExist, "2 NFS servers", "Orphan")
	wait.Until(r, "the event", func() bool { return len(r.events.with("Warning Terminating", "2 NFS servers")) == 1 })
	r.volume("v1")
	wait.Until(r, "both being counted", func() bool {
		return strings.Contains(r.condition("holdfast", v1beta1.ProgressingCondition, reasonVolumesExist), "1 volume exists, and 2 NFS servers")
	})
	r.noVolume("v1")
	first()
	wait.Until(r, "the one that is left", func() bool {
		return strings.Contains(r.condition("holdfast", v1beta1.ProgressingCondition, reasonVolumesExist), "1 NFS server in the cluster")
	})
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
	wait.Until(r, "a pod that may be late", func() bool {
		return strings.Contains(r.condition("holdfast", v1beta1.ProgressingCondition, reasonRollingOut), "to become ready")
	})
	r.nfsServer(metav1.NamespaceDefault, "one")
	r.delete("holdfast")
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonVolumesExist)
	r.stop()
	if again, err := r.controller.reconcile(t.Context(), "holdfast"); err != nil || again == 0 || again > kube.LookAgain {
		t.Errorf("it looks again after %s (%v), want %s or sooner", again, err, kube.LookAgain)
	}
}

func TestOrphan_LeavesNFSServersOutsideTheNamespace(t *testing.T) {
	r := newRig(t).start()
	r.create("holdfast", func(s *v1beta1.StorageClusterSpec) { allowsDefault(s); s.DeletionPolicy = v1beta1.OrphanVolumes })
	r.reconciled("holdfast")
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
