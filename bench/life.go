package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// life takes n volumes through all steps, each step with all of them at once. Every life includes pods without claims,
// so that a change of the cluster's speed affects both.
func (b *Bench) life(ctx context.Context, n int, into times) error {
	b.lives++
	ran, err := b.use(ctx, "plain", "pods without a claim", make([]plan, n))
	b.add(into, PlainPod, n, ran, podCreated, podRunning)
	if err != nil {
		return err
	}
	claims, err := b.provide(ctx, n, into)
	if err != nil {
		return err
	}
	ran, err = b.use(ctx, "bound", "pods with a bound claim", claims)
	b.add(into, BoundPod, n, ran, podCreated, podRunning)
	if err != nil {
		return err
	}
	return b.deleteClaims(ctx, claims, n, into)
}

func (b *Bench) name(of string, i int) string { return fmt.Sprintf("%s-%d-%d", of, b.lives, i+1) }

// provide returns claims that are bound; by pods, if the class waits for them.
func (b *Bench) provide(ctx context.Context, n int, into times) ([]plan, error) {
	until, waits := claimBound, b.class.BindingMode == storage.VolumeBindingWaitForFirstConsumer
	if waits {
		until = claimCreated
	}
	claims := make([]plan, n)
	for i := range claims {
		claims[i].claim = b.name("claim", i)
	}
	api := b.Client.CoreV1().PersistentVolumeClaims(b.namespace)
	err := b.step(ctx, "claims", claims, until, func(ctx context.Context, p plan) error {
		_, err := api.Create(ctx, b.claim(p.claim), metav1.CreateOptions{})
		return err
	})
	if !waits {
		b.add(into, ClaimBound, n, claims, claimCreated, claimBound)
	}
	if err != nil || !waits {
		return claims, err
	}
	ran, err := b.use(ctx, "new", "pods with a new claim", claims)
	b.add(into, NewBound, n, ran, podCreated, claimBound)
	b.add(into, NewRunning, n, ran, podCreated, podRunning)
	b.add(into, BoundRunning, n, ran, claimBound, podRunning)
	if err != nil {
		return nil, err
	}
	for _, p := range claims {
		if slices.ContainsFunc(ran, func(r plan) bool { return r.claim == p.claim }) {
			continue
		}
		// Its pod was not scheduled.
		if err := api.Delete(ctx, p.claim, metav1.DeleteOptions{}); err != nil {
			return nil, fmt.Errorf("deleting claim %s: %w", p.claim, err)
		}
	}
	return ran, nil
}

// claimLead is the delay between a claim and its pod. The progress of the scheduler's watches is not visible: if it saw
// the pod before the claim, it would retry the pod later, which must not be measured.
const claimLead = 250 * time.Millisecond

func (b *Bench) use(ctx context.Context, of, what string, claims []plan) (ran []plan, err error) {
	select {
	case <-ctx.Done():
	case <-time.After(claimLead):
	}
	pods := slices.Clone(claims)
	for i := range pods {
		pods[i].pod, pods[i].node = b.name(of, i), b.Node
	}
	return b.run(ctx, what, pods)
}

// run creates pods, returns those that ran, and deletes all. If not all fit into the cluster at once, it continues with
// those that did, and adds a note.
func (b *Bench) run(ctx context.Context, what string, plans []plan) (ran []plan, err error) {
	pods := b.Client.CoreV1().Pods(b.namespace)
	err = b.step(ctx, what, plans, podRunning, func(ctx context.Context, p plan) error {
		_, err := pods.Create(ctx, b.pod(p), metav1.CreateOptions{})
		return err
	})
	without, message := 0, ""
	b.seen.read(func() {
		for _, p := range plans {
			switch b.seen.state(p, podRunning) {
			case finished:
				ran = append(ran, p)
			case full:
				without, message = without+1, b.seen.pods[p.pod].unplaced
			}
		}
	})
	if without > 0 {
		b.notes = append(b.notes, fmt.Sprintf("%d of %d %s found no room beside the others and are left out: %s", without, len(plans), what, message))
	}
	if err != nil {
		return ran, err
	}
	return ran, b.step(ctx, "the end of "+what, plans, podGone, func(ctx context.Context, p plan) error {
		return unlessGone(pods.Delete(ctx, p.pod, metav1.DeleteOptions{}))
	})
}

// deleteClaims deletes the claims and waits until their volumes are gone.
func (b *Bench) deleteClaims(ctx context.Context, claims []plan, n int, into times) error {
	if err := b.release(ctx); err != nil {
		return err
	}
	err := b.step(ctx, "volumes of deleted claims", claims, volumeGone, func(ctx context.Context, p plan) error {
		requested := time.Now()
		err := b.Client.CoreV1().PersistentVolumeClaims(b.namespace).Delete(ctx, p.claim, metav1.DeleteOptions{})
		if err == nil { // the event about it may come after that about the volume
			b.seen.update(func() { b.seen.mark(claimDeleted, p.claim, requested) })
		}
		return err
	})
	b.add(into, VolumeGone, n, claims, claimDeleted, volumeGone)
	return err
}

// deleteWithClaim is a patch that makes a volume be deleted with its claim.
var deleteWithClaim = fmt.Appendf(nil, `{"spec": {"persistentVolumeReclaimPolicy": %q}}`, core.PersistentVolumeReclaimDelete)

// release patches the volumes of this run that the class would retain.
func (b *Bench) release(ctx context.Context) error {
	var retained []string
	b.seen.read(func() {
		for name, outlives := range b.seen.volumes {
			if outlives {
				retained = append(retained, name)
			}
		}
	})
	return atOnce(retained, func(name string) (string, error) {
		_, err := b.Client.CoreV1().PersistentVolumes().Patch(ctx, name, types.MergePatchType, deleteWithClaim, metav1.PatchOptions{})
		return name, unlessGone(err)
	})
}
