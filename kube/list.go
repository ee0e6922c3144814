package kube

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
)

// Each visits all objects of a kind in the API server, page by page.
func Each[T any, L runtime.Object](ctx context.Context, list func(context.Context, metav1.ListOptions) (L, error), options metav1.ListOptions, visit func(*T)) error {
	page := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) }
	return pager.New(page).EachListItem(ctx, options, func(o runtime.Object) error {
		visit(any(o).(*T)) // a list of the kind holds nothing else
		return nil
	})
}

// Live reads an object from the API server; nil if it does not exist.
func Live[T any](ctx context.Context, get func(context.Context, string, metav1.GetOptions) (*T, error), name string) (*T, error) {
	o, err := get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, IgnoreNotFound(err)
	}
	return o, nil
}
