package kube

import (
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"k8s.io/apimachinery/pkg/labels"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
)

func TestWarnings_OfOthersAreCachedWithoutTheirContent(t *testing.T) {
	api := miniapi.New(t)
	client := kubernetes.NewForConfigOrDie(api.Config())
	warn := func(name, namespace, component, apiVersion string) {
		t.Helper()
		if _, err := client.CoreV1().Events(namespace).Create(t.Context(), &core.Event{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Type: core.EventTypeWarning, Message: "long", Source: core.EventSource{Component: component},
			InvolvedObject: core.ObjectReference{APIVersion: apiVersion},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	warn("in-our-namespace", "holdfast-system", "kubelet", "v1")
	warn("by-us", "shop", "holdfast", "v1")
	warn("by-the-provisioner", "shop", "csi.holdfast.dev_pod_1", "v1")
	warn("by-the-nfs-provisioner", "shop", "nfs.holdfast.dev", "v1")
	warn("about-ours", "shop", "kubelet", "holdfast.dev/v1beta1")
	warn("of-another", "shop", "kubelet", "v1")
	w := NewWatches(t.Context(), holdfast.NewForConfigOrDie(api.Config()), client, "holdfast-system")
	events := w.Warnings.Core().V1().Events()
	synced := events.Informer().HasSyncedChecker()
	w.Start()
	if !cache.WaitFor(t.Context(), "", synced) {
		t.Fatal("they were not listed")
	}
	all, err := events.Lister().List(labels.Everything())
	if err != nil || len(all) != 6 {
		t.Fatalf("%d events, %v", len(all), err)
	}
	for _, e := range all {
		ours := e.Name != "of-another"
		if WarnsOfHoldfast(e, "holdfast-system") != ours || (e.Message == "long") != ours {
			t.Errorf("%s: %+v", e.Name, e)
		}
	}
}
