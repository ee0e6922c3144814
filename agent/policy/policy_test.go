package policy

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// installed are the policy of a rule and its binding, as the operator makes them.
func installed(t *testing.T, r rule) (*admission.ValidatingAdmissionPolicy, *admission.ValidatingAdmissionPolicyBinding) {
	t.Helper()
	var objects []*unstructured.Unstructured
	for _, file := range []string{deploy.LoopSetPolicies, deploy.Policies} {
		all := deploy.Objects(file)
		objects = append(objects, slices.DeleteFunc(all, func(o *unstructured.Unstructured) bool { return o.GetName() != r.name })...)
	}
	if len(objects) != 2 {
		t.Fatalf("of %s there are %d objects", r.name, len(objects))
	}
	policy, binding := &admission.ValidatingAdmissionPolicy{}, &admission.ValidatingAdmissionPolicyBinding{}
	for i, typed := range []any{policy, binding} {
		check.OK(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(objects[i].Object, typed, true))
	}
	return policy, binding
}

func TestGuard_OnlyAPolicyThatRefusesPodsCounts(t *testing.T) {
	type both struct {
		*admission.ValidatingAdmissionPolicy
		*admission.ValidatingAdmissionPolicyBinding
	}
	leaving := metav1.Now()
	for name, change := range map[string]func(*both){
		"as it is made":       func(*both) {},
		"no policy":           func(b *both) { b.ValidatingAdmissionPolicy = nil },
		"a policy that goes":  func(b *both) { b.ValidatingAdmissionPolicy.DeletionTimestamp = &leaving },
		"one that fails open": func(b *both) { b.ValidatingAdmissionPolicy.Spec.FailurePolicy = new(admission.Ignore) },
		"one of other things": func(b *both) {
			b.ValidatingAdmissionPolicy.Spec.MatchConstraints.ResourceRules[0].Resources = []string{"services"}
		},
		"one of another operation": func(b *both) {
			b.ValidatingAdmissionPolicy.Spec.MatchConstraints.ResourceRules[0].Operations = []admission.OperationType{admission.Connect}
		},
		"one of one object": func(b *both) {
			b.ValidatingAdmissionPolicy.Spec.MatchConstraints.ResourceRules[0].ResourceNames = []string{"one"}
		},
		"one that asks nothing": func(b *both) { b.ValidatingAdmissionPolicy.Spec.Validations = nil },
		"no binding":            func(b *both) { b.ValidatingAdmissionPolicyBinding = nil },
		"a binding that goes":   func(b *both) { b.ValidatingAdmissionPolicyBinding.DeletionTimestamp = &leaving },
		"a binding that warns": func(b *both) {
			b.ValidatingAdmissionPolicyBinding.Spec.ValidationActions = []admission.ValidationAction{admission.Warn}
		},
		"a binding of another":     func(b *both) { b.ValidatingAdmissionPolicyBinding.Spec.PolicyName = "other" },
		"a binding of some places": func(b *both) { b.ValidatingAdmissionPolicyBinding.Spec.MatchResources = &admission.MatchResources{} },
	} {
		for _, r := range []rule{loopSets, deletions, nodeRequests} {
			b := &both{}
			b.ValidatingAdmissionPolicy, b.ValidatingAdmissionPolicyBinding = installed(t, r)
			change(b)
			if err := r.check(b.ValidatingAdmissionPolicy, b.ValidatingAdmissionPolicyBinding); (err == nil) != (name == "as it is made") {
				t.Errorf("%s, %s: %v", r.name, name, err)
			}
		}
	}
}

// running has a Guard follow its policy until the test ends.
func running(t *testing.T, g *Guard) *Guard {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { check.Report(t, g.Run(ctx)) })
	t.Cleanup(func() { cancel(); done.Wait() })
	return g
}

// until waits for a refusal that contains a text, or for none.
func until(t *testing.T, g *Guard, text string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		changed, why := g.Refusal()
		if (why == nil) == (text == "") && (why == nil || strings.Contains(why.Error(), text)) {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("it says %v, want %q", why, text)
		}
	}
}

func TestGuard_FollowsThePolicyAndItsBinding(t *testing.T) {
	client := fake.NewClientset()
	policy, binding := installed(t, loopSets)
	g := LoopSets(client, logger(t))
	if _, why := g.Refusal(); !errors.Is(why, ErrNotYet) {
		t.Fatalf("before it has looked it says %v", why)
	}
	running(t, g)
	until(t, g, "no ValidatingAdmissionPolicy holdfast-loop-sets")
	kinds := client.AdmissionregistrationV1()
	check.Got(kinds.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}))(t)
	until(t, g, "no ValidatingAdmissionPolicyBinding")
	check.Got(kinds.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}))(t)
	until(t, g, "")
	policy.Spec.FailurePolicy = new(admission.Ignore)
	check.Got(kinds.ValidatingAdmissionPolicies().Update(t.Context(), policy, metav1.UpdateOptions{}))(t)
	until(t, g, "failurePolicy Ignore")
	policy.Spec.FailurePolicy = new(admission.Fail)
	check.Got(kinds.ValidatingAdmissionPolicies().Update(t.Context(), policy, metav1.UpdateOptions{}))(t)
	until(t, g, "")
	check.OK(t, kinds.ValidatingAdmissionPolicyBindings().Delete(t.Context(), loopSets.name, metav1.DeleteOptions{}))
	until(t, g, "no ValidatingAdmissionPolicyBinding")
}

func TestGuard_WithoutPolicySupportDevicesAreNotLentAndRequestsAreObeyed(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: a.GetResource().Resource}, "")
	})
	until(t, running(t, LoopSets(client, logger(t))), "Kubernetes 1.30")
	all := Requests(client, logger(t))
	if why := all.Refusal(); !errors.Is(why, ErrNotYet) {
		t.Errorf("before anything is known it says %v", why)
	}
	for _, g := range all {
		until(t, running(t, g), "")
	}
	check.Report(t, all.Refusal())
}

func TestGuard_WithoutRightToReadThePolicyDoesNothingAndReportsTheReason(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: a.GetResource().Resource}, "", errors.New("no role"))
	})
	until(t, running(t, LoopSets(client, logger(t))), "no role")
	for _, g := range Requests(client, logger(t)) {
		until(t, running(t, g), "no role")
	}
}

func TestRequests_AreObeyedWhileBothPoliciesExist(t *testing.T) {
	client := fake.NewClientset()
	kinds := client.AdmissionregistrationV1()
	all := Requests(client, logger(t))
	for _, g := range all {
		running(t, g)
		until(t, g, "no ValidatingAdmissionPolicy "+g.name)
		policy, binding := installed(t, g.rule)
		check.Got(kinds.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}))(t)
		if why := all.Refusal(); why == nil {
			t.Error("nothing is refused without ", g.name)
		}
		check.Got(kinds.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}))(t)
		until(t, g, "")
	}
	check.Report(t, all.Refusal())
}

func logger(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }
