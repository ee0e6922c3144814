package miniapi

import (
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func TestClient_KilledWritesAndReadsNothingMore(t *testing.T) {
	s := New(t)
	died := 0
	m := &Mortal{At: 2, Died: func() { died++ }}
	pods := kubernetes.NewForConfigOrDie(s.Mortal(m)).CoreV1().Pods("one")
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
	if err != nil || len(list.Items) != 1 || died != 1 || m.Writes() != 2 {
		t.Errorf("%d pods, %v; died %d times after %d writes", len(list.Items), err, died, m.Writes())
	}
}
