package policy

import (
	"errors"
	"testing"
)

func TestVerdict_NotifiesOnChangesOnly(t *testing.T) {
	v := &Verdict{}
	first, _ := v.Now()
	if v.Set(nil) {
		t.Error("the same verdict is another")
	}
	select {
	case <-first:
		t.Error("it notifies of an unchanged verdict")
	default:
	}
	if !v.Set(errors.New("a")) {
		t.Error("another verdict is the same")
	}
	<-first
	if _, why := v.Now(); why == nil || v.Set(errors.New("a")) || !v.Set(errors.New("b")) {
		t.Errorf("it says %v", why)
	}
}
