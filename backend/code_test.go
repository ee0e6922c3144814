package backend

import (
	"errors"
	"fmt"
	"testing"
)

func TestCode_WrittenErrorIsReadAsTheSame(t *testing.T) {
	for _, s := range sentinels {
		first := fmt.Errorf("pool fast: %w: volume a has 5 bytes", s.err)
		code := CodeOf(first)
		again := code.Error(first.Error())
		if !errors.Is(again, s.err) || again.Error() != first.Error() {
			t.Errorf("%v came back as %v with code %s", first, again, code)
		}
		for _, other := range sentinels {
			if other.code != s.code && errors.Is(again, other.err) {
				t.Errorf("%v is also %v", again, other.err)
			}
		}
	}
}

func TestCode_MessageWithoutItsSentinelGetsIt(t *testing.T) {
	if got := CodeExhausted.Error("7 bytes are left").Error(); got != "no room: 7 bytes are left" {
		t.Errorf("got %q", got)
	}
}

func TestCode_UnknownErrorIsUnavailable(t *testing.T) {
	if code := CodeOf(errors.New("input/output error")); code != CodeUnavailable {
		t.Errorf("got %s", code)
	}
	if err := Code("Melted").Error("help"); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

func TestCode_BusyErrorIsBusyWhateverTheAttemptBefore(t *testing.T) {
	if code := CodeOf(fmt.Errorf("%w: create of a; the attempt before it failed: %w", ErrBusy, ErrExhausted)); code != CodeBusy {
		t.Errorf("got %s", code)
	}
}

func TestCode_OnlyErrorsThatNoRetryRepairsArePermanent(t *testing.T) {
	for _, s := range sentinels {
		want := s.code != CodeBusy && s.code != CodePrecondition && s.code != CodeUnavailable
		if s.code.Permanent() != want {
			t.Errorf("%s: permanent is %t", s.code, !want)
		}
	}
}
