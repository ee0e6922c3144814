package main

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/client/clientset/fake"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/provisioner"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

var quiet = slog.New(slog.DiscardHandler)

// serverOf is an NFSServer of an age in seconds.
func serverOf(namespace, name string, age int, change ...func(*v1beta1.NFSServer)) *v1beta1.NFSServer {
	s := &v1beta1.NFSServer{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.Unix(int64(1000-age), 0)},
		Spec:       v1beta1.NFSServerSpec{Storage: &v1beta1.NFSStorage{ClaimName: "a"}},
	}
	for _, f := range change {
		f(s)
	}
	return s
}

func publishes(s *v1beta1.NFSServer) {
	s.Spec = v1beta1.NFSServerSpec{Publish: &v1beta1.NFSPublication{ClaimName: "a"}}
}

// serversOf are the servers as shop/files sees them.
func serversOf(t *testing.T, c client.Interface) *provisioner.Servers {
	t.Helper()
	return check.Got(provisioner.NewServers(types.NamespacedName{Namespace: "shop", Name: "files"}, "holdfast-system", c, quiet))(t)
}

// counted is a server with clients.
type counted struct {
	clients []string
	err     error
}

func (c *counted) Clients(context.Context) ([]string, error) { return c.clients, c.err }

func TestNFSStatus_HasTheNumberOfClients(t *testing.T) {
	client := fake.NewSimpleClientset(serverOf("shop", "files", 1, publishes), serverOf("team", "files", 2))
	servers := serversOf(t, client)
	ganesha := &counted{clients: []string{"10.0.0.1", "10.0.0.2"}}
	teller := &clientReporter{server: ganesha, client: client, servers: servers, log: quiet}
	if err := teller.report(t.Context()); err != nil || len(client.Actions()) != 0 {
		t.Errorf("before the server is known: %v, %v", err, client.Actions())
	}
	begin(t, servers.Run)
	wait.Until(t, "the server", func() bool { return servers.Own() != nil })
	is := func(n int32) func() bool {
		return func() bool { return servers.Own().Status.Clients == n }
	}
	report := func(n int32) {
		t.Helper()
		check.OK(t, teller.report(t.Context()))
		wait.Until(t, "the number of clients", is(n))
	}
	report(2)
	ganesha.clients = ganesha.clients[:1]
	report(1)
	// The operator takes it for none while the pod is not ready.
	s := servers.Own().DeepCopy()
	s.Status.Clients = 0
	check.Got(client.HoldfastV1beta1().NFSServers("shop").UpdateStatus(t.Context(), s, metav1.UpdateOptions{}))(t)
	wait.Until(t, "the operator's word", is(0))
	report(1)
	client.ClearActions()
	report(1)
	ganesha.err = errors.New("down")
	if err := teller.report(t.Context()); !errors.Is(err, ganesha.err) || len(client.Actions()) != 0 {
		t.Errorf("of a server that is down: %v, %v", err, client.Actions())
	}
	if other, err := client.HoldfastV1beta1().NFSServers("team").Get(t.Context(), "files", metav1.GetOptions{}); err != nil || other.Status.Clients != 0 {
		t.Errorf("its namesake has %d clients, %v", other.Status.Clients, err)
	}
}

func TestNFSVolume_ObjectOfARemovedVolumeIsDeletedUnlessOfAnotherNode(t *testing.T) {
	n := newNFS(t)
	check.OK(t, n.check())
	volume := func(name, node string) *v1beta1.Volume {
		return &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "1"}, Spec: v1beta1.VolumeSpec{Name: name, Node: node}}
	}
	client := fake.NewSimpleClientset(volume("own", n.node()), volume("other", "node-a"))
	requested := false
	client.PrependReactor("delete", "volumes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		o, err := client.Tracker().Get(a.GetResource(), "", a.(clienttesting.DeleteAction).GetName())
		requested = err == nil && o.(*v1beta1.Volume).DeletionRequested()
		return false, nil, nil
	})
	for _, id := range []backend.ID{"own", "own", "other", "none"} {
		if err := n.forget(t.Context(), client, id); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	if _, err := client.HoldfastV1beta1().Volumes().Get(t.Context(), "own", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("its own: %v", err)
	}
	if !requested {
		t.Error("its own goes without a request, so the agent would report that the data stays")
	}
	if _, err := client.HoldfastV1beta1().Volumes().Get(t.Context(), "other", metav1.GetOptions{}); err != nil {
		t.Errorf("another node's: %v", err)
	}
}
