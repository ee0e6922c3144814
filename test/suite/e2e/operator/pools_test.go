package operator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

const poolLabel = "e2e.holdfast.dev/disks"

// awaitPools waits until a node reports these pools and no others.
func (a *admin) awaitPools(node string, want ...string) *v1beta1.StorageNode {
	a.t.Helper()
	var n *v1beta1.StorageNode
	kube.AwaitOne(a.Space, a.Holdfast("storagenodes"), node, "to have the pools", func(found *unstructured.Unstructured) (bool, error) {
		var err error
		if n, err = typed[v1beta1.StorageNode](found); err != nil {
			return false, err
		}
		var names []string
		for _, p := range n.Status.Pools {
			names = append(names, p.Name)
		}
		slices.Sort(names)
		return reflect.DeepEqual(names, want), nil
	})
	return n
}

func TestPools_AreWhereTheirTermsMatchAndClaimsLandThere(t *testing.T) {
	hostfs.Long(t)
	a := administer(t)
	home, other := twoNodes(t)
	a.label(other, poolLabel, "7")
	a.change(func(spec *v1beta1.StorageClusterSpec) {
		if len(spec.Pools) == 0 {
			spec.Pools = []v1beta1.PoolSpec{{Name: "default"}}
		}
		spec.Pools = append(spec.Pools, v1beta1.PoolSpec{
			Name: "second", Path: filepath.Join(a.directory(), "pools", "second"), Reserved: "0", Overcommit: "2",
			NodeSelectorTerms: []corev1.NodeSelectorTerm{ // one of two
				{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: poolLabel, Operator: corev1.NodeSelectorOpGt, Values: []string{"5"}}}},
				{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"none"}}}},
			},
		})
		spec.StorageClasses = []v1beta1.StorageClassSpec{{Name: "holdfast", Default: true, Pool: "default"}, {Name: "e2e-pool", Pool: "second"}}
	})
	a.awaitPools(home, "default")
	a.awaitPools(other, "default", "second")

	s := begin(t)
	s.Claim("data", "64Mi", kube.OfClass("e2e-pool"))
	s.Pod("user", kube.Mount("data", "/data"), kube.AnyNode)
	if at := s.Ready("user").Spec.NodeName; at != other {
		t.Errorf("the pod runs on %s, where the pool is not", at)
	}

	a.label(home, poolLabel, "9") // the pool comes with the label, without a rollout
	a.awaitPools(home, "default", "second")
	a.awaitReconciled()
	s.Claim("more", "64Mi", kube.OfClass("e2e-pool"))
	s.Run("home", kube.Mount("more", "/data"), kube.OnNode(home), kube.Script("touch /data/file"))
	s.DeletePod("home")
	s.DeleteClaim("more")
	a.awaitVolumes(1)

	a.label(home, poolLabel, "") // and goes with it
	a.awaitPools(home, "default")
	a.awaitReconciled()
	s.Exec("user", "touch", "/data/file")
	s.DeletePod("user")
	s.DeleteClaim("data")
	a.awaitVolumes(0)

	a.change(asUsual)
	a.awaitPools(other, "default")
	if _, err := a.Client.StorageV1().StorageClasses().Get(t.Context(), "e2e-pool", metav1.GetOptions{}); err == nil {
		t.Error("the class of the pool is still there")
	}
}

// awaitVolumes waits until there are so many volumes.
func (a *admin) awaitVolumes(want int) {
	a.t.Helper()
	kube.Await(a.Space, a.Holdfast("volumes"), metav1.ListOptions{}, "the end of volumes", func(all []*unstructured.Unstructured) (bool, error) {
		return len(all) == want, nil
	})
}

const storesLabel = "e2e.holdfast.dev/stores"

func TestPools_ExcludedNodeWithVolumesIsReportedAndServesThemWhenIncluded(t *testing.T) {
	hostfs.Long(t)
	s := begin(t)
	a := administer(t)
	home, other := twoNodes(t)
	a.label(home, storesLabel, "yes")
	s.Claim("data", "64Mi")
	s.Pod("user", kube.Mount("data", "/data"), kube.OnNode(other), kube.Script("while true; do date >>/data/now; sync /data/now; sleep 0.2; done"))
	before := s.Ready("user")
	volume := s.Volume("data").Spec.CSI.VolumeHandle

	leave := func(spec *v1beta1.StorageClusterSpec) { spec.NodeSelectorTerms = chosen(storesLabel, "yes") }
	a.eventually("a node with a volume being kept from being left out", func(ctx context.Context) error {
		err := a.write(ctx, leave)
		if err == nil || !strings.Contains(err.Error(), "1 volume") || !strings.Contains(err.Error(), other) {
			return fmt.Errorf("that node %s is left out was answered by %w", other, err)
		}
		return nil
	})
	a.allowHiding("default")
	a.ask(leave)
	kube.AwaitNone(a.Space, a.Client.CoreV1().Pods(kube.System), metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/component=node", FieldSelector: "spec.nodeName=" + other,
	}, "the node pod of "+other)
	c := a.await("to count one node", func(c *v1beta1.StorageCluster) bool { return c.Status.ReadyNodes == 1 && c.Status.DesiredNodes == 1 })
	t.Logf("the StorageCluster says %s", inWords(c.Status.Conditions))
	if now := s.Ready("user"); now.UID != before.UID || now.Status.ContainerStatuses[0].RestartCount > 0 {
		t.Errorf("the pod with the volume was restarted: %+v", now.Status.ContainerStatuses)
	}
	kube.AwaitOne(a.Space, a.Holdfast("volumes"), volume, "to say that its node does not serve it", func(found *unstructured.Unstructured) (bool, error) {
		v, err := typed[v1beta1.Volume](found)
		if err != nil {
			return false, err
		}
		for _, condition := range v.Status.Conditions {
			if condition.Type == v1beta1.ReadyCondition && condition.Status != metav1.ConditionTrue {
				t.Logf("the volume says %s: %s", condition.Reason, condition.Message)
				return true, nil
			}
		}
		return false, nil
	})

	a.change(func(spec *v1beta1.StorageClusterSpec) { spec.NodeSelectorTerms = nil })
	s.DeletePod("user")
	s.Run("again", kube.Mount("data", "/data"), kube.OnNode(other), kube.Script("test -s /data/now"))
}

// twoDisks makes two disks for a pool of this machine, which has mounts of disks below a directory that is shared, as all are
// where systemd runs. They outlast what is made after them.
func twoDisks(t *testing.T, pool string) (disks []string) {
	t.Helper()
	begin(t).NeedMachines("to give a node two disks")
	const dir = "/var/lib/holdfast"
	check.OK(t, os.MkdirAll(dir, 0o755))
	check.OK(t, errors.Join(unix.Mount(dir, dir, "", unix.MS_BIND, ""), unix.Mount("", dir, "", unix.MS_SHARED, "")))
	t.Cleanup(func() { check.Report(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	for _, name := range []string{pool, pool + ".2"} {
		t.Cleanup(func() {
			check.Report(t, errors.Join(os.Remove(filepath.Join(dir, "disks", name+".json")), os.Remove(filepath.Join(dir, "pools", name))))
		})
		disks = append(disks, hostfs.Disk(t, 1<<30))
	}
	return disks
}

// limitDisk makes all of a disk but its first sectors fail, or takes that back.
func limitDisk(t *testing.T, disk string, size uint64) {
	t.Helper()
	f := check.Got(os.Open(disk))(t)
	defer f.Close()
	status := check.Got(unix.IoctlLoopGetStatus64(int(f.Fd())))(t)
	status.Sizelimit = size
	check.OK(t, unix.IoctlLoopSetStatus64(int(f.Fd()), status))
}

// poolOf returns the pool of a claim's volume.
func (a *admin) poolOf(s *kube.Space, claim string) string {
	a.t.Helper()
	found := check.Got(a.Holdfast("volumes").Get(a.t.Context(), kube.VolumeID(s.Volume(claim)), metav1.GetOptions{}))(a.t)
	return check.Got(typed[v1beta1.Volume](found))(a.t).Spec.Pool
}

// awaitPool waits until a pool of a node is ready or not.
func (a *admin) awaitPool(node, pool string, ready bool) {
	a.t.Helper()
	kube.AwaitOne(a.Space, a.Holdfast("storagenodes"), node, fmt.Sprintf("to have pool %s ready: %t", pool, ready), func(found *unstructured.Unstructured) (bool, error) {
		n, err := typed[v1beta1.StorageNode](found)
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(n.Status.Pools, func(p v1beta1.Pool) bool { return p.Name == pool })
		return i >= 0 && (n.Status.Pools[i].Message == "") == ready, nil
	})
}

func TestPools_DiskThatFailsTakesNoVolumeOfAnotherWithIt(t *testing.T) {
	hostfs.Long(t)
	home, _ := twoNodes(t)
	disks := twoDisks(t, "disks")
	a := administer(t)
	a.label(home, poolLabel, "two")
	a.change(func(spec *v1beta1.StorageClusterSpec) {
		spec.Pools = append(spec.Pools, v1beta1.PoolSpec{
			Name: "disks", Devices: &v1beta1.DeviceSelector{Paths: disks, Count: 2}, NodeSelectorTerms: chosen(poolLabel, "two"),
		})
		spec.StorageClasses = []v1beta1.StorageClassSpec{{Name: "holdfast", Default: true, Pool: "default"}, {Name: "e2e-disks", Pool: "disks"}}
	})
	a.awaitPools(home, "default", "disks", "disks.2")

	s := begin(t)
	on := map[string]string{}
	for _, name := range []string{"one", "two"} {
		s.Claim(name, "256Mi", kube.OfClass("e2e-disks"))
		s.Pod(name, kube.Mount(name, "/data"), kube.OnNode(home), kube.Script(kube.Holder))
		s.Ready(name)
		s.AwaitLines(name, 5)
		on[a.poolOf(s, name)] = name
	}
	if len(on) != 2 {
		t.Fatalf("two volumes are on %v: not one on each disk", on)
	}
	const sick, well = "disks", "disks.2"
	var failing string
	for _, disk := range disks {
		if label := strings.TrimSpace(string(check.Got(exec.Command("blkid", "-p", "-s", "LABEL", "-o", "value", disk).Output())(t))); label == "hf-"+sick {
			failing = disk
		}
	}
	limitDisk(t, failing, 4096)
	t.Cleanup(func() { limitDisk(t, failing, 0) })
	a.awaitPool(home, sick, false)
	before := s.Wrote(on[well])
	s.AwaitLines(on[well], before+20)
	s.Claim("three", "128Mi", kube.OfClass("e2e-disks"))
	s.Run("three", kube.Mount("three", "/data"), kube.OnNode(home), kube.Script("touch /data/file"))
	if pool := a.poolOf(s, "three"); pool != well {
		t.Errorf("a new volume is in pool %s, whose disk fails", pool)
	}

	// The disk is back: it is mounted again once nothing uses what failed.
	limitDisk(t, failing, 0)
	s.DeletePod(on[sick])
	a.awaitPool(home, sick, true)
	s.Run("again", kube.Mount(on[sick], "/data"), kube.OnNode(home), kube.Script("test $(wc -l </data/log) -ge 5"))
	s.AwaitLines(on[well], s.Wrote(on[well])+5)
}
