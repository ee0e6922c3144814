package operator

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// object is one that the API server has, and where.
type object struct {
	*unstructured.Unstructured
	resource   schema.GroupVersionResource
	namespaced bool
}

func (o object) source(c dynamic.Interface) dynamic.ResourceInterface {
	if o.namespaced {
		return c.Resource(o.resource).Namespace(o.GetNamespace())
	}
	return c.Resource(o.resource)
}

func (o object) String() string {
	name := strings.TrimSuffix(o.resource.Resource+"."+o.resource.Group, ".") + " " + o.GetName()
	if o.namespaced {
		return name + " in " + o.GetNamespace()
	}
	return name
}

// outdated are kinds about which the API server warns; the same is in others.
var outdated = map[string]bool{"ComponentStatus": true, "Endpoints": true}

// everything lists all objects of all resources that can be listed, with a label, in order.
func (a *admin) everything(ctx context.Context, label string) ([]object, error) {
	lists, err := a.Client.Discovery().ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	var all []object
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, resource := range list.APIResources {
			if strings.Contains(resource.Name, "/") || !slices.Contains(resource.Verbs, "list") || outdated[resource.Kind] {
				continue
			}
			found, err := a.Dynamic.Resource(version.WithResource(resource.Name)).List(ctx, metav1.ListOptions{LabelSelector: label})
			if apierrors.IsNotFound(err) {
				continue // its kind is being removed
			}
			if err != nil {
				return nil, err
			}
			for i := range found.Items {
				all = append(all, object{&found.Items[i], version.WithResource(resource.Name), resource.Namespaced})
			}
		}
	}
	slices.SortFunc(all, func(a, b object) int { return strings.Compare(a.String(), b.String()) })
	return all, nil
}

const managed = "app.kubernetes.io/managed-by=holdfast-operator"

// owned returns all that the operator keeps: what has its label and belongs to the StorageCluster itself. Kubernetes
// copies labels to what it makes of them.
func (a *admin) owned() []object {
	a.t.Helper()
	all, err := a.everything(a.t.Context(), managed)
	if err != nil {
		a.t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(o object) bool {
		owner := metav1.GetControllerOf(o)
		return owner == nil || owner.Kind != "StorageCluster"
	})
}

// exists says whether there is an object.
func exists(ctx context.Context, source dynamic.ResourceInterface, name string) (bool, error) {
	_, err := source.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
