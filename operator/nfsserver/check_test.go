package nfsserver

import (
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/hostile"
)

func TestCheck_RefusalNamesTheFieldAndItsValue(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1beta1.NFSServer)
		want   []string
	}{
		"a long name":                 {func(s *v1beta1.NFSServer) { s.Name = strings.Repeat("a", 5000) }, []string{"metadata.name", "48"}},
		"a name with a dot":           {func(s *v1beta1.NFSServer) { s.Name = "a.b" }, []string{"metadata.name", "a.b"}},
		"no storage":                  {func(s *v1beta1.NFSServer) { s.Spec.Storage = nil }, []string{"spec.storage", "spec.publish"}},
		"both":                        {func(s *v1beta1.NFSServer) { s.Spec.Publish = &v1beta1.NFSPublication{ClaimName: "a"} }, []string{"spec.storage", "not both"}},
		"two storages":                {func(s *v1beta1.NFSServer) { s.Spec.Storage.ClaimName = "a" }, []string{"spec.storage", "2 of size"}},
		"an empty storage":            {func(s *v1beta1.NFSServer) { s.Spec.Storage = &v1beta1.NFSStorage{} }, []string{"spec.storage", "0 of size"}},
		"a long grace":                {func(s *v1beta1.NFSServer) { s.Spec.GracePeriod = new(v1beta1.Duration("1h")) }, []string{"spec.gracePeriod", "1h"}},
		"a negative grace":            {func(s *v1beta1.NFSServer) { s.Spec.GracePeriod = new(v1beta1.Duration("-1ns")) }, []string{"spec.gracePeriod", "-1ns"}},
		"no grace":                    {func(s *v1beta1.NFSServer) { s.Spec.GracePeriod = new(v1beta1.Duration("0s")) }, []string{"spec.gracePeriod", "0s", "1s to"}},
		"a broken grace":              {func(s *v1beta1.NFSServer) { s.Spec.GracePeriod = new(v1beta1.Duration("1.5s")) }, []string{"spec.gracePeriod", "1.5s", "whole seconds"}},
		"a longer second":             {func(s *v1beta1.NFSServer) { s.Spec.GracePeriod = new(v1beta1.Duration("1.000000001s")) }, []string{"spec.gracePeriod", "1.000000001s", "whole seconds"}},
		"a small network":             {clients("10.0.0.1", "fd00::/100"), []string{"spec.exports.clients[1]", "fd00::/100", "99"}},
		"the smallest":                {clients("fd00::/127"), []string{"spec.exports.clients[0]", "fd00::/127", "99"}},
		"a mapped client":             {clients("::ffff:10.0.0.1"), []string{"spec.exports.clients[0]", "::ffff:10.0.0.1", "IPv4"}},
		"a mapped network":            {clients("::ffff:10.0.0.0/104"), []string{"spec.exports.clients[0]", "::ffff:10.0.0.0/104", "IPv4"}},
		"a zone":                      {clients("fe80::1%eth0"), []string{"spec.exports.clients[0]", "fe80::1%eth0"}},
		"a named client":              {func(s *v1beta1.NFSServer) { s.Spec.Exports.Clients = []string{"10.0.0.1", "example.com"} }, []string{"spec.exports.clients[1]", "example.com"}},
		"more images than a node has": {func(s *v1beta1.NFSServer) { s.Spec.MaxExports = 4097 }, []string{"spec.maxExports", "4097", "4096"}},
		"an old NFS":                  {func(s *v1beta1.NFSServer) { s.Spec.MountOptions = []string{"noatime", "nfsvers=3"} }, []string{"spec.mountOptions[1]", "nfsvers=3", "4.1 and 4.2"}},
		"a device": {func(s *v1beta1.NFSServer) {
			s.Spec.Resources.Claims = []core.ResourceClaim{{Name: "gpu"}}
		}, []string{"spec.resources.claims", "gpu"}},
		"publishing to write": {func(s *v1beta1.NFSServer) {
			publishing(&s.Spec)
			s.Spec.Exports.Access = v1beta1.NFSReadWrite
		}, []string{"spec.exports.access", "ReadWrite"}},
	} {
		s := server(nil)
		test.change(s)
		err := checkServer(s, nil)
		if err == nil {
			t.Errorf("%s is taken", name)
			continue
		}
		for _, part := range test.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v does not say %s", name, err, part)
			}
		}
		if len(err.Error()) > 400 {
			t.Errorf("%s: %d bytes are said", name, len(err.Error()))
		}
	}
	for name, change := range map[string]func(*v1beta1.NFSServerSpec){
		"a size": nil, "publishing": publishing,
		"the most images":      func(s *v1beta1.NFSServerSpec) { s.MaxExports = 4096 },
		"the most directories": func(s *v1beta1.NFSServerSpec) { s.Engine, s.MaxExports = v1beta1.EngineDirectory, 65535 },
		"a claim":              func(s *v1beta1.NFSServerSpec) { s.Storage = &v1beta1.NFSStorage{ClaimName: "mine"} },
		"clients": func(s *v1beta1.NFSServerSpec) {
			s.Exports.Clients = []string{"10.0.0.0/8", "10.0.0.7/32", "fd00::1", "fd00::/99", "fd00::1/128", "::/0"}
		},
		"no access": func(s *v1beta1.NFSServerSpec) { publishing(s); s.Exports.Access = v1beta1.NFSNone },
	} {
		if err := checkServer(server(change), nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func clients(all ...string) func(*v1beta1.NFSServer) {
	return func(s *v1beta1.NFSServer) { s.Spec.Exports.Clients = all }
}

func TestCheck_TwoServersNeverShareStorage(t *testing.T) {
	of := func(name string, age int, change func(*v1beta1.NFSServerSpec)) *v1beta1.NFSServer {
		s := server(change)
		s.Name, s.UID, s.CreationTimestamp = name, types.UID(name), metav1.NewTime(time.Unix(int64(1000-age), 0))
		return s
	}
	mine := func(s *v1beta1.NFSServerSpec) { s.Storage = &v1beta1.NFSStorage{ClaimName: "mine"} }
	show := func(claim string) func(*v1beta1.NFSServerSpec) {
		return func(s *v1beta1.NFSServerSpec) { s.Storage, s.Publish = nil, &v1beta1.NFSPublication{ClaimName: claim} }
	}
	host := func(s *v1beta1.NFSServerSpec) { s.Storage = &v1beta1.NFSStorage{HostPath: "/srv"} }
	old, young := of("old", 9, mine), of("young", 1, mine)
	for name, test := range map[string]struct {
		server, other *v1beta1.NFSServer
		refused       string
	}{
		"the older keeps it":         {old, young, ""},
		"the younger does not":       {young, old, "old"},
		"itself":                     {old, old, ""},
		"another claim":              {young, of("b", 9, nil), ""},
		"the claim made for another": {of("a", 9, func(s *v1beta1.NFSServerSpec) { s.Storage = &v1beta1.NFSStorage{ClaimName: "nfs-b"} }), of("b", 10, nil), "NFSServer b"},
		"directories":                {of("a", 1, host), of("b", 9, host), ""}, // each on its own node; on one, the lock of the storage decides
		"publishing both":            {of("a", 1, show("mine")), of("b", 9, show("mine")), ""},
		"publishing the storage":     {of("a", 9, show("mine")), young, "the storage of NFSServer young"},
		"storage that is published":  {young, of("a", 9, show("mine")), ""}, // that one is refused
	} {
		err := checkServer(test.server, []*v1beta1.NFSServer{test.server, test.other})
		if (err != nil) != (test.refused != "") || err != nil && !strings.Contains(err.Error(), test.refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzNFSServer shows that any spec is either refused by the name of its field or applied.
func FuzzNFSServer(f *testing.F) {
	for _, seed := range hostile.Seeds(400) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		in := asked(func(s *v1beta1.NFSServerSpec) { hostile.Fill(choices, s) })
		if err := checkServer(in.server, nil); err != nil {
			if !strings.HasPrefix(err.Error(), "spec.") {
				t.Errorf("the refusal names no field: %v\nof %s", err, hostile.Text(in.server.Spec))
			}
			return
		}
		if _, err := network(in); err != nil {
			t.Error(err)
		}
		for _, o := range in.objects(t) {
			if o.GetNamespace() != in.server.Namespace || o.GetName() == "" || o.GetLabels()[Label] != in.server.Name {
				t.Errorf("%s %s/%s has the labels %v\nof %s", o.GetKind(), o.GetNamespace(), o.GetName(), o.GetLabels(), hostile.Text(in.server.Spec))
			}
		}
	})
}
