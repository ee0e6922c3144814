package upgrade

import (
	"context"
	"fmt"
	"slices"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// record is what has become of the node pods since it was begun.
type record struct {
	nodes      int
	pods       map[types.UID]*core.Pod
	served     map[string][]v1beta1.Image // by node, what has been ready there, in order
	complaints []string
}

// recordNodePods watches the node pods until end is called.
func (s *site) recordNodePods() (end func() *record) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(withoutEnd(s.t))
	s.t.Cleanup(cancel)
	pods := s.Client.CoreV1().Pods("holdfast-system")
	list := check.Got(pods.List(ctx, selector("node")))(s.t)
	r := &record{nodes: len(s.nodes), pods: map[types.UID]*core.Pod{}, served: map[string][]v1beta1.Image{}}
	for i := range list.Items {
		r.note(watch.Event{Type: watch.Added, Object: &list.Items[i]})
	}
	r.complaints = nil // of a beginning that was not complete
	options := selector("node")
	options.ResourceVersion = list.ResourceVersion
	watching := check.Got(pods.Watch(ctx, options))(s.t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer watching.Stop()
		for {
			event, open := <-watching.ResultChan()
			if ctx.Err() != nil {
				return // what has come is about the end of the watch
			}
			if !open {
				r.complaints = append(r.complaints, "the watch has ended too early")
				return
			}
			r.note(event)
		}
	}()
	return func() *record {
		cancel()
		<-ended
		return r
	}
}

// note takes an event in. At each moment all nodes but one must have a pod that works.
func (r *record) note(event watch.Event) {
	p, ok := event.Object.(*core.Pod)
	if !ok {
		r.complaints = append(r.complaints, fmt.Sprintf("the watch says %v", event.Object))
		return
	}
	r.pods[p.UID] = p
	if event.Type == watch.Deleted {
		delete(r.pods, p.UID)
	}
	working := map[string]bool{}
	for _, p := range r.pods {
		if works(p) {
			working[p.Spec.NodeName] = true
		}
	}
	if image, all := imageOf(p), r.served[p.Spec.NodeName]; works(p) && (len(all) == 0 || all[len(all)-1] != image) {
		r.served[p.Spec.NodeName] = append(all, image)
	}
	if len(working) < r.nodes-1 {
		r.complaints = append(r.complaints, fmt.Sprintf("only %d of %d nodes had a pod that works when pod %s changed", len(working), r.nodes, p.Name))
	}
}

// expect sees that the node pods were replaced one by one, and each node had these images in this order.
func (r *record) expect(t *testing.T, images ...v1beta1.Image) {
	t.Helper()
	for _, c := range r.complaints {
		t.Error(c)
	}
	if len(r.served) != r.nodes {
		t.Errorf("there were pods on %d nodes, and %d are to have one", len(r.served), r.nodes)
	}
	for node, served := range r.served {
		if !slices.Equal(served, images) {
			t.Errorf("node %s had %v, want %v", node, served, images)
		}
	}
}
