package render

import (
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

func TestNFSServers_RightsAreRenderedWhereAllowed(t *testing.T) {
	for want, namespaces := range map[string][]string{`["elsewhere"]`: nil, `["elsewhere", "shared", "team-a"]`: {"shared", "team-a"}} {
		in := ask(func(s *v1beta1.StorageClusterSpec) { s.NFS.Namespaces = namespaces })
		objects, err := Objects(Input{Cluster: in.Cluster, Namespace: "elsewhere", Has: everyKind})
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, o := range objects {
			if o.GetName() != "holdfast-nfs-namespaces" {
				continue
			}
			found++
			text, err := o.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if o.GetKind() == "ValidatingAdmissionPolicy" && (!strings.Contains(strings.ReplaceAll(string(text), `\`, ""), want) ||
				!strings.Contains(string(text), `"failurePolicy":"Fail"`)) {
				t.Errorf("it is %s", text)
			}
		}
		if found != 2 {
			t.Errorf("of policy and binding there are %d", found)
		}
	}
}
