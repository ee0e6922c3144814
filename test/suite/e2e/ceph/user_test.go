package ceph

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// setUser changes the user of the pool of images.
func setUser(ctx context.Context, user string) error {
	return change(ctx, func(spec *v1beta1.StorageClusterSpec) {
		i := slices.IndexFunc(spec.Pools, func(p v1beta1.PoolSpec) bool { return p.Name == imageClass })
		spec.Pools[i].Ceph.User = user
	})
}

// setNodeUser changes the user as whom all nodes use the volumes of the pool of directories.
func setNodeUser(ctx context.Context, user, secret string) error {
	err := change(ctx, func(spec *v1beta1.StorageClusterSpec) {
		i := slices.IndexFunc(spec.Pools, func(p v1beta1.PoolSpec) bool { return p.Name == fileClass })
		spec.Pools[i].Ceph.NodeUser, spec.Pools[i].Ceph.NodeSecretRef.Name = user, secret
	})
	if err != nil {
		return err
	}
	return awaitReady(ctx)
}

// podOfImages is the one pod that the pool of images has.
func podOfImages(ctx context.Context) (types.UID, error) {
	pods, err := cluster.Client.CoreV1().Pods(kube.System).List(ctx, metav1.ListOptions{LabelSelector: v1beta1.CephPoolLabel + "=" + imageClass})
	if err != nil {
		return "", err
	}
	stay := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	if len(stay) != 1 {
		return "", fmt.Errorf("the pool has %d pods", len(stay))
	}
	return stay[0].UID, nil
}

func TestUser_ThatCephRefusesLeavesThePoolWithThePodThatServesIt(t *testing.T) {
	s := begin(t)
	was := check.Got(podOfImages(t.Context()))(t)
	t.Cleanup(func() {
		check.Report(t, setUser(context.Background(), userName))
		check.Report(t, awaitReady(context.Background()))
	})
	check.OK(t, setUser(t.Context(), "nosuchuser"))
	ctx, cancel := context.WithTimeout(t.Context(), kube.Patience)
	defer cancel()
	check.OK(t, kube.Until(ctx, func(ctx context.Context) error {
		c, _, err := storageCluster(ctx)
		if err != nil {
			return err
		}
		d := meta.FindStatusCondition(c.Status.Conditions, v1beta1.DegradedCondition)
		if d == nil || !strings.Contains(d.Message, "goes on as before") || !strings.Contains(d.Message, "refuses client.nosuchuser") {
			return fmt.Errorf("it says %+v", d)
		}
		return nil
	}))
	s.Claim("during", "16Mi", kube.OfClass(imageClass))
	s.Volume("during")
	s.DeleteClaim("during")
	check.OK(t, setUser(t.Context(), userName))
	check.OK(t, awaitReady(t.Context()))
	if is, err := podOfImages(t.Context()); err != nil || is != was {
		t.Errorf("the pool was served by pod %s, and is by %s: %v", was, is, err)
	}
}

func TestNodeUser_ReachesTheDirectoriesThatAreAttachedToItsNode(t *testing.T) {
	s := begin(t)
	one, other := withClients(t)
	caps := func(node string) string { // none where there is no such user
		text, _ := storage.Ceph(t.Context(), "auth", "get", "client."+nodeUserName+"."+fileClass+"."+node)
		return text
	}
	path := func(claim string) string {
		return "path=/volumes/holdfast/" + s.Volume(claim).Spec.CSI.VolumeHandle + "/"
	}
	for _, claim := range []string{"first", "second"} {
		s.Claim(claim, "1Gi", kube.OfClass(fileClass), kube.AccessMode(corev1.ReadWriteMany))
	}
	s.Pod("a", kube.Mount("first", "/data"), kube.OnNode(one))
	s.Pod("b", kube.Mount("first", "/data"), kube.Mount("second", "/more"), kube.OnNode(other))
	s.Ready("a")
	s.Ready("b")
	s.Exec("a", "sh", "-ec", "echo written >/data/file; sync /data/file")
	if a := caps(one); !strings.Contains(a, path("first")) || strings.Contains(a, path("second")) {
		t.Errorf("the user of the node of a: %s", a)
	}
	if b := caps(other); !strings.Contains(b, path("first")) || !strings.Contains(b, path("second")) {
		t.Errorf("the user of the node of b: %s", b)
	}
	s.DeletePod("b")
	s.Pod("b-again", kube.Mount("first", "/data"), kube.OnNode(other))
	s.Ready("b-again")
	ctx, cancel := context.WithTimeout(t.Context(), kube.Patience)
	defer cancel()
	check.OK(t, kube.Until(ctx, func(context.Context) error {
		if b := caps(other); !strings.Contains(b, path("first")) || strings.Contains(b, path("second")) {
			return fmt.Errorf("the user of the node of b: %s", b)
		}
		return nil
	}))
	if found := s.Exec("b-again", "cat", "/data/file"); found != "written\n" {
		t.Errorf("it reads %q", found)
	}
	s.DeletePod("a")
	check.OK(t, kube.Until(ctx, func(context.Context) error {
		if a := caps(one); a != "" {
			return fmt.Errorf("a node that uses nothing has the user %s", a)
		}
		return nil
	}))
}

// As docs/ceph.md has an administrator give nodes one user that all have.
func TestNodeUser_IsReplacedByAnotherWhileVolumesAreUsed(t *testing.T) {
	s := begin(t)
	one, other := withClients(t)
	const next, secret = "e2e-node-next", "e2e-ceph-node-next"
	key := check.Got(storage.CreateUser(t.Context(), next, nodeCaps...))(t)
	check.OK(t, putSecret(t.Context(), secret, key))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		err := errors.Join(setNodeUser(ctx, nodeUserName, ""), cluster.Client.CoreV1().Secrets(kube.System).Delete(ctx, secret, metav1.DeleteOptions{}))
		check.Report(t, err)
	})
	s.Claim("data", "1Gi", kube.OfClass(fileClass))
	s.Pod("user", kube.Mount("data", "/data"), kube.OnNode(one))
	s.Ready("user")
	s.Exec("user", "sh", "-ec", "echo before >/data/file; sync /data/file")
	check.OK(t, setNodeUser(t.Context(), next, secret))
	s.Exec("user", "sh", "-ec", "echo after >>/data/file; sync /data/file") // as the user before
	s.DeletePod("user")
	check.Got(storage.Ceph(t.Context(), "auth", "rm", "client."+nodeUserName+"."+fileClass+"."+one))(t)
	for i, node := range []string{one, other} {
		pod := fmt.Sprintf("next-%d", i)
		if found := s.Run(pod, kube.Mount("data", "/data"), kube.OnNode(node), kube.Script("cat /data/file")); found != "before\nafter\n" {
			t.Errorf("on node %s it has %q", node, found)
		}
		s.DeletePod(pod)
	}
}
