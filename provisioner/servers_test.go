package provisioner

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-storage/holdfast/api/client/clientset/fake"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// nfsServer is an NFSServer of an age in seconds.
func nfsServer(namespace, name string, age int, change ...func(*v1beta1.NFSServer)) *v1beta1.NFSServer {
	s := &v1beta1.NFSServer{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.Unix(int64(1000-age), 0)},
		Spec:       v1beta1.NFSServerSpec{Storage: &v1beta1.NFSStorage{ClaimName: "a"}},
	}
	for _, f := range change {
		f(s)
	}
	return s
}

// serversOf are the servers as NAMESPACE/files sees them, without a list yet.
func serversOf(t *testing.T, namespace string, c *fake.Clientset) *Servers {
	t.Helper()
	return check.Got(NewServers(types.NamespacedName{Namespace: namespace, Name: "files"}, "holdfast-system", c, slog.New(slog.DiscardHandler)))(t)
}

// follow has the lists until the test ends.
func (s *Servers) follow(t *testing.T) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(t.Context()) }()
	t.Cleanup(func() { check.Report(t, <-ended) })
	if !cache.WaitForCacheSync(t.Context().Done(), s.all.HasSynced, s.clusters.HasSynced) {
		t.Fatal("the lists do not come")
	}
}

func publishes(s *v1beta1.NFSServer) {
	s.Spec = v1beta1.NFSServerSpec{Publish: &v1beta1.NFSPublication{ClaimName: "a"}}
}

func goes(s *v1beta1.NFSServer) { s.DeletionTimestamp = new(metav1.Unix(2000, 0)) }

// allowing is a StorageCluster that allows servers in namespaces.
func allowing(namespaces ...string) *v1beta1.StorageCluster {
	return &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "holdfast"}, Spec: v1beta1.StorageClusterSpec{NFS: v1beta1.NFSSpec{Namespaces: namespaces}}}
}

func TestServers_OneThatIsNotAllowedOrGoesCreatesNoVolumes(t *testing.T) {
	for name, test := range map[string]struct{ namespace, says string }{
		"allowed":       {"shop", ""},
		"beside ours":   {"holdfast-system", ""},
		"not allowed":   {"evil", `"namespaces":["shop","evil"]`},
		"being deleted": {"shop", "being deleted"},
	} {
		own := nfsServer(test.namespace, "files", 5)
		if name == "being deleted" {
			goes(own)
		}
		s := serversOf(t, test.namespace, fake.NewSimpleClientset(allowing("shop"), own))
		if err := s.Refusal(); !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("%s: it makes some before it knows: %v", name, err)
		}
		s.follow(t)
		if err := s.Refusal(); (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: it says %v", name, err)
		}
		if is := s.IsDefault(); is != (test.says == "") {
			t.Errorf("%s: it takes claims that name none: %v", name, is)
		}
	}
}

func TestServers_OneTakesTheClaimsThatAnyCouldTake(t *testing.T) {
	own := nfsServer("shop", "files", 5)
	for name, test := range map[string]struct {
		others                 []*v1beta1.NFSServer
		isDefault, takesByName bool
	}{
		"it is alone":                       {nil, true, true},
		"an older one has another name":     {[]*v1beta1.NFSServer{nfsServer("shop", "old", 9)}, false, true},
		"a younger one has another name":    {[]*v1beta1.NFSServer{nfsServer("a", "young", 1)}, true, true},
		"an older one has its name":         {[]*v1beta1.NFSServer{nfsServer("team", "files", 9)}, false, false},
		"a younger one has its name":        {[]*v1beta1.NFSServer{nfsServer("a", "files", 1)}, true, true},
		"one of its age comes before it":    {[]*v1beta1.NFSServer{nfsServer("a", "files", 5)}, false, false},
		"one of its age comes after it":     {[]*v1beta1.NFSServer{nfsServer("team", "files", 5)}, true, true},
		"an older one publishes":            {[]*v1beta1.NFSServer{nfsServer("team", "files", 9, publishes)}, true, true},
		"an older one is being deleted":     {[]*v1beta1.NFSServer{nfsServer("team", "files", 9, goes)}, true, true},
		"one is older, one has its name":    {[]*v1beta1.NFSServer{nfsServer("team", "old", 9), nfsServer("team", "files", 2)}, false, true},
		"an older one may not be there":     {[]*v1beta1.NFSServer{nfsServer("evil", "files", 9), nfsServer("evil", "old", 99)}, true, true},
		"its name comes in a name of three": {[]*v1beta1.NFSServer{nfsServer("team", "files-2", 9)}, false, true},
	} {
		client := fake.NewSimpleClientset(own.DeepCopy(), allowing("shop", "team", "a"))
		for _, o := range test.others {
			check.OK(t, client.Tracker().Add(o))
		}
		s := serversOf(t, "shop", client)
		if s.IsDefault() || s.IsNamed("files") || !s.Known("unknown") || s.Own() != nil {
			t.Errorf("%s: it judges before it knows", name)
		}
		s.follow(t)
		if got := s.IsDefault(); got != test.isDefault {
			t.Errorf("%s: it takes claims that name none: %v", name, got)
		}
		if got := s.IsNamed("files"); got != test.takesByName {
			t.Errorf("%s: it takes claims that name files: %v", name, got)
		}
		if s.IsNamed("old") || s.IsNamed("shop/files") || s.IsNamed("") {
			t.Errorf("%s: it takes claims of other names", name)
		}
		for _, o := range append(test.others, own) {
			if !s.Known(o.Name) || !s.Known(o.Namespace+"/"+o.Name) || s.Known("other/"+o.Name) {
				t.Errorf("%s: %s/%s is not known", name, o.Namespace, o.Name)
			}
		}
		if s.Known("unknown") || s.Own() == nil {
			t.Errorf("%s: who is not there is known", name)
		}
	}
}
