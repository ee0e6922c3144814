package lint

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
)

// keyPattern finds a key of metadata, or what looks like one.
var keyPattern = regexp.MustCompile(`"((?:[a-z]+\.)?holdfast\.dev/[a-z][a-z-]+)"`)

// elsewhere are the keys that no controller reads on what an agent may write, and where they are instead.
var elsewhere = map[string]string{
	v1beta1.AgentFinalizer:          "the finalizer of the agents themselves",
	"holdfast.dev/config-hash":      "templates of pods",
	"holdfast.dev/ceph-config-hash": "templates of pods",
	"holdfast.dev/revision":         "workloads",
	"holdfast.dev/loop-set":         "resources of pods",
	"holdfast.dev/nfs-path":         "attributes of PersistentVolumes",
	"holdfast.dev/nfs-port":         "attributes of PersistentVolumes",
	"holdfast.dev/populates":        "attributes of PersistentVolumes",
	"nfs.holdfast.dev/store":        "PersistentVolumes of NFS servers",
	"nfs.holdfast.dev/claim-uid":    "spec.labels of Volumes",
	"export.holdfast.dev/gid":       "spec.labels of Volumes",
	"export.holdfast.dev/mode":      "spec.labels of Volumes",
	"export.holdfast.dev/squash":    "spec.labels of Volumes",
	"topology.holdfast.dev/node":    "Nodes and the topology of CSI",
	v1beta1.RBDVolumesKey:           "Nodes",
	v1beta1.CephFSVolumesKey:        "Nodes",
	v1beta1.SharedVolumesKey:        "Nodes",
}

// What a controller goes by is tried with the token of each agent: a new key is added to realapi, or here with where it is.
func TestMetadata_ThatControllersGoByIsTriedWithEachToken(t *testing.T) {
	tried, found := realapi.Keys(), map[string]bool{}
	for _, file := range files(t, ".go") {
		if strings.HasPrefix(file, "test/") || strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, key := range keyPattern.FindAllStringSubmatch(read(t, file), -1) {
			found[key[1]] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(found)) {
		if _, is := elsewhere[key]; is == slices.Contains(tried, key) {
			t.Errorf("%s: it must be among the metadata of test/rig/realapi, which agents are refused, or here with the reason, and not both", key)
		}
	}
	for key := range elsewhere {
		if !found[key] {
			t.Errorf("%s: no program has it any more", key)
		}
	}
}
