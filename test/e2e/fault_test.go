package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/test/e2e/kube"
	"github.com/holdfast-storage/holdfast/test/hostfs"
)

// claimer makes claims and deletes them again, each as soon as it is bound, whatever happens to the cluster meanwhile.
type claimer struct {
	*kube.Space
	class string
	done  atomic.Int64 // claims that were bound and are gone
}

// churn keeps one claim of a name coming and going until stop is closed. Then it leaves none.
func (c *claimer) churn(ctx context.Context, name string, stop <-chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		if err := c.once(ctx, name); err != nil {
			return fmt.Errorf("claim %s: %w", name, err)
		}
		c.done.Add(1)
	}
}

func (c *claimer) once(ctx context.Context, name string) error {
	claims := c.Client.CoreV1().PersistentVolumeClaims(c.Namespace)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &c.class,
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("16Mi")}},
	}}
	err := persist(ctx, func() error {
		_, err := claims.Create(ctx, claim, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	err = persist(ctx, func() error {
		now, err := claims.Get(ctx, name, metav1.GetOptions{})
		if err == nil && now.Status.Phase != corev1.ClaimBound {
			err = fmt.Errorf("it is %s", now.Status.Phase)
		}
		return err
	})
	if err != nil {
		return err
	}
	return persist(ctx, func() error {
		err := claims.Delete(ctx, name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is still there"))
	})
}

// persist repeats a request until it succeeds: the API server may be away.
func persist(ctx context.Context, request func() error) error {
	every := time.NewTicker(200 * time.Millisecond)
	defer every.Stop()
	for {
		err := request()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-every.C:
		}
	}
}

func TestNothingIsLostOrLeftByWhateverFailsWhileFiftyClaimsComeAndGo(t *testing.T) {
	hostfs.Long(t)
	s := begin(t) // not in parallel: others would not like it
	node := secondNode(t)
	c := &claimer{Space: s, class: class(t, s, atOnce)}
	const churners = 50
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	stop := make(chan struct{})
	failed := make([]error, churners)
	var churning sync.WaitGroup
	for i := range churners {
		churning.Go(func() { failed[i] = c.churn(ctx, fmt.Sprint("c", i), stop) })
	}
	end := sync.OnceFunc(func() { close(stop); churning.Wait() })
	defer end()

	// Each fault while claims come and go; the next only when they do again.
	again := func(what string) {
		t.Helper()
		enough := c.done.Load() + churners
		if err := persist(ctx, func() error {
			if now := c.done.Load(); now < enough {
				return fmt.Errorf("%d claims have come and gone", now)
			}
			return nil
		}); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	again("at the beginning")
	for _, fault := range []struct{ component, container string }{
		{"controller", "holdfast"}, {"node", "holdfast"}, {"controller", "csi-provisioner"},
	} {
		t.Logf("killed %d processes of %s/%s", s.Kill(fault.component, fault.container), fault.component, fault.container)
		again("after a kill of " + fault.component + "/" + fault.container)
	}
	for _, component := range []string{"etcd", "kube-apiserver"} {
		s.Restart(component)
		again("after a restart of " + component)
	}
	boot := s.CutPower(node)
	boot()
	again("after a power cut of " + node)
	end()
	if err := errors.Join(failed...); err != nil {
		t.Error(err)
	}
	t.Logf("%d claims came and went", c.done.Load())
	nothingLeft(t, s)
}

// nothingLeft waits until no volume of the test is left, as an object or on a disk, and what the nodes have promised is
// what there is.
func nothingLeft(t *testing.T, s *kube.Space) {
	t.Helper()
	kube.AwaitNone(s, s.Client.CoreV1().PersistentVolumeClaims(s.Namespace), metav1.ListOptions{}, "the claims")
	var left []*unstructured.Unstructured
	kube.Await(s, s.Holdfast("volumes"), metav1.ListOptions{}, "the end of the volumes", func(all []*unstructured.Unstructured) (bool, error) {
		left = all
		return !slices.ContainsFunc(all, func(v *unstructured.Unstructured) bool {
			claim, _, _ := unstructured.NestedString(v.Object, "spec", "claim")
			return strings.HasPrefix(claim, s.Namespace+"/")
		}), nil
	})
	promised := map[string]int64{}
	var here []string
	for _, v := range left {
		node, _, _ := unstructured.NestedString(v.Object, "spec", "node")
		size, _, _ := unstructured.NestedString(v.Object, "status", "size")
		quantity, err := resource.ParseQuantity(size)
		if err != nil {
			t.Fatalf("volume %s has size %q", v.GetName(), size)
		}
		promised[node] += quantity.Value()
		if node == s.Home {
			here = append(here, v.GetName())
		}
	}
	kube.Await(s, s.Holdfast("storagenodes"), metav1.ListOptions{}, "each node to have promised its volumes and nothing else",
		func(nodes []*unstructured.Unstructured) (bool, error) {
			return !slices.ContainsFunc(nodes, func(n *unstructured.Unstructured) bool {
				return promisedBy(n) != promised[n.GetName()]
			}), nil
		})
	slices.Sort(here)
	entries, err := os.ReadDir(filepath.Join(s.Pools(), "default", "volumes"))
	if err != nil {
		t.Fatal(err)
	}
	var onDisk []string
	for _, e := range entries {
		onDisk = append(onDisk, e.Name())
	}
	if !slices.Equal(here, onDisk) {
		t.Errorf("on the disk of %s are %v, and there are objects of %v", s.Home, onDisk, here)
	}
	for _, dir := range []string{".tmp", ".trash"} {
		if entries, err := os.ReadDir(filepath.Join(s.Pools(), "default", dir)); err != nil || len(entries) > 0 {
			t.Errorf("%s has %v, %v", dir, entries, err)
		}
	}
	noStrayLoops(t, s, here)
}

func promisedBy(node *unstructured.Unstructured) (sum int64) {
	pools, _, _ := unstructured.NestedSlice(node.Object, "status", "pools")
	for _, p := range pools {
		pool, _ := p.(map[string]any)
		promised, _, _ := unstructured.NestedString(pool, "promised")
		quantity, err := resource.ParseQuantity(promised)
		if err != nil {
			return -1
		}
		sum += quantity.Value()
	}
	return sum
}

// noStrayLoops looks for loop devices of this machine whose volume is not there.
func noStrayLoops(t *testing.T, s *kube.Space, volumes []string) {
	t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		backing, err := os.ReadFile(file)
		if err != nil {
			continue // detached since
		}
		path := strings.TrimSpace(string(backing))
		if id := filepath.Base(filepath.Dir(path)); strings.HasPrefix(path, s.Pools()) && !slices.Contains(volumes, id) {
			t.Errorf("%s is still attached: %s", path, file)
		}
	}
}
