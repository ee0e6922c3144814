package main

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/client/clientset/fake"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// letsIn keeps the clients that were set last.
type letsIn struct {
	mu   sync.Mutex
	last []string
}

func (l *letsIn) SetClients(_ context.Context, clients []string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = clients
	return nil
}

func (l *letsIn) are(want ...string) func() bool {
	return func() bool { l.mu.Lock(); defer l.mu.Unlock(); return slices.Equal(l.last, want) }
}

func TestAllowedClients_NodesOfTheStatusMayMountAndAreKeptForARestart(t *testing.T) {
	t.Setenv(clientsVariable, clientsOfStatus)
	n := newNFS(t)
	if !n.followsClients() || newNFS(t, "--clients=10.0.0.0/8").followsClients() {
		t.Error("clients that are named are not those of the status")
	}
	client := fake.NewSimpleClientset(serverOf("shop", "files", 1), serverOf("team", "files", 2))
	servers := serversOf(t, client)
	begin(t, servers.Run)
	a, err := n.newAllowedClients(quiet)
	if err != nil || !slices.Equal(a.first(), []string{loopback}) {
		t.Fatalf("it begins with %v, %v", a.first(), err)
	}
	received := &letsIn{}
	a.server, a.servers = received, servers
	started := make(chan struct{})
	end := begin(t, a.before(func(ctx context.Context) error { close(started); <-ctx.Done(); return nil }))
	wait.Until(t, "the servers", func() bool { return servers.Own() != nil })
	write := func(namespace string, clients ...string) {
		t.Helper()
		s := check.Got(client.HoldfastV1beta1().NFSServers(namespace).Get(t.Context(), "files", metav1.GetOptions{}))(t)
		s.Status.AllowedClients = clients
		check.Got(client.HoldfastV1beta1().NFSServers(namespace).UpdateStatus(t.Context(), s, metav1.UpdateOptions{}))(t)
	}
	informer := servers.Watches.Holdfast().V1beta1().NFSServers().Informer()
	write("team", "10.9.9.9") // another's
	wait.Until(t, "the other's status", func() bool {
		return slices.ContainsFunc(informer.GetStore().List(), func(s any) bool { return len(s.(*v1beta1.NFSServer).Status.AllowedClients) > 0 })
	})
	select {
	case <-started:
		t.Error("it serves before it knows whom")
	default:
	}
	write("shop", "10.0.0.1")
	<-started
	wait.Until(t, "the first node", received.are("10.0.0.1"))
	write("shop", "10.0.0.1", "10.0.0.2")
	wait.Until(t, "the second node", received.are("10.0.0.1", "10.0.0.2"))
	wait.Until(t, "the list being kept", func() bool { text, _ := os.ReadFile(a.file); return string(text) == "10.0.0.1\n10.0.0.2\n" })
	write("shop") // by an operator of the release before
	wait.Until(t, "an empty status", func() bool { return len(servers.Own().Status.AllowedClients) == 0 })
	check.Report(t, end())
	if !received.are("10.0.0.1", "10.0.0.2")() {
		t.Errorf("without a word it lets in %v", received.last)
	}
	// It starts again without an API server.
	again, err := n.newAllowedClients(quiet)
	if err != nil || !slices.Equal(again.first(), []string{"10.0.0.1", "10.0.0.2"}) {
		t.Fatalf("later it begins with %v, %v", again.first(), err)
	}
	again.server, again.servers = &letsIn{}, serversOf(t, fake.NewSimpleClientset())
	started = make(chan struct{})
	begin(t, again.before(func(ctx context.Context) error { close(started); <-ctx.Done(); return nil }))
	<-started
}
