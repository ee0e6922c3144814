package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podPlan is a pod to create. If it has a claim, it counts as running only when the claim is bound. Without a node, the
// scheduler chooses one.
type podPlan struct{ name, claim, node string }

// podTimes are the times of a pod that ran, and of its claim.
type podTimes struct {
	podPlan
	created, bound, running time.Time
}

// run creates pods, returns the times of those that ran, and deletes all. If not all fit into the cluster at once, it
// continues with those that did, and adds a note.
func (b *Bench) run(ctx context.Context, what string, plans []podPlan) ([]podTimes, error) {
	pods := b.Client.CoreV1().Pods(b.namespace)
	names, plan := make([]string, len(plans)), map[string]podPlan{}
	for i, p := range plans {
		names[i], plan[p.name] = p.name, p
	}
	err := b.step(ctx, what, "Pod", names, func(ctx context.Context, name string) error {
		_, err := pods.Create(ctx, b.pod(name, plan[name].claim, plan[name].node), metav1.CreateOptions{})
		return err
	}, func(name string) state { return b.seen.running(plan[name]) })
	ran := b.ran(what, plans)
	if err != nil {
		return ran, err
	}
	return ran, b.step(ctx, "the end of "+what, "Pod", names, func(ctx context.Context, name string) error {
		err := pods.Delete(ctx, name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}, func(name string) state { return doneIf(!b.seen.pod(name).gone.IsZero()) })
}

// ran returns the times of the pods that ran, and notes how many were not scheduled.
func (b *Bench) ran(what string, plans []podPlan) (ran []podTimes) {
	without, message := 0, ""
	b.seen.read(func() {
		for _, p := range plans {
			pod := b.seen.pod(p.name)
			switch b.seen.running(p) {
			case finished:
				ran = append(ran, podTimes{p, pod.created, b.seen.claim(p.claim).bound, pod.running})
			case full:
				without, message = without+1, pod.unplaced
			}
		}
	})
	if without > 0 {
		b.notes = append(b.notes, fmt.Sprintf("%d of %d %s found no room beside the others and are left out: %s", without, len(plans), what, message))
	}
	return ran
}

// running returns the state of a pod that is to be Running.
func (s *seen) running(plan podPlan) state {
	pod := s.pod(plan.name)
	switch {
	case !pod.running.IsZero():
		// The pod's watch may be ahead of the claim's.
		return doneIf(plan.claim == "" || !s.claim(plan.claim).bound.IsZero())
	case pod.ended != "":
		return failed
	case isFull(pod.unplaced):
		return full
	}
	return pending
}

// isFull returns whether the scheduler's message says that nodes have too many pods, or too many volumes of the driver.
func isFull(message string) bool {
	return strings.Contains(message, "Too many pods") || strings.Contains(message, "exceed max volume count")
}
