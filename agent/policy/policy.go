// Package policy checks whether the API server enforces the rules that Holdfast cannot enforce on a node: a device
// plugin does not learn for which pod it allocates, and an object does not show which account has written its spec.
package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	admission "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/holdfast-storage/holdfast/kube"
)

// rule is what a ValidatingAdmissionPolicy must cover, and what is refused without it.
type rule struct {
	name      string // of the policy and of its binding
	resources []string
	operation admission.OperationType
	otherwise string // what is not done without it
	// unknown refuses also where the API server has no such policies, as before Kubernetes 1.30.
	unknown bool
}

var (
	loopSets = rule{
		name: "holdfast-loop-sets", resources: []string{"pods"}, operation: admission.Create,
		otherwise: "no loop devices are allocated", unknown: true,
	}
	deletions = rule{
		name: "holdfast-deletion", resources: []string{"volumes", "snapshots"}, operation: admission.Update,
		otherwise: "no data is deleted",
	}
	nodeRequests = rule{
		name: "holdfast-node-requests", resources: []string{"storagenodes"}, operation: admission.Update,
		otherwise: "no data is deleted",
	}
)

// Guard refuses until a policy and its binding are known to be in place.
type Guard struct {
	rule
	factory  informers.SharedInformerFactory
	policies cache.SharedIndexInformer
	bindings cache.SharedIndexInformer
	log      *slog.Logger
	verdict  Verdict
	late     atomic.Pointer[error] // why they could not be read at first
}

// ErrNotYet means that the policy was not read yet.
var ErrNotYet = errors.New("it is not known yet whether its ValidatingAdmissionPolicy is in place")

// LoopSets guards which pods get loop devices.
func LoopSets(client kubernetes.Interface, log *slog.Logger) *Guard {
	return follow(loopSets, client, log)
}

// Requests guard who may request the deletion of data. With an API server that knows no policies this is not guarded,
// and the StorageCluster says so.
func Requests(client kubernetes.Interface, log *slog.Logger) Guards {
	return Guards{follow(deletions, client, log), follow(nodeRequests, client, log)}
}

func follow(what rule, client kubernetes.Interface, log *slog.Logger) *Guard {
	g := &Guard{rule: what, log: log, factory: informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, what.name).String()
	}))}
	kinds := g.factory.Admissionregistration().V1()
	g.policies, g.bindings = kinds.ValidatingAdmissionPolicies().Informer(), kinds.ValidatingAdmissionPolicyBindings().Informer()
	g.verdict.Set(g.because(ErrNotYet))
	return g
}

// because adds what is refused.
func (g *Guard) because(why error) error { return fmt.Errorf("%s (%s): %w", g.otherwise, g.name, why) }

// Refusal says why the guard refuses; it returns nil if it does not.
func (g *Guard) Refusal() (changed <-chan struct{}, why error) { return g.verdict.Now() }

// Run follows the policy until ctx ends. It is called once.
func (g *Guard) Run(ctx context.Context) error {
	for _, i := range []cache.SharedIndexInformer{g.policies, g.bindings} {
		if err := i.SetWatchErrorHandlerWithContext(g.failed); err != nil {
			return err
		}
		if _, err := i.AddEventHandler(kube.OnChange(func(any) { g.look() })); err != nil {
			return err
		}
	}
	g.factory.StartWithContext(ctx)
	if cache.WaitForCacheSync(ctx.Done(), g.policies.HasSynced, g.bindings.HasSynced) {
		g.look() // without a policy there is no event
	}
	<-ctx.Done()
	g.factory.Shutdown()
	return nil
}

// failed records why the policy cannot be read. The last known state stays valid: an unreachable API server accepts no
// requests either.
func (g *Guard) failed(ctx context.Context, _ *cache.Reflector, err error) {
	if ctx.Err() != nil {
		return
	}
	g.late.Store(&err)
	g.look()
}

func (g *Guard) look() {
	why := g.why()
	if why != nil {
		why = g.because(why)
	}
	switch changed := g.verdict.Set(why); {
	case changed && why != nil:
		g.log.Warn("refused", "reason", why)
	case changed:
		g.log.Info("the API server enforces a policy that this node relies on", "policy", g.name)
	}
}

var errUnknown = errors.New("the API server knows no ValidatingAdmissionPolicy, as Kubernetes 1.30 and newer do")

func (g *Guard) why() error {
	if !g.policies.HasSynced() || !g.bindings.HasSynced() {
		late := ptr.Deref(g.late.Load(), nil)
		switch {
		case apierrors.IsNotFound(late) && g.unknown:
			return errUnknown
		case apierrors.IsNotFound(late):
			return nil
		case late != nil:
			return fmt.Errorf("%w: %w", ErrNotYet, late)
		}
		return ErrNotYet
	}
	return g.check(kube.InStore[*admission.ValidatingAdmissionPolicy](g.policies.GetStore(), g.name),
		kube.InStore[*admission.ValidatingAdmissionPolicyBinding](g.bindings.GetStore(), g.name))
}

// check says what is missing for anything to be refused; either may be nil.
func (r *rule) check(policy *admission.ValidatingAdmissionPolicy, binding *admission.ValidatingAdmissionPolicyBinding) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%s: the operator makes it; see the StorageCluster", fmt.Sprintf(format, args...))
	}
	switch {
	case policy == nil || policy.DeletionTimestamp != nil:
		return refuse("there is no ValidatingAdmissionPolicy %s", r.name)
	case policy.Spec.FailurePolicy != nil && *policy.Spec.FailurePolicy != admission.Fail:
		return refuse("the ValidatingAdmissionPolicy %s has failurePolicy %s, and must have %s", r.name, *policy.Spec.FailurePolicy, admission.Fail)
	case policy.Spec.MatchConstraints == nil || !slices.ContainsFunc(policy.Spec.MatchConstraints.ResourceRules, r.covered) || len(policy.Spec.Validations) == 0:
		return refuse("the ValidatingAdmissionPolicy %s does not match the resource that it is for", r.name)
	case binding == nil || binding.DeletionTimestamp != nil:
		return refuse("there is no ValidatingAdmissionPolicyBinding %s", r.name)
	case binding.Spec.PolicyName != r.name || !slices.Contains(binding.Spec.ValidationActions, admission.Deny) || binding.Spec.MatchResources != nil:
		return refuse("the ValidatingAdmissionPolicyBinding %s does not deny in all namespaces what the policy of that name refuses", r.name)
	}
	return nil
}

// covered says whether a rule of a policy covers everything that it must.
func (r *rule) covered(is admission.NamedRuleWithOperations) bool {
	return slices.Contains(is.Operations, r.operation) && len(is.ResourceNames) == 0 &&
		!slices.ContainsFunc(r.resources, func(resource string) bool { return !slices.Contains(is.Resources, resource) })
}

// Guards refuse if one of them does.
type Guards []*Guard

// Refusal returns the first refusal, or nil.
func (all Guards) Refusal() error {
	for _, g := range all {
		if _, why := g.Refusal(); why != nil {
			return why
		}
	}
	return nil
}

// Run follows all policies until ctx ends.
func (all Guards) Run(ctx context.Context) error {
	running, ctx := errgroup.WithContext(ctx)
	for _, g := range all {
		running.Go(func() error { return g.Run(ctx) })
	}
	return running.Wait()
}
