package main

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// crowded is an API with volumes on two nodes and an NFS server, and the flags to reach it.
func crowded(t *testing.T) []string {
	t.Helper()
	api := miniapi.New(t)
	kinds := kindsOf(api)
	for i, name := range []string{"node-1", "node-2", "team.files.nfs.holdfast.dev"} {
		wait.Put(t, &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1beta1.StorageNodeStatus{
			Pools: []v1beta1.Pool{{Name: "fast"}, {Name: "slow"}},
			Trash: []v1beta1.TrashedVolume{
				{Name: "old-on-" + name[:6], Pool: "fast", ClaimRef: v1beta1.ReferenceTo("shop/old"), Size: resource.MustParse("1Gi"), DeletionTime: metav1.NewTime(noon.Add(time.Duration(i) * time.Minute)), ExpirationTime: metav1.NewTime(noon)},
			},
		}}, kinds.StorageNodes())
	}
	for i, v := range []struct {
		name, claim, node, pool, size, used string
		phase                               v1beta1.Phase
	}{
		{"pvc-a", "shop/orders", "node-2", "fast", "3Gi", "1Gi", v1beta1.PhaseReady},
		{"pvc-b", "shop/images", "node-1", "slow", "9Gi", "10Mi", v1beta1.PhaseLost},
		{"pvc-c", "bank/orders", "node-1", "fast", "1Gi", "900Mi", v1beta1.PhaseReady},
		{"pvc-d", "", "team.files.nfs.holdfast.dev", "fast", "2Gi", "2Gi", v1beta1.PhaseReady},
	} {
		o := aVolume(v.name, v.claim, v.node, v.pool, v.size, v.used, v.phase)
		o.Status.CreationTime = new(metav1.NewMicroTime(noon.Add(time.Duration(i*7%5) * time.Hour)))
		wait.Put(t, o, kinds.Volumes())
	}
	for name, volume := range map[string]string{"s-1": "pvc-a", "s-2": "pvc-b"} {
		spec := v1beta1.SnapshotSpec{Name: name, SourceRef: v1beta1.FromVolume(volume), Node: "node-1"}
		wait.Put(t, &v1beta1.Snapshot{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, kinds.Snapshots())
	}
	return at(t, api.URL())
}

func TestLists_AreSortedAndFiltered(t *testing.T) {
	flags := crowded(t)
	for line, want := range map[string]string{
		"volumes":                                         "a b c d",
		"volumes list --sort-by size":                     "b a d c",
		"volumes list --sort-by size --reverse":           "c d a b",
		"volumes list --sort-by used":                     "d a c b",
		"volumes list --sort-by claim":                    "d c b a",
		"volumes list --sort-by node":                     "b c a d",
		"volumes list --sort-by pool":                     "a c d b",
		"volumes list --sort-by phase":                    "b a c d",
		"volumes list --sort-by age":                      "a d b c",
		"volumes list --node node-1":                      "b c",
		"volumes list --node team/files":                  "d",
		"volumes list --node team.files.nfs.holdfast.dev": "d",
		"volumes list --pool slow":                        "b",
		"volumes list --pool slow --pool fast":            "a b c d",
		"volumes list -n shop":                            "a b",
		"-n shop volumes list --claim orders":             "a",
		"volumes list --claim orders":                     "a c",
		"volumes list --claim bank/orders":                "c",
		"volumes list --unhealthy":                        "b",
		"volumes list --node node-2 --unhealthy":          "",
		"volumes trash --node node-2":                     "old-on-node-2",
		"volumes trash --claim shop/old --sort-by name":   "old-on-node-1 old-on-node-2 old-on-team.f",
		"volumes trash --sort-by claim":                   "old-on-team.f old-on-node-2 old-on-node-1",
		"volumes trash --sort-by claim --reverse":         "old-on-team.f old-on-node-2 old-on-node-1",
		"snapshots --volume pvc-b":                        "s-2",
		"snapshots list --sort-by volume --reverse":       "s-2 s-1",
		"snapshots list -n shop":                          "s-1 s-2",
		"snapshots -n bank":                               "",
		"snapshots list --claim shop/images":              "s-2",
	} {
		out, err := callLine(t, line+" -o name", flags...)
		got := strings.Join(strings.Fields(strings.NewReplacer("volume.holdfast.dev/pvc-", "", "snapshot.holdfast.dev/", "").Replace(out)), " ")
		if err != nil || got != want {
			t.Errorf("%s: %v: %q instead of %q", line, err, got, want)
		}
	}
}

func TestLists_ValuesThatMeanNothingAreRefusedWithWhatDoes(t *testing.T) {
	flags := crowded(t)
	for line, want := range map[string]string{
		"volumes list --sort-by nome":                 "it must be name, claim, node, pool, size, used, phase or age (did you mean name or node?)",
		"volumes trash --sort-by used":                "it must be deleted, expires, name, claim, node, pool or size",
		"volumes list --node node-11":                 "there is no such StorageNode (did you mean node-1",
		"volumes list --pool fats":                    "no node has such a pool (did you mean fast?); the pools are fast, slow",
		"volumes list --pool=":                        "it must be the name of a pool",
		"volumes list --pool name=x,path=/x --node a": "--node is for a cluster",
		"volumes list -o jsno":                        "table, wide, json, yaml or name (did you mean json?)",
	} {
		out, err := callLine(t, line, flags...)
		if exitCode(err) != 2 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, without %q\n%s", line, err, want, out)
		}
	}
}
