package main

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/client/clientset/fake"
	v1 "github.com/holdfast-storage/holdfast/api/v1"
)

// letsIn keeps the clients that it is told.
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

func TestTheNodesOfTheStatusMayMountAndAreKeptForAStartWithoutIt(t *testing.T) {
	t.Setenv(clientsVariable, clientsOfStatus)
	n := newNFS(t)
	if !n.followsClients() || newNFS(t, "--clients=10.0.0.0/8").followsClients() {
		t.Error("clients that are named are not those of the status")
	}
	client := fake.NewSimpleClientset(serverOf("shop", "files", 1), serverOf("team", "files", 2))
	servers := newSiblings(types.NamespacedName{Namespace: "shop", Name: "files"}, "holdfast-system", client)
	begin(t, valid(t)(servers.follow(quiet)))
	a, err := n.newAllowedClients(quiet)
	if err != nil || !slices.Equal(a.first(), []string{loopback}) {
		t.Fatalf("it begins with %v, %v", a.first(), err)
	}
	told := &letsIn{}
	a.server, a.servers = told, servers
	started := make(chan struct{})
	end := begin(t, a.before(func(ctx context.Context) error { close(started); <-ctx.Done(); return nil }))
	await(t, "the servers", func() bool { return servers.own() != nil })
	write := func(namespace string, clients ...string) {
		t.Helper()
		s, err := client.HoldfastV1().NFSServers(namespace).Get(t.Context(), "files", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s.Status.AllowedClients = clients
		if _, err := client.HoldfastV1().NFSServers(namespace).UpdateStatus(t.Context(), s, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	write("team", "10.9.9.9") // another's
	await(t, "the other's status", func() bool {
		return slices.ContainsFunc(servers.list(), func(s *v1.NFSServer) bool { return len(s.Status.AllowedClients) > 0 })
	})
	select {
	case <-started:
		t.Error("it serves before it knows whom")
	default:
	}
	write("shop", "10.0.0.1")
	<-started
	await(t, "the first node", told.are("10.0.0.1"))
	write("shop", "10.0.0.1", "10.0.0.2")
	await(t, "the second node", told.are("10.0.0.1", "10.0.0.2"))
	await(t, "the list being kept", func() bool { text, _ := os.ReadFile(a.file); return string(text) == "10.0.0.1\n10.0.0.2\n" })
	write("shop") // by an operator of the release before
	await(t, "an empty status", func() bool { return len(servers.own().Status.AllowedClients) == 0 })
	if err := end(); err != nil {
		t.Error(err)
	}
	if !told.are("10.0.0.1", "10.0.0.2")() {
		t.Errorf("without a word it lets in %v", told.last)
	}
	// It starts again, and nobody tells it.
	again, err := n.newAllowedClients(quiet)
	if err != nil || !slices.Equal(again.first(), []string{"10.0.0.1", "10.0.0.2"}) {
		t.Fatalf("later it begins with %v, %v", again.first(), err)
	}
	again.server, again.servers = &letsIn{}, newSiblings(types.NamespacedName{Namespace: "shop", Name: "files"}, "holdfast-system", fake.NewSimpleClientset())
	started = make(chan struct{})
	begin(t, again.before(func(ctx context.Context) error { close(started); <-ctx.Done(); return nil }))
	<-started
}
