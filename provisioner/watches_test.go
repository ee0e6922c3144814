package provisioner

import (
	"context"
	"slices"
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func labelled(name, value string) *core.PersistentVolumeClaim {
	return &core.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"ours": value}}}
}

func onlyOurs(o runtime.Object) bool {
	c, ok := o.(*core.PersistentVolumeClaim)
	return ok && c.Labels["ours"] == "yes"
}

func TestWatches_ForeignObjectsAreNotListed(t *testing.T) {
	source := chosen(nil, func(context.Context, metav1.ListOptions) (*core.PersistentVolumeClaimList, error) {
		return &core.PersistentVolumeClaimList{
			ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []core.PersistentVolumeClaim{*labelled("a", "yes"), *labelled("b", "no"), *labelled("c", "yes")},
		}, nil
	}, nil, onlyOurs)
	got := check.Got(cache.ToListerWithContext(source).ListWithContext(t.Context(), metav1.ListOptions{}))(t)
	list, ok := got.(*core.PersistentVolumeClaimList)
	if !ok || len(list.Items) != 2 || list.Items[0].Name != "a" || list.Items[1].Name != "c" || list.ResourceVersion != "7" {
		t.Errorf("it is %+v", got)
	}
}

func TestWatches_ObjectThatBecomesForeignIsSeenAsDeleted(t *testing.T) {
	events := watch.NewFake()
	source := chosen(nil, func(context.Context, metav1.ListOptions) (*core.PersistentVolumeClaimList, error) { return nil, nil },
		func(context.Context, metav1.ListOptions) (watch.Interface, error) { return events, nil }, onlyOurs)
	w := check.Got(cache.ToWatcherWithContext(source).WatchWithContext(t.Context(), metav1.ListOptions{}))(t)
	defer w.Stop()
	go func() {
		events.Add(labelled("a", "yes"))
		events.Add(labelled("b", "no"))
		events.Modify(labelled("a", "yes"))
		events.Modify(labelled("a", "no"))
		events.Modify(labelled("b", "yes"))
		events.Delete(labelled("b", "yes"))
		events.Delete(labelled("c", "no"))
		events.Action(watch.Bookmark, labelled("", "")) // the watch needs it, whatever is in it
		events.Error(&metav1.Status{Reason: metav1.StatusReasonExpired})
		events.Stop()
	}()
	var seen []watch.EventType
	for e := range w.ResultChan() {
		seen = append(seen, e.Type)
	}
	want := []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Modified, watch.Deleted, watch.Deleted, watch.Bookmark, watch.Error}
	if !slices.Equal(seen, want) {
		t.Errorf("seen are %v", seen)
	}
}

func TestWatches_CachedObjectIsReduced(t *testing.T) {
	fields := []metav1.ManagedFieldsEntry{{Manager: "x"}}
	c := &core.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "a", ManagedFields: fields}}
	v := &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "b", ManagedFields: fields}}
	for _, o := range []metav1.Object{c, v} {
		got := check.Got(withoutManagedFields(o))(t)
		if m, ok := got.(metav1.Object); !ok || m.GetManagedFields() != nil || m.GetName() != o.GetName() {
			t.Errorf("%s became %+v", o.GetName(), got)
		}
	}
	if got, err := withoutManagedFields("other"); err != nil || got != "other" {
		t.Errorf("%v, %v", got, err)
	}
}
