package render

import (
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestNFSServers_RightsAreRenderedWhereAllowed(t *testing.T) {
	for want, namespaces := range map[string][]string{`["elsewhere"]`: nil, `["elsewhere", "shared", "team-a"]`: {"shared", "team-a"}} {
		in := ask(func(s *v1beta1.StorageClusterSpec) { s.NFS.Namespaces = namespaces })
		objects := check.Got(Objects(Input{Cluster: in.Cluster, Namespace: "elsewhere", Has: everyKind}))(t)
		found := 0
		for _, o := range objects {
			if o.GetName() != "holdfast-nfs-namespaces" {
				continue
			}
			found++
			text := check.Got(o.MarshalJSON())(t)
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
