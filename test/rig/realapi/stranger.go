package realapi

import (
	"context"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// Strangers are the kinds of agents, of which each has an account: that of a node, of an NFS server, and of a pool in Ceph.
var Strangers = map[string]v1beta1.SiteKind{"node": "", "NFS server": v1beta1.SiteNFSServer, "Ceph pool": v1beta1.SiteCephPool}

// Stranger makes the account of an agent that a test has nothing to do with, under the policies of package deploy, until the test
// ends. It returns under what name the agent has volumes, and its token.
func Stranger(t testing.TB, config *rest.Config, kind v1beta1.SiteKind) (node string, token *rest.Config) {
	t.Helper()
	own := "stranger-" + rand.String(5)
	Install(t, config, deploy.NodeRBAC, deploy.AccountPolicies, deploy.NFSRBAC, deploy.NFSAccountPolicies, deploy.CephPolicies)
	namespace, account, pod, policy := Namespace, "holdfast-node", "agent", "holdfast-node-account"
	switch node = own; kind {
	case v1beta1.SiteNFSServer:
		namespace, account, pod, policy, node = own, "holdfast-nfs", "nfs-files-0", "holdfast-nfs-account", v1beta1.NodeOfServer(own+"/files")
		makeAccount(t, config, namespace, account, account)
	case v1beta1.SiteCephPool:
		account, pod, policy, node = "holdfast-ceph-"+own, "site", "holdfast-ceph-account", v1beta1.NodeOfCephPool(own)
		makeAccount(t, config, namespace, account, "cluster-admin")
	}
	PodOn(t, config, namespace, account, pod, own)
	token = WithToken(t, config, namespace, account, pod)
	ofAnother := Attempt{
		Verb: "create", What: "holdfast.dev/v1beta1/volumes", Name: "x",
		Body: `{"apiVersion":"holdfast.dev/v1beta1","kind":"Volume","spec":{"name":"x","node":"elsewhere"}}`,
	}
	wait.Until(t, "the policy "+policy, func() bool {
		err := ofAnother.Try(t.Context(), token)
		return err != nil && strings.Contains(err.Error(), policy)
	})
	return node, token
}

// makeAccount makes what the operator makes for the NFS servers of a namespace, or for a pool in a Ceph cluster.
func makeAccount(t testing.TB, config *rest.Config, namespace, name, role string) {
	t.Helper()
	kinds := kubernetes.NewForConfigOrDie(config).CoreV1()
	home, account := &core.Namespace{}, &core.ServiceAccount{}
	home.Name, account.Name = namespace, name
	if namespace != Namespace {
		check.Got(kinds.Namespaces().Create(t.Context(), home, metav1.CreateOptions{}))(t)
		t.Cleanup(func() { _ = kinds.Namespaces().Delete(context.Background(), namespace, metav1.DeleteOptions{}) })
	}
	check.Got(kinds.ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		_ = kinds.ServiceAccounts(namespace).Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	Grant(t, config, role, namespace, name)
}
