package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// churner makes a claim, uses it as soon as it is bound, and deletes it, again and again, whatever happens to the
// cluster in between.
type churner struct {
	*kube.Space
	name, class string
	use         func(ctx context.Context, volume string) error // nil for nothing
	volumes     []string                                       // that the claim has had
	done        atomic.Int64                                   // how often it has gone
}

// churn goes on until stop is closed. Then it leaves nothing.
func (c *churner) churn(ctx context.Context, stop <-chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		if err := c.once(ctx); err != nil {
			return fmt.Errorf("claim %s: %w", c.name, err)
		}
		c.done.Add(1)
	}
}

func (c *churner) once(ctx context.Context) error {
	claims := c.Client.CoreV1().PersistentVolumeClaims(c.Namespace)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: c.name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &c.class,
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("16Mi")}},
	}}
	err := made(ctx, func() error { _, err := claims.Create(ctx, claim, metav1.CreateOptions{}); return err })
	if err != nil {
		return err
	}
	var volume string
	err = persist(ctx, func() error {
		now, err := claims.Get(ctx, c.name, metav1.GetOptions{})
		if err == nil && now.Status.Phase != corev1.ClaimBound {
			err = fmt.Errorf("it is %s", now.Status.Phase)
		}
		if err == nil {
			volume = now.Spec.VolumeName
		}
		return err
	})
	if err != nil {
		return err
	}
	c.volumes = append(c.volumes, volume)
	if c.use != nil {
		if err := c.use(ctx, volume); err != nil {
			return err
		}
	}
	return gone(ctx, func() error { return claims.Delete(ctx, c.name, metav1.DeleteOptions{}) })
}

// grow asks for more, of which a claim that no pod uses has no more than a larger volume.
func (c *churner) grow(ctx context.Context, volume string) error {
	const patch = `{"spec":{"resources":{"requests":{"storage":"32Mi"}}}}`
	want := resource.MustParse("32Mi")
	return persist(ctx, func() error {
		_, err := c.Client.CoreV1().PersistentVolumeClaims(c.Namespace).Patch(ctx, c.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil {
			return err
		}
		v, err := c.Client.CoreV1().PersistentVolumes().Get(ctx, volume, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if size := v.Spec.Capacity.Storage(); size.Cmp(want) < 0 {
			return fmt.Errorf("it has %s of %s", size, &want)
		}
		return nil
	})
}

// snapshot makes a snapshot and deletes it.
func (c *churner) snapshot(ctx context.Context, _ string) error {
	snapshots := c.Snapshots()
	err := made(ctx, func() error {
		_, err := snapshots.Create(ctx, kube.NewSnapshot(c.name, c.name), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	err = persist(ctx, func() error {
		now, err := snapshots.Get(ctx, c.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if usable, err := kube.IsUsable(now); err != nil || !usable {
			return errors.Join(err, fmt.Errorf("its snapshot is %v", now.Object["status"]))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return gone(ctx, func() error { return snapshots.Delete(ctx, c.name, metav1.DeleteOptions{}) })
}

// write has a pod write to the volume, and read what it wrote.
func (c *churner) write(ctx context.Context, _ string) error {
	pods := c.Client.CoreV1().Pods(c.Namespace)
	pod := kube.NewPod(c.name, "", kube.Mount(c.name, "/data"), kube.AnyNode, kube.Script(
		"head -c 1000000 /dev/urandom >/data/file; sha256sum /data/file >/data/sum; sync /data/file /data/sum; sha256sum -c /data/sum"))
	pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure // its node may lose its power
	if err := made(ctx, func() error { _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); return err }); err != nil {
		return err
	}
	err := persist(ctx, func() error {
		now, err := pods.Get(ctx, c.name, metav1.GetOptions{})
		if err == nil && now.Status.Phase != corev1.PodSucceeded {
			err = fmt.Errorf("its pod on %s is %s %s", now.Spec.NodeName, now.Status.Phase, now.Status.Message)
		}
		return err
	})
	if err != nil {
		return err
	}
	return gone(ctx, func() error { return pods.Delete(ctx, c.name, metav1.DeleteOptions{}) })
}

// made persists until an object is there, which a request may have made that was never answered.
func made(ctx context.Context, create func() error) error {
	return persist(ctx, func() error {
		err := create()
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

// gone persists until there is nothing left to be deleted.
func gone(ctx context.Context, remove func() error) error {
	return persist(ctx, func() error {
		err := remove()
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is still there"))
	})
}

// persist repeats a request until it succeeds: the API server may be away.
func persist(ctx context.Context, request func() error) error {
	every := time.NewTicker(500 * time.Millisecond)
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

// churners are those of each node.
type churners map[string][]*churner

// add has so many claims come and go on a node, each used in this way.
func (all churners) add(s *kube.Space, node, class, kind string, count int, use func(*churner) func(context.Context, string) error) {
	for i := range count {
		c := &churner{Space: s, name: fmt.Sprintf("%s-%d-%s", kind, i, node), class: class}
		if use != nil {
			c.use = use(c)
		}
		all[node] = append(all[node], c)
	}
}

// start has all claims come and go until end is called, which returns how that failed.
func (all churners) start(ctx context.Context) (end func() error) {
	var churning sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	stop := make(chan struct{})
	for _, here := range all {
		for _, c := range here {
			churning.Go(func() {
				err := c.churn(ctx, stop)
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			})
		}
	}
	return sync.OnceValue(func() error {
		close(stop)
		churning.Wait()
		return errors.Join(errs...)
	})
}

// again waits until each claim of the nodes has come and gone once more.
func (all churners) again(ctx context.Context, t *testing.T, when string, nodes ...string) {
	t.Helper()
	began := time.Now()
	enough := map[*churner]int64{}
	for _, node := range nodes {
		for _, c := range all[node] {
			enough[c] = c.done.Load() + 1
		}
	}
	err := persist(ctx, func() error {
		for c, count := range enough {
			if c.done.Load() < count {
				return fmt.Errorf("claim %s does not come and go", c.name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	t.Logf("%s all claims came and went within %.0f s", when, time.Since(began).Seconds())
}

// volumes are those that all claims have had, when they come and go no more.
func (all churners) volumes() (names []string) {
	for _, here := range all {
		for _, c := range here {
			names = append(names, c.volumes...)
		}
	}
	return names
}
