package bench

import (
	"context"
	"fmt"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// life takes n volumes through all steps, each step with all of them at once. Every life includes pods without claims,
// so that a change of the cluster's speed affects both.
func (b *Bench) life(ctx context.Context, n int, into times) error {
	b.lives++
	if err := b.plain(ctx, n, into); err != nil {
		return err
	}
	provide := b.provideAtOnce
	if b.waitsForPod() {
		provide = b.provideWithPods
	}
	claims, err := provide(ctx, n, into)
	if err != nil {
		return err
	}
	if err := b.reuse(ctx, claims, n, into); err != nil {
		return err
	}
	return b.deleteClaims(ctx, claims, n, into)
}

// names returns names for n objects of this life.
func (b *Bench) names(of string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d-%d", of, b.lives, i+1)
	}
	return names
}

func (b *Bench) plain(ctx context.Context, n int, into times) error {
	var pods []podPlan
	for _, name := range b.names("plain", n) {
		pods = append(pods, podPlan{name: name, node: b.Node})
	}
	ran, err := b.run(ctx, "pods without a claim", pods)
	add(into, PlainPod, n, ran, func(p podTimes) (time.Time, time.Time) { return p.created, p.running })
	return err
}

// provideAtOnce is for classes with volumeBindingMode Immediate.
func (b *Bench) provideAtOnce(ctx context.Context, n int, into times) ([]string, error) {
	claims := b.names("claim", n)
	err := b.makeClaims(ctx, claims, func(c *claimSeen) bool { return !c.bound.IsZero() })
	var bound []claimSeen
	b.seen.read(func() {
		for _, name := range claims {
			if c := b.seen.claim(name); !c.bound.IsZero() {
				bound = append(bound, *c)
			}
		}
	})
	add(into, ClaimBound, n, bound, func(c claimSeen) (time.Time, time.Time) { return c.created, c.bound })
	return claims, err
}

// claimLead is the delay between a claim and its pod. The progress of the scheduler's watches is not visible: if it saw
// the pod before the claim, it would retry the pod later, which must not be measured.
const claimLead = 250 * time.Millisecond

// provideWithPods is for classes with volumeBindingMode WaitForFirstConsumer.
func (b *Bench) provideWithPods(ctx context.Context, n int, into times) ([]string, error) {
	claims := b.names("claim", n)
	if err := b.makeClaims(ctx, claims, func(c *claimSeen) bool { return !c.created.IsZero() }); err != nil {
		return nil, err
	}
	pause(ctx, claimLead)
	var pods []podPlan
	for i, name := range b.names("new", n) {
		pods = append(pods, podPlan{name: name, claim: claims[i], node: b.Node})
	}
	ran, err := b.run(ctx, "pods with a new claim", pods)
	add(into, NewBound, n, ran, func(p podTimes) (time.Time, time.Time) { return p.created, p.bound })
	add(into, NewRunning, n, ran, func(p podTimes) (time.Time, time.Time) { return p.created, p.running })
	add(into, BoundRunning, n, ran, func(p podTimes) (time.Time, time.Time) { return p.bound, p.running })
	if err != nil {
		return nil, err
	}
	return b.dropUnbound(ctx, claims, ran)
}

// dropUnbound deletes the claims of pods that were not scheduled, and returns the others.
func (b *Bench) dropUnbound(ctx context.Context, claims []string, ran []podTimes) (bound []string, err error) {
	used := map[string]bool{}
	for _, pod := range ran {
		used[pod.claim] = true
	}
	for _, name := range claims {
		if used[name] {
			bound = append(bound, name)
		} else if err := b.Client.CoreV1().PersistentVolumeClaims(b.namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return nil, fmt.Errorf("deleting claim %s: %w", name, err)
		}
	}
	return bound, nil
}

func (b *Bench) makeClaims(ctx context.Context, names []string, done func(*claimSeen) bool) error {
	return b.step(ctx, "claims", "PersistentVolumeClaim", names, func(ctx context.Context, name string) error {
		_, err := b.Client.CoreV1().PersistentVolumeClaims(b.namespace).Create(ctx, b.claim(name), metav1.CreateOptions{})
		return err
	}, func(name string) state { return doneIf(done(b.seen.claim(name))) })
}

// reuse runs a pod for each claim, whose volume exists.
func (b *Bench) reuse(ctx context.Context, claims []string, n int, into times) error {
	var pods []podPlan
	for i, name := range b.names("bound", len(claims)) {
		pods = append(pods, podPlan{name: name, claim: claims[i], node: b.Node})
	}
	pause(ctx, claimLead)
	ran, err := b.run(ctx, "pods with a bound claim", pods)
	add(into, BoundPod, n, ran, func(p podTimes) (time.Time, time.Time) { return p.created, p.running })
	return err
}

// deleteClaims deletes the claims and waits until their volumes are gone.
func (b *Bench) deleteClaims(ctx context.Context, claims []string, n int, into times) error {
	if err := b.release(ctx); err != nil {
		return err
	}
	err := b.step(ctx, "volumes of deleted claims", "PersistentVolumeClaim", claims, func(ctx context.Context, name string) error {
		requested := time.Now()
		err := b.Client.CoreV1().PersistentVolumeClaims(b.namespace).Delete(ctx, name, metav1.DeleteOptions{})
		if err == nil { // the event about it may come after that about the volume
			b.seen.update(func() { setOnce(&b.seen.claim(name).deleted, requested) })
		}
		return err
	}, func(name string) state { return doneIf(!b.seen.claim(name).volumeGone.IsZero()) })
	var gone []claimSeen
	b.seen.read(func() {
		for _, name := range claims {
			if c := b.seen.claim(name); !c.volumeGone.IsZero() {
				gone = append(gone, *c)
			}
		}
	})
	add(into, VolumeGone, n, gone, func(c claimSeen) (time.Time, time.Time) { return c.deleted, c.volumeGone })
	return err
}

// deleteWithClaim is a patch that makes a volume be deleted with its claim.
var deleteWithClaim = fmt.Appendf(nil, `{"spec": {"persistentVolumeReclaimPolicy": %q}}`, core.PersistentVolumeReclaimDelete)

// release patches the volumes of this run that the class would retain.
func (b *Bench) release(ctx context.Context) error {
	var retained []string
	b.seen.read(func() {
		for name, v := range b.seen.volumes {
			if v.retained {
				retained = append(retained, name)
			}
		}
	})
	return atOnce(retained, func(name string) error {
		_, err := b.Client.CoreV1().PersistentVolumes().Patch(ctx, name, types.MergePatchType, deleteWithClaim, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}
