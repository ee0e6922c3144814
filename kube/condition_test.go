package kube

import (
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAConditionIsTrueOrFalse(t *testing.T) {
	for status, want := range map[bool]metav1.ConditionStatus{true: metav1.ConditionTrue, false: metav1.ConditionFalse} {
		got := NewCondition("Available", status, "Why", "so")
		if got != (metav1.Condition{Type: "Available", Status: want, Reason: "Why", Message: "so"}) {
			t.Errorf("%t is %+v", status, got)
		}
	}
}

func TestAMessageThatIsTooLongIsCutBetweenCharacters(t *testing.T) {
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
