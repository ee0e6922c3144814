package v1beta1

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNFSServer_IsAllowedWhereTheAdministratorSays(t *testing.T) {
	c := &StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "holdfast"}, Spec: StorageClusterSpec{NFS: NFSSpec{Namespaces: []string{"shared"}}}}
	broken := c.DeepCopy()
	broken.DecodeError = "it is broken"
	for what, test := range map[string]struct {
		cluster   *StorageCluster
		namespace string
		want      bool
	}{
		"that of Holdfast":           {c, "storage", true},
		"that of Holdfast, without":  {nil, "storage", true},
		"one that is named":          {c, "shared", true},
		"another":                    {c, "team", false},
		"one that begins like it":    {c, "share", false},
		"without a StorageCluster":   {nil, "shared", false},
		"of one that says nothing":   {&StorageCluster{}, "shared", false},
		"of one that cannot be read": {broken, "shared", false},
		"no namespace":               {c, "", false},
	} {
		if got := test.cluster.AllowsNFSServers(test.namespace, "storage"); got != test.want {
			t.Errorf("%s: %v", what, got)
		}
	}
	for want, cluster := range map[string]*StorageCluster{
		`kubectl patch storageclusters.holdfast.dev holdfast --type=merge --patch='{"spec":{"nfs":{"namespaces":["shared","team"]}}}'`: c,
		"make a StorageCluster with spec.nfs.namespaces: [team]":                                                                       nil,
		"correct StorageCluster holdfast": broken,
	} {
		if got := cluster.AllowNFSServers("team"); !strings.HasPrefix(got, want) {
			t.Errorf("to do: %s", got)
		}
	}
	if len(c.Spec.NFS.Namespaces) != 1 {
		t.Error("saying it changed the list")
	}
}

func TestServedCluster_IsTheOldestThatRemains(t *testing.T) {
	at := func(name string, second int64, leaving bool) *StorageCluster {
		c := &StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(second, 0)}}
		if leaving {
			c.DeletionTimestamp = &metav1.Time{}
		}
		return c
	}
	for want, all := range map[string][]*StorageCluster{
		"b": {at("a", 2, false), at("b", 1, false)},
		"a": {at("b", 1, false), at("a", 1, false)},
		"c": {at("b", 1, true), at("c", 2, false)},
		"d": {at("d", 1, true), at("c", 2, true)},
	} {
		if got := Served(all); got.Name != want {
			t.Errorf("%s is served, not %s", got.Name, want)
		}
	}
	if Served(nil) != nil {
		t.Error("something is served of nothing")
	}
}
