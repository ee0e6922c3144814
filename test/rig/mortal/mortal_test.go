package mortal_test

import (
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
	"github.com/holdfast-storage/holdfast/test/rig/mortal"
)

func TestProcess_WritesAndReadsNothingOnceItIsDead(t *testing.T) {
	s := miniapi.New(t)
	p := mortal.AfterWrites(1)
	pods := kubernetes.NewForConfigOrDie(p.Client(s.Config())).CoreV1().Pods("one")
	for _, name := range []string{"a", "b", "c"} {
		_, err := pods.Create(t.Context(), &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if (err == nil) != (name == "a") {
			t.Errorf("pod %s: %v", name, err)
		}
	}
	if _, err := pods.Get(t.Context(), "a", metav1.GetOptions{}); err == nil {
		t.Error("it reads on")
	}
	list, err := kubernetes.NewForConfigOrDie(s.Config()).CoreV1().Pods("one").List(t.Context(), metav1.ListOptions{})
	if steps, _ := p.Steps(); err != nil || len(list.Items) != 1 || !p.IsDead() || steps != 3 {
		t.Errorf("%d pods, %v; dead: %t after %d steps", len(list.Items), err, p.IsDead(), steps)
	}
}
