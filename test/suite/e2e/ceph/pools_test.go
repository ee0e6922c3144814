package ceph

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// What docs/ceph.md has the administrator give each user. Nodes have users of their own; nodeCaps are for one that all have, of
// directories.
var (
	own      = ` with entity prefix "client.` + nodeUserName + `.` + imageClass + `."`
	ownFiles = ` with entity prefix "client.` + nodeUserName + `.` + fileClass + `."`
	ownCaps  = ` caps_mon="profile rbd" caps_mgr="allow service none r" caps_mds="allow r path=/none" caps_osd="profile rbd pool=` + images + `"`
	userCaps = []string{
		"mon", `allow r, profile rbd, allow command "osd blocklist", allow command "auth get-or-create"` + own + ownCaps + `, allow command "auth caps"` + own + ownCaps + `, allow command "auth rm"` + own + `, allow command "auth get"` + ownFiles + `, allow command "auth rm"` + ownFiles, "mgr", "allow rw", "mds", "allow rwp fsname=" + ceph.FileSystem,
		"osd", "profile rbd pool=" + images + ", allow r tag cephfs data=" + ceph.FileSystem,
	}
	nodeCaps = []string{
		"mon", "allow r fsname=" + ceph.FileSystem, "mds", "allow rw fsname=" + ceph.FileSystem + " path=/volumes/holdfast", "osd", "allow rw tag cephfs data=" + ceph.FileSystem,
	}
)

const (
	clusterName = "holdfast" // of the StorageCluster
	images      = "e2e-images"
	imageClass  = "e2e-rbd"
	fileClass   = "e2e-cephfs"
	userSecret  = "e2e-ceph"
	// Not those of docs/ceph.md, whose commands a test runs.
	userName, nodeUserName = "e2e", "e2e-node"
)

// addPools makes a pool of each engine, as docs/ceph.md says. Those that a run left that was killed are in a Ceph that is
// gone.
func addPools(ctx context.Context) error {
	if err := change(ctx, asInstalled); err != nil {
		return err
	}
	if err := storage.CreateRBDPool(ctx, images, 0); err != nil {
		return err
	}
	key, err := storage.CreateUser(ctx, userName, userCaps...)
	if err != nil {
		return err
	}
	if err := putSecret(ctx, userSecret, key); err != nil {
		return err
	}
	one := v1beta1.CephSpec{
		Monitors: []string{"v2:" + storage.Monitor, "v1:" + storage.MonitorV1}, FSID: storage.FSID,
		User: userName, NodeUser: nodeUserName,
		SecretRef: v1beta1.CephSecretReference{Name: userSecret},
	}
	rbd, files := one, one
	rbd.Pool, files.Filesystem = images, ceph.FileSystem
	err = change(ctx, func(spec *v1beta1.StorageClusterSpec) {
		asInstalled(spec)
		spec.Pools = append(spec.Pools,
			v1beta1.PoolSpec{Name: imageClass, Engine: v1beta1.EngineRBD, Ceph: &rbd, TrashRetention: new(v1beta1.Duration("0s"))},
			v1beta1.PoolSpec{Name: fileClass, Engine: v1beta1.EngineCephFS, Ceph: &files, TrashRetention: new(v1beta1.Duration("0s"))})
		if len(spec.StorageClasses) == 0 {
			spec.StorageClasses = []v1beta1.StorageClassSpec{usualClass}
		}
		spec.StorageClasses = append(spec.StorageClasses, v1beta1.StorageClassSpec{Name: imageClass, Pool: imageClass}, v1beta1.StorageClassSpec{Name: fileClass, Pool: fileClass})
	})
	if err != nil {
		return err
	}
	return awaitReady(ctx)
}

func removePools(ctx context.Context) error {
	err := leave(ctx, asInstalled)
	gone := cluster.Client.CoreV1().Secrets(kube.System).Delete(ctx, userSecret, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(gone) {
		err = errors.Join(err, gone)
	}
	return err
}

func putSecret(ctx context.Context, name, key string) error {
	secrets := cluster.Client.CoreV1().Secrets(kube.System)
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{v1beta1.CephKeyName: []byte(key)}}
	_, err := secrets.Create(ctx, s, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) { // of a run that was killed
		_, err = secrets.Update(ctx, s, metav1.UpdateOptions{})
	}
	return err
}

// storageCluster reads the StorageCluster, also as it was found.
func storageCluster(ctx context.Context) (*v1beta1.StorageCluster, *unstructured.Unstructured, error) {
	found, err := cluster.Holdfast("storageclusters").Get(ctx, clusterName, metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	c := &v1beta1.StorageCluster{}
	return c, found, runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, c)
}

// change edits the spec of the StorageCluster.
func change(ctx context.Context, edit func(*v1beta1.StorageClusterSpec)) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		c, found, err := storageCluster(ctx)
		if err != nil {
			return err
		}
		edit(&c.Spec)
		if found.Object["spec"], err = runtime.DefaultUnstructuredConverter.ToUnstructured(&c.Spec); err != nil {
			return err
		}
		_, err = cluster.Holdfast("storageclusters").Update(ctx, found, metav1.UpdateOptions{})
		return err
	})
}

// awaitReady waits until the StorageCluster is ready as its spec is now, and all of Holdfast runs as its objects say.
func awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, kube.Patience)
	defer cancel()
	var why error // of the last look that was not cut short
	err := kube.Until(ctx, func(ctx context.Context) error {
		err := errors.Join(cluster.RolledOut(ctx), isReady(ctx))
		if ctx.Err() == nil {
			why = err
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("the pools are not ready: %w", why)
	}
	return nil
}

func isReady(ctx context.Context) error {
	c, _, err := storageCluster(ctx)
	if err != nil {
		return err
	}
	ready := meta.FindStatusCondition(c.Status.Conditions, v1beta1.ReadyCondition)
	if ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != c.Generation {
		return fmt.Errorf("the StorageCluster has the conditions %+v", c.Status.Conditions)
	}
	return nil
}

// leave makes a change that removes pools: it is refused until they have reported that they are empty.
func leave(ctx context.Context, edit func(*v1beta1.StorageClusterSpec)) error {
	limited, cancel := context.WithTimeout(ctx, kube.Patience)
	defer cancel()
	if err := kube.Until(limited, func(ctx context.Context) error { return change(ctx, edit) }); err != nil {
		return err
	}
	return awaitReady(ctx)
}

// without removes pools and the classes of their names.
func without(spec *v1beta1.StorageClusterSpec, names ...string) {
	spec.Pools = slices.DeleteFunc(spec.Pools, func(p v1beta1.PoolSpec) bool { return slices.Contains(names, p.Name) })
	spec.StorageClasses = slices.DeleteFunc(spec.StorageClasses, func(c v1beta1.StorageClassSpec) bool { return slices.Contains(names, c.Name) })
}

// asInstalled removes the pools and their classes.
func asInstalled(spec *v1beta1.StorageClusterSpec) {
	without(spec, imageClass, fileClass)
	if len(spec.StorageClasses) == 1 && spec.StorageClasses[0].Name == usualClass.Name {
		spec.StorageClasses = nil // as it was installed
	}
}

// usualClass is there where the spec has no class, and must be in it beside others.
var usualClass = v1beta1.StorageClassSpec{Name: "holdfast", Default: true}
