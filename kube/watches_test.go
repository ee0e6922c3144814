package kube

import (
	"testing"
	"testing/synctest"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
)

func TestWatches_RequestEachKindOnceForAllListeners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := miniapi.New(t)
		w := NewWatches(t.Context(), holdfast.NewForConfigOrDie(api.Config()), kubernetes.NewForConfigOrDie(api.Config()), "holdfast-system")
		listen := func() {
			t.Helper()
			var synced []cache.DoneChecker
			for _, informer := range []cache.SharedIndexInformer{
				w.Holdfast.Holdfast().V1beta1().Volumes().Informer(), w.Cluster.Core().V1().Nodes().Informer(),
				w.Everywhere.Core().V1().PersistentVolumeClaims().Informer(),
			} {
				registered := check.Got(informer.AddEventHandler(cache.ResourceEventHandlerFuncs{}))(t)
				synced = append(synced, registered.HasSyncedChecker())
			}
			w.Start()
			if !cache.WaitFor(t.Context(), "", synced...) {
				t.Fatal("they were not listed")
			}
		}
		listen()
		listen()
		requests := api.Requests()
		for what, times := range requests {
			if times > 1 {
				t.Errorf("%s: %d times for two listeners", what, times)
			}
		}
		if len(requests) < 3 {
			t.Errorf("of three kinds it asked only %v", requests)
		}
	})
}

func TestSlim_LeavesOutWhoWroteWhat(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "a", UID: "u", ResourceVersion: "1", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}
	for _, o := range []metav1.Object{
		&core.Node{ObjectMeta: meta, Status: core.NodeStatus{Images: []core.ContainerImage{{}}}},
		&core.PersistentVolumeClaim{ObjectMeta: meta}, &core.PersistentVolume{ObjectMeta: meta}, &core.Pod{ObjectMeta: meta},
	} {
		slim := check.Got(Slim(o))(t)
		got := slim.(metav1.Object)
		if len(got.GetManagedFields()) > 0 || got.GetName() != "a" || got.GetUID() != "u" || got.GetResourceVersion() != "1" {
			t.Errorf("%T became %+v", o, got)
		}
		if n, ok := slim.(*core.Node); ok && len(n.Status.Images) > 0 {
			t.Errorf("the images of a Node are kept")
		}
	}
}
