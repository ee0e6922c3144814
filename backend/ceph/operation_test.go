//go:build ceph

package ceph

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ceph/go-ceph/rados"

	"github.com/holdfast-storage/holdfast/backend"
)

func TestDo_KeepsItsIDAsLongAsAnOperationInItDoesNotGetOn(t *testing.T) {
	config := configOf(t, "admin")
	config.Patience = 500 * time.Millisecond
	c := connected(t, config)
	var ops backend.Operations
	answers := make(chan struct{})
	_, err := Do(t.Context(), c, &ops, "outer", "copy", func(ctx context.Context) (any, error) {
		return Do(ctx, c, &ops, "inner", "freeze", func(ctx context.Context) (any, error) {
			return Call(ctx, c, "freezing", func(*rados.Conn) (any, error) { <-answers; return nil, nil })
		})
	})
	if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "freezing has been running for") {
		t.Errorf("its caller got %v", err)
	}
	begun := false
	next := func(context.Context) (any, error) { begun = true; return nil, nil }
	if _, err := Do(t.Context(), c, &ops, "outer", "delete", next); !errors.Is(err, backend.ErrUnavailable) || begun {
		t.Errorf("another operation began: %t, %v", begun, err)
	}
	close(answers)
	for err = backend.ErrUnavailable; errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrBusy); { // until the first has ended
		_, err = Do(t.Context(), c, &ops, "outer", "delete", next)
	}
	if err != nil || !begun {
		t.Errorf("the next operation began: %t, %v", begun, err)
	}
}
