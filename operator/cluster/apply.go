package cluster

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/operator/rollout"
)

// maintain applies all objects of a StorageCluster and returns what it observed then. With a spec that cannot be rendered,
// the objects of the last good one are kept.
func (r *Controller) maintain(ctx context.Context, c *v1beta1.StorageCluster) (*situation, time.Duration, error) {
	r.bringSnapshots(ctx, c)
	before := r.observe(c)
	c = before.cluster // changes that would hide volumes are left out
	objects, invalid := r.render(before)
	if invalid == errNotYet { //nolint:errorlint // never wrapped
		return nil, 0, nil
	}
	var err error
	if invalid == nil {
		if invalid, err = r.Owned.Refusal(ctx, withValuesOfUsers(objects)); err != nil {
			return nil, 0, err
		}
	}
	if invalid == nil {
		r.good[c.Name] = objects
	} else {
		objects = r.good[c.Name]
	}
	now, again, err := r.withoutOwn(ctx, objects)
	if err != nil {
		return nil, 0, err
	}
	out := r.apply(ctx, c, now)
	r.ownSeen = r.ownSeen || r.hasOwn() || slices.ContainsFunc(out.Changed, isController)
	out = out.And(r.mark(ctx, c))
	again, failures := kube.Sooner(again, out.Again), out.Failures
	s := r.observe(c)
	s.hidden, s.refused = before.hidden, before.refused
	if s.invalid == nil {
		s.invalid = invalid
	}
	if s.invalid == nil {
		failures = append(failures, r.prune(ctx, c, s.keeps(objects, failures))...)
	}
	s.failures = slices.DeleteFunc(slices.Clone(failures), r.isLeaving)
	p := s.plan(len(failures) > 0)
	if p.replacePods {
		if s.rollout, err = rollout.Step(ctx, r.Kubernetes, s.world); err != nil {
			return nil, 0, err
		}
	}
	if err := r.releaseAttached(ctx, p); err != nil {
		return nil, 0, err
	}
	if s.invalid == nil { // else it is not known which pools there should be
		if err := r.forgetSites(ctx, s); err != nil {
			r.Log.Warn("the StorageNode of a pool that is gone could not be deleted; retrying", "error", err)
			again = kube.Sooner(again, kube.RetryRefused)
		}
	}
	if err := r.labelNodes(ctx, p.labels); err != nil {
		r.Log.Warn("the labels of nodes could not be written; retrying", "error", err)
		again = kube.Sooner(again, kube.RetryRefused)
	}
	return s, kube.Sooner(kube.Sooner(again, p.again), s.rolloutAgain()), ctx.Err()
}

// withValuesOfUsers returns the objects that have values of the spec which only the API server checks, such as tolerations.
func withValuesOfUsers(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool {
		return !slices.Contains([]string{"DaemonSet", "Deployment", "StatefulSet", "Service", "Ingress", "PodMonitor"}, o.GetKind())
	})
}

// apply applies the policies first. While one of them fails, no account gets a right that it does not have yet.
func (r *Controller) apply(ctx context.Context, c *v1beta1.StorageCluster, objects []*unstructured.Unstructured) apply.Outcome {
	spared := apply.Spared{}
	for _, ref := range controllerRefs(r.Namespace) {
		spared[ref] = func(live *unstructured.Unstructured) bool { return r.spares(c, live) }
	}
	var policies, rest []*unstructured.Unstructured
	for _, o := range objects {
		if o.GroupVersionKind().Group == admission.GroupName {
			policies = append(policies, o)
		} else {
			rest = append(rest, o)
		}
	}
	out := r.Owned.ApplySparing(ctx, policies, spared)
	if len(out.Failures) > 0 {
		rest = slices.DeleteFunc(rest, func(o *unstructured.Unstructured) bool {
			return o.GroupVersionKind().Group == rbac.Group && strings.HasSuffix(o.GetKind(), "Binding")
		})
	}
	return out.And(r.Owned.ApplySparing(ctx, rest, spared))
}

// bringSnapshots installs the kinds of snapshots at the start of a process, and when they are missing. A failure only
// affects snapshots.
func (r *Controller) bringSnapshots(ctx context.Context, c *v1beta1.StorageCluster) {
	if r.Snapshots == nil || !render.WithCSI(&c.Spec) || r.Snapshots.Looked() && r.Owned.Has(snapshotClassKind) {
		return
	}
	if err := r.Snapshots.Bring(ctx); err != nil {
		r.Log.Warn("there are no snapshots until their kinds and their controller are installed", "error", err)
	}
}

// leavingLasts is how long the deletion of an object may take before it counts as a failure.
const leavingLasts = 10 * time.Second

// isLeaving says whether an object is only being deleted to be recreated.
func (r *Controller) isLeaving(f apply.Failure) bool {
	if !errors.Is(f, apply.ErrLeaving) {
		return false
	}
	o := r.Owned.Get(f.Ref)
	return o == nil || o.GetDeletionTimestamp() == nil || time.Since(o.GetDeletionTimestamp().Time) < leavingLasts
}

var errNotYet = errors.New("the secrets that the spec names are being read")

// render refuses a spec that would hide volumes, and turns panics into errors: no spec may end the process.
func (r *Controller) render(s *situation) (objects []*unstructured.Unstructured, err error) {
	if s.refused != nil {
		return nil, s.refused
	}
	c := s.cluster
	defer func() {
		if p := recover(); p != nil {
			r.Log.Error("rendering a StorageCluster panicked", "cluster", c.Name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			objects, err = nil, fmt.Errorf("a bug in this program: %v", p)
		}
	}()
	secret, err := r.secret(c)
	if err != nil {
		return nil, err
	}
	in := r.input(c)
	in.Secret = secret
	if in.CephKeys, err = r.keysOf(c); err != nil {
		return nil, err
	}
	objects, err = render.Objects(in)
	if err != nil {
		return nil, err
	}
	return objects, rollout.StampAll(objects)
}

// input returns what the objects of a StorageCluster depend on, except its secret.
func (r *Controller) input(c *v1beta1.StorageCluster) render.Input {
	return render.Input{
		Cluster: c, Namespace: r.Namespace, Has: r.Owned.Has, Snapshots: r.Snapshots != nil && r.Snapshots.Ours(),
		KubeletDir: render.KubeletDir(r.Owned.Get(apply.RefTo("apps", "DaemonSet", r.Namespace, v1beta1.NodeName)), kube.Cached(r.nodes.List)), Served: served(kube.Cached(r.storageNodes.List)), OtherDefault: r.otherDefault(), KeepInline: r.keepsInline(), Release: r.Release,
	}
}

// otherDefault says whether the own class is to leave claims that name none to another. Once it is there it stays what it is: claims
// count on it, and there is a moment without any when the default is changed.
func (r *Controller) otherDefault() (other bool) {
	for _, c := range kube.Cached(r.classes.List) {
		if c.Name == render.OwnClass && c.Provisioner == r.Driver {
			return !isDefault(c)
		}
		other = other || isDefault(c)
	}
	return other
}

func isDefault(c *storage.StorageClass) bool {
	return c.Annotations[render.DefaultClass] == "true" || c.Annotations["storageclass.beta.kubernetes.io/is-default-class"] == "true"
}

func (r *Controller) secret(c *v1beta1.StorageCluster) (map[string][]byte, error) {
	name := kube.SecretName(c, r.Namespace)
	secret, known, refusal := r.secrets.Get(name)
	switch {
	case name.Name == "":
		return nil, nil
	case refusal != nil:
		return nil, fmt.Errorf("spec.secretRef: %w %s cannot be read: %w", render.ErrSecret, name, refusal)
	case !known:
		return nil, errNotYet
	case secret == nil:
		return nil, fmt.Errorf("spec.secretRef: there is no %w %s: create it, or name another", render.ErrSecret, name)
	}
	return secret.Data, nil
}

// prune removes objects that keep does not keep, except the workload of another release that takes over.
func (r *Controller) prune(ctx context.Context, c *v1beta1.StorageCluster, keep func(*unstructured.Unstructured) bool) []apply.Failure {
	return r.Owned.Prune(ctx, func(o *unstructured.Unstructured) bool {
		return keep(o) || isControllerWorkload(o) && r.spares(c, o)
	}).Failures
}

func isControllerWorkload(o *unstructured.Unstructured) bool { return isController(apply.RefOf(o)) }

func isController(ref apply.Ref) bool { return slices.Contains(controllerRefs(ref.Namespace), ref) }
