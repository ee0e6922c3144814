package lint

import (
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
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
	check.OK(t, filepath.WalkDir(repository, func(path string, d fs.DirEntry, err error) error {
		relative, _ := filepath.Rel(repository, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{"test", "bin", ".git"}, relative):
			return filepath.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		for _, key := range keyPattern.FindAllStringSubmatch(read(t, relative), -1) {
			found[key[1]] = true
		}
		return nil
	}))
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
