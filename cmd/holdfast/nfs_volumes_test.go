package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/client/clientset/fake"
	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
)

var quiet = slog.New(slog.DiscardHandler)

// serverOf is an NFSServer of an age in seconds.
func serverOf(namespace, name string, age int, change ...func(*v1.NFSServer)) *v1.NFSServer {
	s := &v1.NFSServer{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.Unix(int64(1000-age), 0)},
		Spec:       v1.NFSServerSpec{Storage: &v1.NFSStorage{ClaimName: "a"}},
	}
	for _, f := range change {
		f(s)
	}
	return s
}

func publishes(s *v1.NFSServer) {
	s.Spec = v1.NFSServerSpec{Publish: &v1.NFSPublication{ClaimName: "a"}}
}

func goes(s *v1.NFSServer) { s.DeletionTimestamp = new(metav1.Unix(2000, 0)) }

// allowing is a StorageCluster that allows servers in namespaces.
func allowing(namespaces ...string) *v1.StorageCluster {
	return &v1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "holdfast"}, Spec: v1.StorageClusterSpec{NFS: v1.NFSSpec{Namespaces: namespaces}}}
}

func TestAServerThatNobodyAllowedMakesNoVolumes(t *testing.T) {
	for namespace, says := range map[string]string{"shop": "", "holdfast-system": "", "evil": `"namespaces":["shop","evil"]`} {
		client := fake.NewSimpleClientset(allowing("shop"), serverOf(namespace, "files", 5))
		s := newSiblings(types.NamespacedName{Namespace: namespace, Name: "files"}, "holdfast-system", client)
		if err := s.refusal(); !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("in %s it makes some before it knows: %v", namespace, err)
		}
		end := begin(t, valid(t)(s.follow(quiet)))
		await(t, "the lists", func() bool { return s.all.HasSynced() && s.clusters.HasSynced() })
		if err := s.refusal(); (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("in %s it says %v", namespace, err)
		}
		if is := s.isDefault(); is != (says == "") {
			t.Errorf("in %s it takes claims that name none: %v", namespace, is)
		}
		if err := end(); err != nil {
			t.Error(err)
		}
	}
}

func TestOneServerTakesTheClaimsThatAnyCouldTake(t *testing.T) {
	own := serverOf("shop", "files", 5)
	for name, test := range map[string]struct {
		others                 []*v1.NFSServer
		isDefault, takesByName bool
	}{
		"it is alone":                       {nil, true, true},
		"an older one has another name":     {[]*v1.NFSServer{serverOf("shop", "old", 9)}, false, true},
		"a younger one has another name":    {[]*v1.NFSServer{serverOf("a", "young", 1)}, true, true},
		"an older one has its name":         {[]*v1.NFSServer{serverOf("team", "files", 9)}, false, false},
		"a younger one has its name":        {[]*v1.NFSServer{serverOf("a", "files", 1)}, true, true},
		"one of its age comes before it":    {[]*v1.NFSServer{serverOf("a", "files", 5)}, false, false},
		"one of its age comes after it":     {[]*v1.NFSServer{serverOf("team", "files", 5)}, true, true},
		"an older one publishes":            {[]*v1.NFSServer{serverOf("team", "files", 9, publishes)}, true, true},
		"an older one is being deleted":     {[]*v1.NFSServer{serverOf("team", "files", 9, goes)}, true, true},
		"one is older, one has its name":    {[]*v1.NFSServer{serverOf("team", "old", 9), serverOf("team", "files", 2)}, false, true},
		"an older one may not be there":     {[]*v1.NFSServer{serverOf("evil", "files", 9), serverOf("evil", "old", 99)}, true, true},
		"its name comes in a name of three": {[]*v1.NFSServer{serverOf("team", "files-2", 9)}, false, true},
	} {
		client := fake.NewSimpleClientset(own.DeepCopy(), allowing("shop", "team", "a"))
		for _, o := range test.others {
			if err := client.Tracker().Add(o); err != nil {
				t.Fatal(err)
			}
		}
		s := newSiblings(types.NamespacedName{Namespace: "shop", Name: "files"}, "holdfast-system", client)
		if s.isDefault() || s.isNamed("files") || !s.known("nobody") || s.own() != nil {
			t.Errorf("%s: it judges before it knows", name)
		}
		end := begin(t, valid(t)(s.follow(quiet)))
		await(t, "the lists", func() bool { return s.all.HasSynced() && s.clusters.HasSynced() })
		if got := s.isDefault(); got != test.isDefault {
			t.Errorf("%s: it takes claims that name none: %v", name, got)
		}
		if got := s.isNamed("files"); got != test.takesByName {
			t.Errorf("%s: it takes claims that name files: %v", name, got)
		}
		if s.isNamed("old") || s.isNamed("shop/files") || s.isNamed("") {
			t.Errorf("%s: it takes claims of other names", name)
		}
		for _, o := range append(test.others, own) {
			if !s.known(o.Name) || !s.known(o.Namespace+"/"+o.Name) || s.known("other/"+o.Name) {
				t.Errorf("%s: %s/%s is not known", name, o.Namespace, o.Name)
			}
		}
		if s.known("nobody") || s.own() == nil {
			t.Errorf("%s: who is not there is known", name)
		}
		_ = end()
	}
}

// counted is a server with clients.
type counted struct {
	clients []string
	err     error
}

func (c *counted) Clients(context.Context) ([]string, error) { return c.clients, c.err }

func TestTheStatusOfAServerHasTheNumberOfItsClients(t *testing.T) {
	client := fake.NewSimpleClientset(serverOf("shop", "files", 1, publishes), serverOf("team", "files", 2))
	servers := newSiblings(types.NamespacedName{Namespace: "shop", Name: "files"}, "holdfast-system", client)
	ganesha := &counted{clients: []string{"10.0.0.1", "10.0.0.2"}}
	teller := &clientTeller{server: ganesha, client: client, servers: servers, log: quiet}
	if err := teller.tell(t.Context()); err != nil || len(client.Actions()) != 0 {
		t.Errorf("before the server is known: %v, %v", err, client.Actions())
	}
	begin(t, valid(t)(servers.follow(quiet)))
	await(t, "the list", servers.all.HasSynced)
	is := func(n int32) func() bool {
		return func() bool { return servers.own().Status.Clients == n }
	}
	tell := func(n int32) {
		t.Helper()
		if err := teller.tell(t.Context()); err != nil {
			t.Fatal(err)
		}
		await(t, "the number of clients", is(n))
	}
	tell(2)
	ganesha.clients = ganesha.clients[:1]
	tell(1)
	// The operator takes it for none while the pod is not ready.
	s := servers.own().DeepCopy()
	s.Status.Clients = 0
	if _, err := client.HoldfastV1().NFSServers("shop").UpdateStatus(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the operator's word", is(0))
	tell(1)
	client.ClearActions()
	tell(1)
	ganesha.err = errors.New("down")
	if err := teller.tell(t.Context()); !errors.Is(err, ganesha.err) || len(client.Actions()) != 0 {
		t.Errorf("of a server that is down: %v, %v", err, client.Actions())
	}
	if other, err := client.HoldfastV1().NFSServers("team").Get(t.Context(), "files", metav1.GetOptions{}); err != nil || other.Status.Clients != 0 {
		t.Errorf("its namesake has %d clients, %v", other.Status.Clients, err)
	}
}

func TestTheObjectOfAVolumeThatIsRemovedGoesUnlessItIsOfAnotherNode(t *testing.T) {
	n := newNFS(t)
	if err := n.check(); err != nil {
		t.Fatal(err)
	}
	volume := func(name, node string) *v1.Volume {
		return &v1.Volume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "1"}, Spec: v1.VolumeSpec{Name: name, Node: node}}
	}
	client := fake.NewSimpleClientset(volume("own", n.node()), volume("other", "node-a"))
	for _, id := range []backend.ID{"own", "own", "other", "none"} {
		if err := n.forget(t.Context(), client, id); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	if _, err := client.HoldfastV1().Volumes().Get(t.Context(), "own", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("its own: %v", err)
	}
	if _, err := client.HoldfastV1().Volumes().Get(t.Context(), "other", metav1.GetOptions{}); err != nil {
		t.Errorf("another node's: %v", err)
	}
}
