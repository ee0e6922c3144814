package nfsserver

import (
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/hostile"
)

func TestCheck_RefusalNamesTheFieldAndItsValue(t *testing.T) {
	for want, change := range map[string]func(*v1beta1.NFSServerSpec){
		`spec.mountOptions[1]: `:          func(s *v1beta1.NFSServerSpec) { s.MountOptions = []string{"noatime", "sec=lkey"} },
		`spec.resources.claims: "gpu" is`: func(s *v1beta1.NFSServerSpec) { s.Resources.Claims = []core.ResourceClaim{{Name: "gpu"}} },
	} {
		if err := checkServer(server(change), nil); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
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
		err := checkAlone(test.server, []*v1beta1.NFSServer{test.server, test.other})
		if (err != nil) != (test.refused != "") || err != nil && !strings.Contains(err.Error(), test.refused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzNFSServer shows that what is made of any spec is in the namespace of its server, is found as its server's, and may do
// no more than that of another.
func FuzzNFSServer(f *testing.F) {
	for _, seed := range hostile.Seeds(400) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		in := asked(func(s *v1beta1.NFSServerSpec) {
			hostile.Fill(choices, s)
			s.GracePeriod, s.Exports.Clients = nil, nil
			if s.Storage = nil; s.Publish == nil { // the schema takes one of them, and one sort of storage
				s.Storage = &v1beta1.NFSStorage{ClaimName: "mine"}
			}
		})
		network(in)
		objects := in.objects()
		checkPowers(t, &as[apps.StatefulSet](t, objects, "StatefulSet").Spec.Template.Spec)
		for _, o := range objects {
			if o.GetNamespace() != in.server.Namespace || o.GetName() == "" || o.GetLabels()[Label] != in.server.Name {
				t.Errorf("%s %s/%s has the labels %v\nof %s", o.GetKind(), o.GetNamespace(), o.GetName(), o.GetLabels(), hostile.Text(in.server.Spec))
			}
		}
	})
}
