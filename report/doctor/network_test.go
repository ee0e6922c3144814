package doctor

import (
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

func TestWhoReachesNFSServersIsTold(t *testing.T) {
	for what, test := range map[string]struct {
		change func(*Facts)
		check  string
		level  Level
		says   string
	}{
		"all is shut": {func(*Facts) {}, "network of servers", Fine, "yes"},
		"it is unknown whether policies are enforced": {func(f *Facts) { f.DaemonSets = []string{"kube-flannel-ds"} }, "network of servers", Note, "not known"},
		"there is nothing to reach":                   {func(f *Facts) { f.DaemonSets, f.Servers = nil, nil }, "network of servers", Fine, "yes"},
		"policies are switched off":                   {func(f *Facts) { f.Clusters[0].Spec.NFS.NetworkPolicies = new(false) }, "network of servers", Note, "no NetworkPolicies"},
		"a server is open":                            {func(f *Facts) { f.Servers[0].Spec.Exports.Clients = []string{"10.0.0.7", "0.0.0.0/0"} }, "network of servers", Warning, "everybody"},
		"a server is open to a network":               {func(f *Facts) { f.Servers[0].Spec.Exports.Clients = []string{"10.0.0.0/8"} }, "network of servers", Fine, "yes"},
		"a server is allowed":                         {func(*Facts) {}, "namespaces of servers", Fine, "yes"},
		"a server is not allowed":                     {func(f *Facts) { f.Clusters[0].Spec.NFS = v1beta1.NFSSpec{} }, "namespaces of servers", Warning, "no new volumes"},
	} {
		f := well(t)
		test.change(f)
		said := 0
		for _, found := range Examine(f) {
			if found.Check != test.check {
				continue
			}
			said++
			if found.Level != test.level || !strings.Contains(found.What, test.says) {
				t.Errorf("%s: %+v", what, found)
			}
		}
		if said != 1 {
			t.Errorf("%s: %d findings", what, said)
		}
	}
	f := well(t)
	f.Clusters[0].Spec.NFS = v1beta1.NFSSpec{}
	for _, found := range Examine(f) {
		if found.Check == "namespaces of servers" && !strings.Contains(found.Do, `"namespaces":["shop"]`) {
			t.Errorf("to do is %s", found.Do)
		}
	}
}
