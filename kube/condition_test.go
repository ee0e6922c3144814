package kube

import (
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestCondition_LongMessageIsCutBetweenCharacters(t *testing.T) {
	if got := Shorten("short", 5); got != "short" {
		t.Errorf("what fits has become %q", got)
	}
	for longest := range 12 {
		got := Shorten(strings.Repeat("ä", 8), longest)
		if !utf8.ValidString(got) || len(got) > max(longest, len(" ...")) || !strings.HasSuffix(got, " ...") {
			t.Errorf("in %d bytes it is %q", longest, got)
		}
	}
}

func TestReady_NamesWhatIsNotWellFirst(t *testing.T) {
	for _, c := range []struct {
		available, degraded, progressing bool
		want                             string // the expected reason
	}{
		{true, false, false, "Ready"}, {false, true, true, "NotAvailable"}, {true, true, true, "IsDegraded"}, {true, false, true, "IsProgressing"},
	} {
		got := Ready([]metav1.Condition{
			NewCondition("Available", c.available, "NotAvailable", "a"), NewCondition("Degraded", c.degraded, "IsDegraded", "d"), NewCondition("Progressing", c.progressing, "IsProgressing", "p"),
		})
		if got.Type != "Ready" || got.Reason != c.want || (got.Status == metav1.ConditionTrue) != (c.want == "Ready") {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

func TestRunCondition_IsWhatKstatusReadsToo(t *testing.T) {
	var conditions []metav1.Condition
	SetRunCondition(&conditions, NewCondition("Complete", false, "Broken", "why"))
	SetRunCondition(&conditions, NewCondition("Failed", true, "Broken", "why"))
	found := map[string]metav1.ConditionStatus{}
	for _, c := range conditions {
		found[c.Type] = c.Status
	}
	if len(found) != 4 || found["Ready"] != metav1.ConditionFalse || found["Stalled"] != metav1.ConditionTrue {
		t.Errorf("the conditions are %v", conditions)
	}
}
