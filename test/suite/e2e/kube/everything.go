package kube

import (
	"context"
	"errors"
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
	kinds, err := c.kinds()
	if err != nil {
		return nil, err
	}
	var all []Listed
	for _, k := range kinds {
		if outdated[k.Kind] {
			continue
		}
		resource := schema.GroupVersionResource{Group: k.Group, Version: k.Version, Resource: k.Name}
		found, err := c.Dynamic.Resource(resource).List(ctx, metav1.ListOptions{LabelSelector: label})
		if apierrors.IsNotFound(err) {
			continue // its kind is being removed
		}
		if err != nil {
			return nil, err
		}
		for i := range found.Items {
			all = append(all, Listed{&found.Items[i], resource, k.Namespaced})
		}
	}
	slices.SortFunc(all, func(a, b Listed) int { return strings.Compare(a.String(), b.String()) })
	return all, nil
}

// kinds returns all kinds that can be listed; with an error, those that were found.
func (c *Cluster) kinds() (all []metav1.APIResource, err error) {
	lists, err := c.Client.Discovery().ServerPreferredResources() // which repeats what fails
	for _, list := range lists {
		version, failed := schema.ParseGroupVersion(list.GroupVersion)
		err = errors.Join(err, failed)
		for _, kind := range list.APIResources {
			if failed == nil && !strings.Contains(kind.Name, "/") && slices.Contains(kind.Verbs, "list") {
				kind.Group, kind.Version = version.Group, version.Version
				all = append(all, kind)
			}
		}
	}
	return all, err
}
