package cluster

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/operator/rollout"
)

// maintain makes all that a StorageCluster asks for and says where it stands. With a spec that cannot be rendered, what
// the last good one asked for is kept.
func (r *Controller) maintain(ctx context.Context, c *v1.StorageCluster) (*situation, time.Duration, error) {
	r.bringSnapshots(ctx, c)
	before := r.observe(c)
	c = before.cluster // what would hide volumes is not carried out
	objects, invalid := r.render(c)
	if invalid == errNotYet { //nolint:errorlint // never wrapped
		return nil, 0, nil
	}
	r.mu.Lock()
	if invalid == nil {
		r.good[c.Name] = objects
	} else {
		objects = r.good[c.Name]
	}
	r.mu.Unlock()

	out := r.apply(ctx, c, objects).And(r.Owned.Mark(ctx, marks(c, r.Namespace)))
	again, failures := out.Again, out.Failures
	s := r.observe(c)
	s.hidden = before.hidden
	if s.invalid == nil {
		s.invalid = invalid
	}
	if s.invalid == nil {
		failures = append(failures, r.prune(ctx, s, objects, failures)...)
	}
	s.failures = slices.DeleteFunc(slices.Clone(failures), r.isLeaving)
	if len(failures) > 0 {
		again = kube.Sooner(again, kube.RetryRefused)
	}
	if s.nodeSet != nil && s.nodeSet.DeletionTimestamp == nil {
		var err error
		if s.rollout, err = rollout.Step(ctx, r.Kubernetes, s.world()); err != nil {
			return nil, 0, err
		}
	}
	if s.invalid == nil && len(failures) == 0 {
		if err := r.releaseAttached(ctx, c, s); err != nil {
			return nil, 0, err
		}
	}
	if err := r.labelNodes(ctx); err != nil {
		r.Log.Warn("nodes do not say whether shared volumes can be mounted there; trying again", "error", err)
		again = kube.Sooner(again, kube.RetryRefused)
	}
	if s.rolling() && !s.rollout.Since.IsZero() {
		again = kube.Sooner(again, rollingLasts-s.now.Sub(s.rollout.Since)) // it may count as lost then
	}
	return s, again, ctx.Err()
}

func (r *Controller) apply(ctx context.Context, c *v1.StorageCluster, objects []*unstructured.Unstructured) apply.Outcome {
	spared := apply.Spared{}
	for _, ref := range controllerRefs(r.Namespace) {
		spared[ref] = func(live *unstructured.Unstructured) bool { return r.spares(c, live) }
	}
	return r.Owned.ApplySparing(ctx, objects, spared)
}

// bringSnapshots sees to the kinds of snapshots when a process begins, and when they are missing. Without them all but
// snapshots works.
func (r *Controller) bringSnapshots(ctx context.Context, c *v1.StorageCluster) {
	if r.Snapshots == nil || !render.WithCSI(&c.Spec) || r.Snapshots.Looked() && r.Owned.Has(snapshotClassKind) {
		return
	}
	if err := r.Snapshots.Bring(ctx); err != nil {
		r.Log.Warn("there are no snapshots until somebody brings their kinds and their controller", "error", err)
	}
}

// leavingLasts is how long the deletion of an object may take before it counts as a failure.
const leavingLasts = 10 * time.Second

// isLeaving says whether an object is only on its way to be made anew.
func (r *Controller) isLeaving(f apply.Failure) bool {
	if !errors.Is(f, apply.ErrLeaving) {
		return false
	}
	o := r.Owned.Get(f.Ref)
	return o == nil || o.GetDeletionTimestamp() == nil || time.Since(o.GetDeletionTimestamp().Time) < leavingLasts
}

var errNotYet = fmt.Errorf("the secret of spec.secretRef is being read")

// render never panics: what a spec says must not end the process.
func (r *Controller) render(c *v1.StorageCluster) (objects []*unstructured.Unstructured, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.Log.Error("rendering a StorageCluster panicked", "cluster", c.Name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			objects, err = nil, fmt.Errorf("a fault in this program: %v", p)
		}
	}()
	secret, err := r.secret(c)
	if err != nil {
		return nil, err
	}
	in := r.input(c)
	in.Secret = secret
	objects, err = render.Objects(in)
	if err != nil {
		return nil, err
	}
	return objects, rollout.StampAll(objects)
}

// input is what the objects of a StorageCluster depend on, but for its secret.
func (r *Controller) input(c *v1.StorageCluster) render.Input {
	nodes, _ := r.storageNodes.List(labels.Everything()) // a cache has no errors
	return render.Input{
		Cluster: c, Namespace: r.Namespace, Has: r.Owned.Has, Snapshots: r.Snapshots != nil && r.Snapshots.Ours(),
		Served: served(nodes), KeepInline: r.keepsInline(), Release: r.Release,
	}
}

func (r *Controller) secret(c *v1.StorageCluster) (map[string][]byte, error) {
	name := kube.SecretName(c, r.Namespace)
	secret, known, refusal := r.secrets.Get(name)
	switch {
	case name.Name == "":
		return nil, nil
	case refusal != nil:
		return nil, fmt.Errorf("spec.secretRef: the secret %s cannot be read: %w", name, refusal)
	case !known:
		return nil, errNotYet
	case secret == nil:
		return nil, fmt.Errorf("spec.secretRef: there is no secret %s: make it, or name another", name)
	}
	return secret.Data, nil
}

// prune removes what is not wanted any more. What replaces it must be there: of a kind of which an object could not be
// made none is removed, and the controller's old workload serves until the new one does.
func (r *Controller) prune(ctx context.Context, s *situation, wanted []*unstructured.Unstructured, failures []apply.Failure) []apply.Failure {
	keep := apply.Keeping(wanted)
	return r.Owned.Prune(ctx, func(o *unstructured.Unstructured) bool {
		if keep(o) || slices.ContainsFunc(failures, func(f apply.Failure) bool { return f.Kind == o.GetKind() }) {
			return true
		}
		return isControllerWorkload(o) && (!s.controller().ready || r.spares(s.cluster, o))
	}).Failures
}

func isControllerWorkload(o *unstructured.Unstructured) bool {
	return slices.Contains(controllerRefs(o.GetNamespace()), apply.RefOf(o))
}
