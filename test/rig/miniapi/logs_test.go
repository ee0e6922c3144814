package miniapi

import (
	"bufio"
	"io"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func TestLog_IsFollowedThroughItsRotation(t *testing.T) {
	s := New(t)
	pods := kubernetes.NewForConfigOrDie(s.Config()).CoreV1().Pods("one")
	if _, err := pods.GetLogs("p", &core.PodLogOptions{}).Stream(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("the log of no pod: %v", err)
	}
	if _, err := pods.Create(t.Context(), &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.WriteLog("one", "p", "first\n")
	stream, err := pods.GetLogs("p", &core.PodLogOptions{Follow: true}).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	lines := bufio.NewReader(stream)
	if line, err := lines.ReadString('\n'); line != "first\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	s.RotateLog("one", "p")
	s.WriteLog("one", "p", "second\n")
	s.WriteLog("one", "other", "not this\n")
	s.EndLog("one", "p")
	if rest, err := io.ReadAll(lines); string(rest) != "second\n" || err != nil {
		t.Errorf("got %q, %v", rest, err)
	}
	now, err := pods.GetLogs("p", &core.PodLogOptions{}).DoRaw(t.Context())
	if strings.Contains(string(now), "first") || err != nil {
		t.Errorf("what was rotated away is still read: %q, %v", now, err)
	}
}

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
