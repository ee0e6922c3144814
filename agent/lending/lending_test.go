package lending

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/holdfast-storage/holdfast/deploy"
)

// installed are the policy and its binding, as the operator makes them.
func installed(t *testing.T) (*admission.ValidatingAdmissionPolicy, *admission.ValidatingAdmissionPolicyBinding) {
	t.Helper()
	objects, err := deploy.Objects(deploy.LoopSetPolicies)
	if err != nil || len(objects) != 2 {
		t.Fatalf("%d objects, %v", len(objects), err)
	}
	policy, binding := &admission.ValidatingAdmissionPolicy{}, &admission.ValidatingAdmissionPolicyBinding{}
	for i, typed := range []any{policy, binding} {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(objects[i].Object, typed, true); err != nil {
			t.Fatal(err)
		}
	}
	return policy, binding
}

func TestOnlyAPolicyThatRefusesPodsIsOne(t *testing.T) {
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
		"one of pods that are": func(b *both) {
			b.ValidatingAdmissionPolicy.Spec.MatchConstraints.ResourceRules[0].Operations = []admission.OperationType{admission.Update}
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
		b := &both{}
		b.ValidatingAdmissionPolicy, b.ValidatingAdmissionPolicyBinding = installed(t)
		change(b)
		if err := check(b.ValidatingAdmissionPolicy, b.ValidatingAdmissionPolicyBinding); (err == nil) != (name == "as it is made") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// follow runs a Guard until the test ends.
func follow(t *testing.T, client *fake.Clientset) *Guard {
	t.Helper()
	g := New(client, slog.New(slog.NewTextHandler(t.Output(), nil)))
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := g.Run(ctx); err != nil {
			t.Error(err)
		}
	})
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

func TestAGuardFollowsThePolicyAndItsBinding(t *testing.T) {
	client := fake.NewClientset()
	policy, binding := installed(t)
	g := New(client, slog.New(slog.DiscardHandler))
	if _, why := g.Refusal(); !errors.Is(why, errNotYet) {
		t.Fatalf("before it has looked it says %v", why)
	}
	g = follow(t, client)
	until(t, g, "no ValidatingAdmissionPolicy holdfast-loop-sets")
	kinds := client.AdmissionregistrationV1()
	if _, err := kinds.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, g, "no ValidatingAdmissionPolicyBinding")
	if _, err := kinds.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, g, "")
	policy.Spec.FailurePolicy = new(admission.Ignore)
	if _, err := kinds.ValidatingAdmissionPolicies().Update(t.Context(), policy, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, g, "failurePolicy Ignore")
	policy.Spec.FailurePolicy = new(admission.Fail)
	if _, err := kinds.ValidatingAdmissionPolicies().Update(t.Context(), policy, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, g, "")
	if err := kinds.ValidatingAdmissionPolicyBindings().Delete(t.Context(), Policy, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, g, "no ValidatingAdmissionPolicyBinding")
}

func TestAnAPIServerWithoutPoliciesHasNothingLent(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: a.GetResource().Resource}, "")
	})
	until(t, follow(t, client), "Kubernetes 1.30")
}

func TestWhoMayNotReadThePolicyLendsNothingAndSaysWhy(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: a.GetResource().Resource}, "", errors.New("no role"))
	})
	until(t, follow(t, client), "no role")
}
