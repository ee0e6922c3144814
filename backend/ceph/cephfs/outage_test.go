//go:build ceph

package cephfs

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
	rig "github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// What a cluster that does not answer may cost a caller: it is far more than its patience, for slow machines, and far less
// than a hang.
const soon = time.Minute

func TestOutage_IsSaidInSecondsAndEndsWithItsCause(t *testing.T) {
	c := rig.Start(t, rig.Options{MDS: true})
	w := newWorldIn(t, c, 0)
	w.in.Patience = 2 * time.Second
	w.reopen()
	w.create("a", 16*mib)
	for _, d := range []rig.Daemon{rig.Monitor, rig.Manager, rig.MDS} {
		t.Run(string(d), func(t *testing.T) {
			c.Kill(d)
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			spec := backend.VolumeSpec{Name: "of " + string(d), Size: backend.Size{Required: 16 * mib}}
			for range 2 {
				_, err := w.backend.Create(ctx, spec)
				w.want(err, backend.ErrUnavailable)
				t.Log(err)
				if ctx.Err() != nil {
					t.Fatalf("it took more than %s: %v", soon, err)
				}
			}
			if _, err := w.backend.Capacity(ctx, ""); err != nil && !errors.Is(err, backend.ErrUnavailable) || ctx.Err() != nil {
				t.Error(err)
			}
			check.OK(t, c.Start(d))
			wait.For(w, "the creation of a volume", func() error {
				_, err := w.backend.Create(t.Context(), spec)
				return err
			})
			if v, err := w.backend.Get(t.Context(), "a"); err != nil || v.Condition.Abnormal {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
}

func TestOutage_FromTheStartIsSaidAndEnds(t *testing.T) {
	c := rig.Start(t, rig.Options{MDS: true})
	w := newWorldIn(t, c, 0)
	c.Kill(rig.Monitor)
	w.in.Patience = 2 * time.Second
	w.close()
	w.open()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	_, err := w.backend.List(ctx)
	w.want(err, backend.ErrUnavailable, c.Monitor)
	if ctx.Err() != nil {
		t.Fatalf("it took more than %s: %v", soon, err)
	}
	check.OK(t, c.Start(rig.Monitor))
	wait.For(w, "the list of volumes", func() error { _, err := w.backend.List(t.Context()); return err })
}
