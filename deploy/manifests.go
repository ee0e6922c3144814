// Package deploy embeds the manifests of Holdfast, which the operator applies. All installation methods use the same
// files.
package deploy

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Namespace is where the manifests put Holdfast.
const Namespace = "holdfast-system"

// Version of this release, which is also the tag of its image. It is set when a release is linked.
var Version = "dev"

// DevelopmentTag is the tag of the image in the manifests.
const DevelopmentTag = "dev"

//go:embed base/controller.yaml crds/holdfast.dev_*.yaml operated/*.yaml snapshots/*.yaml
var files embed.FS

// The files that hold what the operator makes.
const (
	Controller         = "base/controller.yaml"
	Driver             = "operated/driver.yaml"
	Node               = "operated/node.yaml"
	LoopSets           = "operated/loop-sets.yaml"
	NodeRBAC           = "operated/node-rbac.yaml"
	Sidecars           = "operated/sidecars.yaml"
	StorageClass       = "operated/storageclass.yaml"
	NFS                = "operated/nfs.yaml"
	NFSRBAC            = "operated/nfs-rbac.yaml"
	NFSPolicies        = "operated/policies-nfs.yaml"
	NFSAccountPolicies = "operated/policies-nfs-accounts.yaml"
	Ceph               = "operated/ceph.yaml"
	CephPolicies       = "operated/policies-ceph-accounts.yaml"
	PodMonitor         = "operated/podmonitor.yaml"
	Priority           = "operated/priority.yaml"
	Policies           = "operated/policies.yaml"
	AccountPolicies    = "operated/policies-accounts.yaml"
	LoopSetPolicies    = "operated/policies-loop-sets.yaml"
	SnapshotClasses    = "operated/snapshotclass.yaml"

	SnapshotController = "operated/snapshot-controller.yaml"
)

// Objects returns the objects of a file in its order. The caller may change them. The files are compiled in, so one that is
// missing or cannot be read panics, in every test.
func Objects(file string) []*unstructured.Unstructured {
	objects, exists := all()[file]
	if !exists {
		panic("there is no manifest " + file)
	}
	copies := make([]*unstructured.Unstructured, 0, len(objects))
	for _, o := range objects {
		copies = append(copies, o.DeepCopy())
	}
	return copies
}

// Definitions returns the kinds of this release.
func Definitions() []*unstructured.Unstructured { return objectsIn("crds/") }

// SnapshotDefinitions returns the kinds of snapshots, which are no driver's own.
func SnapshotDefinitions() []*unstructured.Unstructured { return objectsIn("snapshots/") }

func objectsIn(dir string) (objects []*unstructured.Unstructured) {
	for _, file := range slices.Sorted(maps.Keys(all())) {
		if strings.HasPrefix(file, dir) {
			objects = append(objects, Objects(file)...)
		}
	}
	if len(objects) == 0 {
		panic("there is no manifest in " + dir)
	}
	return objects
}

// all has the objects of every file.
var all = sync.OnceValue(func() map[string][]*unstructured.Unstructured {
	parsed := map[string][]*unstructured.Unstructured{}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := files.Open(name)
		if err != nil {
			return err
		}
		defer content.Close()
		if parsed[name], err = parse(content); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	return parsed
})

func parse(content io.Reader) ([]*unstructured.Unstructured, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(content, 4096)
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
}
