package nfsserver

import (
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/hostile"
)

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
