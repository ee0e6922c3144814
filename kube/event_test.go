package kube

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
)

func event(job *v1beta1.NodeJob, reason, message string) Event {
	return Event{About: job, Kind: v1beta1.SchemeGroupVersion.WithKind("NodeJob"), Type: "Normal", Reason: reason, Message: message}
}

func TestEvent_ExistsOnceHoweverOftenItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := kubernetes.NewForConfigOrDie(miniapi.New(t).Config())
		first := &v1beta1.NodeJob{ObjectMeta: metav1.ObjectMeta{Name: "job", UID: "1"}}
		again := &v1beta1.NodeJob{ObjectMeta: metav1.ObjectMeta{Name: "job", UID: "2"}} // another object of the same name
		for _, e := range []Event{event(first, "Done", "3/3"), event(first, "Done", "3/3"), event(first, "Failed", ""), event(again, "Done", "")} {
			check.OK(t, RecordOnce(t.Context(), client, "test", e))
		}
		list, err := client.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 3 {
			t.Fatalf("%d events, %v, want 3", len(list.Items), err)
		}
		e := list.Items[0]
		if o := e.InvolvedObject; o.Kind != "NodeJob" || o.APIVersion != "holdfast.dev/v1beta1" || o.Name != "job" || o.UID != "1" || e.Message != "3/3" || e.Source.Component != "test" {
			t.Errorf("it is %+v", e)
		}
	})
}

func TestEvent_LongMessageIsCutBetweenCharacters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := kubernetes.NewForConfigOrDie(miniapi.New(t).Config())
		check.OK(t, RecordOnce(t.Context(), client, "test", event(&v1beta1.NodeJob{ObjectMeta: metav1.ObjectMeta{Name: "job"}}, "Done", strings.Repeat("é", 5000))))
		list := check.Got(client.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{}))(t)
		if m := list.Items[0].Message; len(m) > 1024 || !strings.HasSuffix(m, "é ...") {
			t.Errorf("%d bytes, ending in %q", len(m), m[len(m)-8:])
		}
	})
}

func TestEvent_ErrorNamesTheAPIThatRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := miniapi.New(t)
		client := kubernetes.NewForConfigOrDie(api.Config())
		api.Close()
		err := RecordOnce(t.Context(), client, "test", event(&v1beta1.NodeJob{ObjectMeta: metav1.ObjectMeta{Name: "job"}}, "Done", ""))
		if err == nil || !strings.Contains(err.Error(), "event Done of NodeJob job") {
			t.Errorf("got %v", err)
		}
	})
}

func TestEvent_TimeIsThatOfItsLastOccurrence(t *testing.T) {
	at := metav1.NewTime(time.Unix(1000, 0))
	later := metav1.NewMicroTime(time.Unix(2000, 0))
	for name, test := range map[string]struct {
		event core.Event
		want  int64
	}{
		"counted":     {core.Event{LastTimestamp: at}, 1000},
		"once":        {core.Event{EventTime: later}, 2000},
		"in a series": {core.Event{EventTime: metav1.NewMicroTime(at.Time), Series: &core.EventSeries{LastObservedTime: later}}, 2000},
		"first only":  {core.Event{FirstTimestamp: at}, 1000},
		"made only":   {core.Event{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at}}, 1000},
	} {
		if got := LastOccurrence(&test.event).Unix(); got != test.want {
			t.Errorf("%s: %d", name, got)
		}
	}
}
