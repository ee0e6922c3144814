package golden

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/nfsclient"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

const (
	fill     = "head -c 5000000 /dev/urandom >/data/file; sync /data/file; sha256sum /data/file"
	checksum = "sha256sum /data/file"
	// overfill writes more than fits into 64 MiB.
	overfill = "dd if=/dev/zero of=/data/fill bs=1M count=200 2>&1 || true; rm /data/fill"
)

// life is what the steps share: each one begins where the one before ended.
type life struct {
	*kube.Space
	written string // the checksum of the file in the claim data, as sha256sum prints it
	later   string // the same after the snapshot
}

func TestLifeOfVolumes_FromTheInstallationToTheRemoval(t *testing.T) {
	if cluster == nil {
		kube.SkipWithout(t)
	}
	l := &life{Space: cluster.Space(t)}
	all := l.Space
	for _, step := range []struct {
		name string
		do   func(l *life, t *testing.T)
	}{
		{"installation", (*life).installed},
		{"claim and pod", (*life).claim},
		{"limit", (*life).limit},
		{"block volume", (*life).block},
		{"snapshot and restore", (*life).restore},
		{"clone", (*life).clone},
		{"growth", (*life).growth},
		{"inline volume", (*life).inline},
		{"shared claim", (*life).shared},
		{"deletion", (*life).deletion},
		{"removal", (*life).removal},
	} {
		passed := t.Run(step.name, func(t *testing.T) {
			l.Space = all.In(t)
			step.do(l, t)
		})
		if !passed {
			return // the steps after it would fail for the same reason
		}
	}
}

func (l *life) installed(t *testing.T) {
	class := check.Got(l.Client.StorageV1().StorageClasses().Get(t.Context(), "holdfast", metav1.GetOptions{}))(t)
	if class.Annotations["storageclass.kubernetes.io/is-default-class"] != "true" || class.Provisioner != "csi.holdfast.dev" {
		t.Errorf("the class of the installation is %+v", class)
	}
	kube.AwaitOne(l.Space, l.Holdfast("storageclusters"), "holdfast", "to be ready", isReady)
}

func isReady(c *unstructured.Unstructured) (bool, error) {
	conditions, _, err := unstructured.NestedSlice(c.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == "Ready" && condition["status"] == "True"
	}), err
}

func (l *life) claim(t *testing.T) {
	l.Claim("data", "64Mi")
	l.Pod("writer", kube.Mount("data", "/data"))
	l.Ready("writer")
	l.written = l.Exec("writer", "sh", "-ec", fill)
	l.DeletePod("writer")
	if read := l.Run("reader", kube.Mount("data", "/data"), kube.Script(checksum)); read != l.written {
		t.Errorf("written %q, read %q", l.written, read)
	}
	l.DeletePod("reader")
}

func (l *life) limit(t *testing.T) {
	said := l.Run("greedy", kube.Mount("data", "/data"), kube.Script(overfill+"; "+checksum))
	if !strings.Contains(said, "No space left on device") || !strings.Contains(said, l.written) {
		t.Errorf("writing 200 MiB into 64: %q", said)
	}
	l.DeletePod("greedy")
}

func (l *life) block(t *testing.T) {
	l.Claim("disk", "64Mi", kube.Block)
	written := l.Run("block-writer", kube.Device("disk", "/dev/disk"), kube.Script(`
		head -c 8388608 /dev/urandom >/dev/shm/content
		dd if=/dev/shm/content of=/dev/disk bs=1M seek=40 2>/dev/null
		sha256sum </dev/shm/content`))
	l.DeletePod("block-writer")
	read := l.Run("block-reader", kube.Device("disk", "/dev/disk"), kube.Script("dd if=/dev/disk bs=1M skip=40 count=8 2>/dev/null | sha256sum"))
	if read != written {
		t.Errorf("written %q, read %q", written, read)
	}
	l.DeletePod("block-reader")
}

func (l *life) restore(t *testing.T) {
	l.Pod("writer", kube.Mount("data", "/data"))
	l.Ready("writer")
	l.Snapshot("then", "data") // while it is in use
	l.later = l.Exec("writer", "sh", "-ec", fill)
	l.Claim("restored", "64Mi", kube.From("VolumeSnapshot", "then"))
	if read := l.Run("reader", kube.Mount("restored", "/data"), kube.Script(checksum)); read != l.written {
		t.Errorf("the snapshot has %q, and the volume had %q", read, l.written)
	}
	l.DeletePod("reader")
}

func (l *life) clone(t *testing.T) {
	l.Claim("cloned", "64Mi", kube.From("PersistentVolumeClaim", "data"))
	if read := l.Run("reader", kube.Mount("cloned", "/data"), kube.Script(checksum)); read != l.later {
		t.Errorf("the clone has %q, and its source %q", read, l.later)
	}
	l.DeletePod("reader")
	l.DeletePod("writer")
}

// Growth of what is unused: that of a mounted ext4 needs a capability that a machine may lack, and other lanes have it.
func (l *life) growth(t *testing.T) {
	l.Request("data", "256Mi")
	kube.AwaitOne(l.Space, l.Client.CoreV1().PersistentVolumes(), l.Volume("data").Name, "to have 256Mi", func(v *corev1.PersistentVolume) (bool, error) {
		return v.Spec.Capacity.Storage().Value() >= 256<<20, nil
	})
	l.Pod("user", kube.Mount("data", "/data"))
	l.Ready("user")
	l.Grown("data", "256Mi")
	said := l.Exec("user", "sh", "-ec", "dd if=/dev/zero of=/data/more bs=1M count=128 2>/dev/null; "+checksum)
	if said != l.later {
		t.Errorf("written %q, read %q", l.later, said)
	}
	l.DeletePod("user")
}

func (l *life) inline(t *testing.T) {
	l.Pod("scratch", kube.Inline("/data", map[string]string{"size": "64Mi"}))
	l.Ready("scratch")
	if said := l.Exec("scratch", "sh", "-c", overfill); !strings.Contains(said, "No space left on device") {
		t.Errorf("writing 200 MiB into an inline volume of 64: %q", said)
	}
	l.DeletePod("scratch")
}

// shared has a client of the test's own: the machine's kernel may have none.
func (l *life) shared(t *testing.T) {
	client := check.Got(l.HostAddress(t.Context()))(t)
	server := l.Serve("files", l.Home, map[string]any{
		"storage": map[string]any{"storageClassName": "holdfast", "size": "1Gi"}, "reclaimPolicy": "Delete",
		"exports": map[string]any{"clients": []any{client}},
	})
	class := l.Namespace + "-shared"
	check.Got(l.Client.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: "nfs.holdfast.dev", Parameters: map[string]string{"nfsServer": l.Namespace + "/files"},
	}, metav1.CreateOptions{}))(t)
	defer func() {
		check.Report(t, l.Client.StorageV1().StorageClasses().Delete(context.WithoutCancel(t.Context()), class, metav1.DeleteOptions{}))
	}()
	l.Claim("shared", "32Mi", kube.OfClass(class), kube.AccessMode(corev1.ReadWriteMany))
	export := l.Volume("shared").Spec.NFS
	if export == nil {
		t.Fatal("the volume of the shared claim is not one of NFS")
	}
	// The pod's own address: a Service gives what comes from outside the address of the node.
	address := net.JoinHostPort(l.Ready(server).Status.PodIP, "2049")
	directory := strings.Split(strings.Trim(export.Path, "/"), "/")
	nfsclient.New(t, address).Write(directory, "file", "written by one client")
	if read := nfsclient.New(t, address).Read(directory, "file"); read != "written by one client" {
		t.Errorf("another client reads %q", read)
	}
	l.DeleteClaim("shared")
}

func (l *life) deletion(t *testing.T) {
	names := []string{"data", "disk", "restored", "cloned"}
	var volumes []*corev1.PersistentVolume
	for _, name := range names {
		volumes = append(volumes, l.Volume(name))
	}
	check.OK(t, errors.Join(l.EndServers(t.Context()), l.Empty(t.Context())))
	for _, v := range volumes {
		id := v.Spec.CSI.VolumeHandle
		kube.AwaitNone(l.Space, l.Holdfast("volumes"), kube.Named(id), "volume "+id)
		// The object goes last.
		left := check.Got(filepath.Glob(filepath.Join(l.Pools(), "default", "*", "*"+id+"*")))(t)
		trashed := func(path string) bool { return filepath.Base(filepath.Dir(path)) == ".trash" }
		if left = slices.DeleteFunc(left, trashed); len(left) > 0 {
			t.Errorf("on the disk, beside the trash, there is still %v", left)
		}
	}
}

// removal deletes the StorageCluster, with which all of Holdfast goes.
func (l *life) removal(t *testing.T) {
	pools := l.Pools()
	kube.AwaitNone(l.Space, l.Holdfast("volumes"), metav1.ListOptions{}, "all volumes")
	check.OK(t, l.Holdfast("storageclusters").Delete(t.Context(), "holdfast", metav1.DeleteOptions{}))
	ctx, cancel := context.WithTimeout(t.Context(), 2*kube.Patience)
	defer cancel()
	l.Eventually(ctx, "nothing to be left in the cluster", func(ctx context.Context) error {
		_, err := l.Client.CoreV1().Namespaces().Get(ctx, kube.System, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("namespace %s: %w", kube.System, errors.Join(err, errors.New("it is there")))
		}
		all, err := cluster.Everything(ctx, "")
		var left []string
		for _, o := range all {
			if strings.Contains(o.String(), "holdfast") && o.Resource.Resource != "events" {
				left = append(left, o.String())
			}
			for _, trace := range onNodes(o) {
				left = append(left, o.String()+" has "+trace)
			}
		}
		if len(left) > 0 {
			err = errors.New(strings.Join(left, "\n"))
		}
		return err
	})
	nothingOnHost(t, pools)
}

// onNodes are the labels, annotations and drivers of Holdfast that a Node or a CSINode has.
func onNodes(o kube.Listed) (traces []string) {
	if o.Resource.Resource != "nodes" && o.Resource.Resource != "csinodes" {
		return nil
	}
	keys := slices.AppendSeq(slices.Collect(maps.Keys(o.GetLabels())), maps.Keys(o.GetAnnotations()))
	drivers, _, _ := unstructured.NestedSlice(o.Object, "spec", "drivers")
	for _, driver := range drivers {
		keys = append(keys, fmt.Sprint(driver))
	}
	return slices.DeleteFunc(keys, func(key string) bool { return !strings.Contains(key, "holdfast") })
}

// nothingOnHost looks for mounts and loop devices of the pools; deleted volumes may still be in their trash.
func nothingOnHost(t *testing.T, pools string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	check.OK(t, err)
	for line := range strings.SplitSeq(string(mounts), "\n") {
		if strings.Contains(line, pools) || strings.Contains(line, "csi.holdfast.dev") {
			t.Errorf("mounted is %s", line)
		}
	}
	backing, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	check.OK(t, err)
	for _, file := range backing {
		if name, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(name), pools) {
			t.Errorf("%s is still %s", file, name)
		}
	}
	left, err := filepath.Glob(filepath.Join(pools, "default/volumes/*"))
	if err != nil || len(left) > 0 {
		t.Errorf("in the pool there are %v, %v", left, err)
	}
}
