package facts

import (
	"fmt"
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	testclient "k8s.io/client-go/testing"

	ourfake "github.com/holdfast-storage/holdfast/api/client/clientset/fake"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// inPages has a kind answered in so many pages of one object each, and counts the requests.
func inPages(c *testclient.Fake, resource string, pages int, page func(name string, next metav1.ListMeta) runtime.Object) (asked *int) {
	asked = new(int)
	c.PrependReactor("list", resource, func(a testclient.Action) (bool, runtime.Object, error) {
		options := a.(testclient.ListActionImpl).ListOptions
		if options.Limit == 0 || fmt.Sprint(*asked) != options.Continue && *asked > 0 {
			return true, nil, fmt.Errorf("requested the page %q of %d objects after %d pages", options.Continue, options.Limit, *asked)
		}
		*asked++
		next := metav1.ListMeta{}
		if *asked < pages {
			next.Continue = fmt.Sprint(*asked)
		}
		return true, page(fmt.Sprint(*asked), next), nil
	})
	return asked
}

func TestWhatMayBeManyIsReadOncePageByPage(t *testing.T) {
	ours, theirs := ourfake.NewSimpleClientset(), fake.NewSimpleClientset()
	volumes := inPages(&ours.Fake, "volumes", 3, func(name string, next metav1.ListMeta) runtime.Object {
		return &v1beta1.VolumeList{ListMeta: next, Items: []v1beta1.Volume{{ObjectMeta: metav1.ObjectMeta{Name: name}}}}
	})
	events := inPages(&theirs.Fake, "events", 3, func(name string, next metav1.ListMeta) runtime.Object {
		return &core.EventList{ListMeta: next, Items: []core.Event{{ObjectMeta: metav1.ObjectMeta{Name: name}}}}
	})
	pods := inPages(&theirs.Fake, "pods", 3, func(name string, next metav1.ListMeta) runtime.Object {
		return &core.PodList{ListMeta: next, Items: []core.Pod{{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "home"}}}}
	})
	f, err := All(t.Context(), Clients{ours, theirs, dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())}, "home", "csi.holdfast.dev")
	if err != nil || len(f.Hidden) > 0 {
		t.Fatal(err, f)
	}
	if len(f.Volumes) != 3 || len(f.Warnings) != 3 || len(f.Pods) != 3 || f.Volumes[2].Name != "3" {
		t.Errorf("%d volumes, %d events, %d pods", len(f.Volumes), len(f.Warnings), len(f.Pods))
	}
	if *volumes != 3 || *events != 3 || *pods != 3 {
		t.Errorf("asked %d times for volumes, %d for events, %d for pods", *volumes, *events, *pods)
	}
}
