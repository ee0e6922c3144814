// Package lending knows whether the API server keeps loop devices from pods that are not to have them. Nothing of a node
// could: a device plugin is not told for which pod it is asked.
package lending

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	admission "k8s.io/api/admissionregistration/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-storage/holdfast/agent/devices"
)

// Policy is the name of the ValidatingAdmissionPolicy and of its binding.
const Policy = "holdfast-loop-sets"

// Guard refuses as long as the policy and its binding are not in place, or not known to be.
type Guard struct {
	factory  informers.SharedInformerFactory
	policies cache.SharedIndexInformer
	bindings cache.SharedIndexInformer
	log      *slog.Logger
	verdict  devices.Verdict

	mu   sync.Mutex
	late error // why they could not be read at the beginning
}

var errNotYet = errors.New("whether the ValidatingAdmissionPolicy " + Policy + " is in place is not known yet, so no loop devices are lent")

// New makes a Guard that asks an API server.
func New(client kubernetes.Interface, log *slog.Logger) *Guard {
	g := &Guard{log: log, factory: informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, Policy).String()
	}))}
	kinds := g.factory.Admissionregistration().V1()
	g.policies, g.bindings = kinds.ValidatingAdmissionPolicies().Informer(), kinds.ValidatingAdmissionPolicyBindings().Informer()
	g.verdict.Set(errNotYet)
	return g
}

// Refusal says why nothing may be lent, nil if it may.
func (g *Guard) Refusal() (changed <-chan struct{}, why error) { return g.verdict.Now() }

// Run follows the policy until ctx ends. It is called once.
func (g *Guard) Run(ctx context.Context) error {
	look := func(any) { g.look() }
	for _, i := range []cache.SharedIndexInformer{g.policies, g.bindings} {
		if err := i.SetWatchErrorHandlerWithContext(g.failed); err != nil {
			return err
		}
		if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, o any) { look(o) }, DeleteFunc: look}); err != nil {
			return err
		}
	}
	g.factory.StartWithContext(ctx)
	if cache.WaitForCacheSync(ctx.Done(), g.policies.HasSynced, g.bindings.HasSynced) {
		g.look() // there may be none, of which no event tells
	}
	<-ctx.Done()
	g.factory.Shutdown()
	return nil
}

// failed remembers why nothing is known. What was known once stays: without the API server no pod comes either.
func (g *Guard) failed(ctx context.Context, _ *cache.Reflector, err error) {
	if ctx.Err() != nil {
		return
	}
	g.mu.Lock()
	g.late = err
	g.mu.Unlock()
	g.look()
}

func (g *Guard) look() {
	if why := g.why(); g.verdict.Set(why) {
		if why != nil {
			g.log.Warn("no loop devices are lent", "reason", why)
		} else {
			g.log.Info("loop devices may be lent: the API server keeps them from pods that are not to have them", "policy", Policy)
		}
	}
}

func (g *Guard) why() error {
	if !g.policies.HasSynced() || !g.bindings.HasSynced() {
		g.mu.Lock()
		defer g.mu.Unlock()
		switch {
		case apierrors.IsNotFound(g.late):
			return errors.New("the API server knows no ValidatingAdmissionPolicy, as Kubernetes 1.30 and newer do, so it cannot keep loop devices from pods that are not to have them, and none are lent")
		case g.late != nil:
			return fmt.Errorf("%w: %w", errNotYet, g.late)
		}
		return errNotYet
	}
	policy, _ := one[admission.ValidatingAdmissionPolicy](g.policies)
	binding, _ := one[admission.ValidatingAdmissionPolicyBinding](g.bindings)
	return check(policy, binding)
}

func one[T any](i cache.SharedIndexInformer) (*T, bool) {
	found, _, _ := i.GetIndexer().GetByKey(Policy) // this index has no errors
	o, is := found.(*T)
	return o, is
}

// check says what is missing for pods to be refused; either may be nil.
func check(policy *admission.ValidatingAdmissionPolicy, binding *admission.ValidatingAdmissionPolicyBinding) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%s, so no loop devices are lent: the operator makes it; see the StorageCluster", fmt.Sprintf(format, args...))
	}
	switch {
	case policy == nil || policy.DeletionTimestamp != nil:
		return refuse("there is no ValidatingAdmissionPolicy %s", Policy)
	case policy.Spec.FailurePolicy != nil && *policy.Spec.FailurePolicy != admission.Fail:
		return refuse("the ValidatingAdmissionPolicy %s has failurePolicy %s, and must have %s", Policy, *policy.Spec.FailurePolicy, admission.Fail)
	case policy.Spec.MatchConstraints == nil || !slices.ContainsFunc(policy.Spec.MatchConstraints.ResourceRules, ofNewPods) || len(policy.Spec.Validations) == 0:
		return refuse("the ValidatingAdmissionPolicy %s says nothing of new pods", Policy)
	case binding == nil || binding.DeletionTimestamp != nil:
		return refuse("there is no ValidatingAdmissionPolicyBinding %s", Policy)
	case binding.Spec.PolicyName != Policy || !slices.Contains(binding.Spec.ValidationActions, admission.Deny) || binding.Spec.MatchResources != nil:
		return refuse("the ValidatingAdmissionPolicyBinding %s does not deny what the policy of that name says, everywhere", Policy)
	}
	return nil
}

func ofNewPods(r admission.NamedRuleWithOperations) bool {
	return slices.Contains(r.Resources, string(core.ResourcePods)) && slices.Contains(r.Operations, admission.Create) && len(r.ResourceNames) == 0
}
