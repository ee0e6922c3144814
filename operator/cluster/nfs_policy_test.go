package cluster

import (
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// Who has every right, so that roles refuse nothing, stands for one who has the role edit by aggregation.
func TestNFSServerPolicy_ServerIsRefusedWhereTheStorageClusterAllowsNone(t *testing.T) {
	r := newRig(t).start()
	r.create("holdfast", nil)
	r.reconciled("holdfast")
	const other = "hb-team"
	ns := &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}
	if _, err := r.theirs.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.theirs.CoreV1().Namespaces().Delete(background, other, metav1.DeleteOptions{}) })
	size := resource.MustParse("1Gi")
	s := &v1beta1.NFSServer{ObjectMeta: metav1.ObjectMeta{Name: "files"}, Spec: v1beta1.NFSServerSpec{Storage: &v1beta1.NFSStorage{Size: &size}}}
	ask := func(ours holdfast.Interface, in string) error {
		_, err := ours.HoldfastV1beta1().NFSServers(in).Create(t.Context(), s, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	r.until("a refusal", func() bool { return refusedBy("holdfast-nfs-namespaces", ask(r.ours, other)) })
	if err := ask(r.ours, other); !strings.Contains(err.Error(), "namespace "+other+" is not among those that may have NFS servers, which are "+namespace) ||
		!strings.Contains(err.Error(), "spec.nfs.namespaces") {
		t.Errorf("it says %v", err)
	}
	if err := ask(r.ours, namespace); err != nil {
		t.Errorf("in the namespace of Holdfast: %v", err)
	}
	controller := rest.CopyConfig(r.config)
	controller.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":holdfast-controller", Groups: []string{"system:masters"}}
	if err := ask(holdfast.NewForConfigOrDie(controller), other); err != nil {
		t.Errorf("one of before cannot be made again with its kind: %v", err)
	}
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.NFS.Namespaces = []string{other} })
	r.until("the namespace being allowed", func() bool { return ask(r.ours, other) == nil })
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.NFS.Namespaces = nil })
	r.until("another refusal", func() bool { return refusedBy("holdfast-nfs-namespaces", ask(r.ours, other)) })
}
