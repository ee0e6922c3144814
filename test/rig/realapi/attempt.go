package realapi

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Attempt is one request, which is made as if: nothing of it stays.
type Attempt struct {
	Verb string // create, apply, patch, update, delete or deletecollection
	What string // RESOURCE or RESOURCE/SUBRESOURCE, of the core or with its group and version: v1/pods, holdfast.dev/v1beta1/volumes/status
	In   string // the namespace; "" of what has none
	Name string // of a collection: of the one object that is meant of it; "" of all
	Body string // as JSON: the object, or of a patch the fields that are another
}

func (a Attempt) String() string { return fmt.Sprintf("%s %s %s %s", a.Verb, a.What, a.Name, a.Body) }

var asIf = []string{metav1.DryRunAll}

// Try makes the request. An update writes the object as it is.
func (a Attempt) Try(ctx context.Context, config *rest.Config) error {
	parts := strings.Split(a.What, "/")
	at := schema.GroupVersionResource{Version: "v1"}
	if strings.Contains(parts[0], ".") {
		at.Group, parts = parts[0], parts[1:]
	}
	at.Version, at.Resource = parts[0], parts[1]
	sub := parts[2:]
	kind := dynamic.NewForConfigOrDie(config).Resource(at)
	objects := dynamic.ResourceInterface(kind)
	if a.In != "" {
		objects = kind.Namespace(a.In)
	}
	o := &unstructured.Unstructured{Object: map[string]any{}}
	if a.Body != "" && a.Verb != "patch" {
		if err := json.Unmarshal([]byte(a.Body), &o.Object); err != nil {
			return err
		}
		o.SetName(a.Name)
	}
	var err error
	switch a.Verb {
	case "create":
		_, err = objects.Create(ctx, o, metav1.CreateOptions{DryRun: asIf}, sub...)
	case "apply":
		_, err = objects.Apply(ctx, a.Name, o, metav1.ApplyOptions{DryRun: asIf, FieldManager: "test", Force: true}, sub...)
	case "patch":
		_, err = objects.Patch(ctx, a.Name, types.MergePatchType, []byte(a.Body), metav1.PatchOptions{DryRun: asIf}, sub...)
	case "update":
		if o, err = objects.Get(ctx, a.Name, metav1.GetOptions{}); err == nil {
			_, err = objects.Update(ctx, o, metav1.UpdateOptions{DryRun: asIf}, sub...)
		}
	case "delete":
		err = objects.Delete(ctx, a.Name, metav1.DeleteOptions{DryRun: asIf}, sub...)
	case "deletecollection":
		var one metav1.ListOptions
		if a.Name != "" {
			one.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, a.Name).String()
		}
		err = objects.DeleteCollection(ctx, metav1.DeleteOptions{DryRun: asIf}, one)
	default:
		err = fmt.Errorf("verb %q", a.Verb)
	}
	return err
}

// RefusedBy says whether an error is the refusal of a policy.
func RefusedBy(policy string, err error) bool {
	return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+policy+"'")
}

// AllRefused fails unless the policy of an account, or that of the requests, refuses each request.
func AllRefused(t testing.TB, ofAccount string, as *rest.Config, byPolicy map[string][]Attempt) {
	t.Helper()
	for policy, attempts := range byPolicy {
		for _, a := range attempts {
			if err := a.Try(t.Context(), as); !RefusedBy(policy, err) && !RefusedBy(ofAccount, err) {
				t.Errorf("%s, with all rights: %s: %v", policy, a, err)
			}
		}
	}
}
