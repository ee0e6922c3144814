package kube

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
)

func TestEvent_ExistsOnceHoweverOftenItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := miniapi.New(t)
		client := kubernetes.NewForConfigOrDie(api.Config())
		record := func(uid types.UID, reason, message string) error {
			job := &v1beta1.NodeJob{ObjectMeta: metav1.ObjectMeta{Name: "job", UID: uid}}
			kind := v1beta1.SchemeGroupVersion.WithKind("NodeJob")
			return RecordOnce(t.Context(), client, "test", Event{About: job, Kind: kind, Type: "Normal", Reason: reason, Message: message})
		}
		for range 2 {
			check.OK(t, record("1", "Done", "3/3"))
		}
		check.OK(t, record("1", "Failed", strings.Repeat("é", 5000)))
		check.OK(t, record("2", "Done", "")) // of another object of the same name
		list, err := client.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 3 {
			t.Fatalf("%d events, %v, want 3", len(list.Items), err)
		}
		for _, e := range list.Items {
			o, m := e.InvolvedObject, e.Message
			if o.Kind != "NodeJob" || o.APIVersion != "holdfast.dev/v1beta1" || o.Name != "job" || e.Source.Component != "test" {
				t.Errorf("it is %+v", e)
			}
			if e.Reason == "Failed" && (len(m) > 1024 || !strings.HasSuffix(m, "é ...")) || e.Reason == "Done" && (m == "3/3") != (o.UID == "1") {
				t.Errorf("%s of %s has %d bytes, ending in %q", e.Reason, o.UID, len(m), m[max(0, len(m)-8):])
			}
		}
		api.Close()
		if err := record("1", "Refused", ""); err == nil || !strings.Contains(err.Error(), "event Refused of NodeJob job") {
			t.Errorf("an API server that is away: %v", err)
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
