package kube

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

// Listed is an object that the API server has, and where.
type Listed struct {
	*unstructured.Unstructured
	Resource   schema.GroupVersionResource
	Namespaced bool
}

// Source is where the object is read and written.
func (o Listed) Source(c dynamic.Interface) dynamic.ResourceInterface {
	if o.Namespaced {
		return c.Resource(o.Resource).Namespace(o.GetNamespace())
	}
	return c.Resource(o.Resource)
}

func (o Listed) String() string {
	name := strings.TrimSuffix(o.Resource.Resource+"."+o.Resource.Group, ".") + " " + o.GetName()
	if o.Namespaced {
		return name + " in " + o.GetNamespace()
	}
	return name
}

// outdated are kinds about which the API server warns; the same is in others.
var outdated = map[string]bool{"ComponentStatus": true, "Endpoints": true}

// Everything lists all objects of all resources that can be listed, with a label, in order.
func (c *Cluster) Everything(ctx context.Context, label string) ([]Listed, error) {
	lists, err := c.Client.Discovery().ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	var all []Listed
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, resource := range list.APIResources {
			if strings.Contains(resource.Name, "/") || !slices.Contains(resource.Verbs, "list") || outdated[resource.Kind] {
				continue
			}
			found, err := c.Dynamic.Resource(version.WithResource(resource.Name)).List(ctx, metav1.ListOptions{LabelSelector: label})
			if apierrors.IsNotFound(err) {
				continue // its kind is being removed
			}
			if err != nil {
				return nil, err
			}
			for i := range found.Items {
				all = append(all, Listed{&found.Items[i], version.WithResource(resource.Name), resource.Namespaced})
			}
		}
	}
	slices.SortFunc(all, func(a, b Listed) int { return strings.Compare(a.String(), b.String()) })
	return all, nil
}
