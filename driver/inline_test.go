package driver

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// inlineNode is a node whose backend makes volumes, and knows the pools that are named.
func inlineNode(allowed Inline) (*node, *scripted) {
	b := newScripted()
	d := &Driver{Config: Config{Backend: b, Inline: allowed, Patience: DefaultPatience}}
	d.calls = &calls{slog.New(slog.DiscardHandler), newMetrics(&d.ops, nil)}
	return &node{Driver: d}, b
}

func TestInlineVolume_IsRefusedUnlessAllowed(t *testing.T) {
	const field = "spec.csi.ephemeral of the StorageCluster"
	some := Inline{Pools: []string{"slow", "fast"}, MaxSize: 2 * gib, Field: field}
	for name, test := range map[string]struct {
		allowed Inline
		ask     backend.VolumeSpec
		cause   error
		words   []string
	}{
		"none is allowed":    {Inline{Field: field}, backend.VolumeSpec{}, backend.ErrPrecondition, []string{"generic ephemeral"}},
		"none, with all set": {Inline{Field: field, MaxSize: 2 * gib}, backend.VolumeSpec{Pool: "fast", Size: backend.Size{Required: 1}}, backend.ErrPrecondition, []string{"not allowed"}},
		"another pool":       {some, backend.VolumeSpec{Pool: "precious"}, backend.ErrInvalid, []string{`"precious"`, "slow, fast"}},
		"a byte too much":    {some, backend.VolumeSpec{Pool: "fast", Size: backend.Size{Required: 2*gib + 1}}, backend.ErrOutOfRange, []string{"(2147483649)", "at most 2Gi;"}},
	} {
		t.Run(name, func(t *testing.T) {
			n, _ := inlineNode(test.allowed)
			err := n.permit(t.Context(), &test.ask)
			if !errors.Is(err, test.cause) {
				t.Fatalf("got %v", err)
			}
			for _, word := range append(test.words, field) {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not say %q", err, word)
				}
			}
		})
	}
}

func TestInlineVolume_DefaultsAreWithinTheAllowedLimits(t *testing.T) {
	const pool = "memory" // of the memory backend
	for name, test := range map[string]struct {
		pools []string
		most  int64
		ask   backend.VolumeSpec
		pool  string
		size  int64
	}{
		"all of it":           {[]string{pool}, 2 * gib, backend.VolumeSpec{}, pool, backend.DefaultSize},
		"with less allowed":   {[]string{pool}, gib / 2, backend.VolumeSpec{}, pool, gib / 2},
		"only the pool":       {[]string{pool}, 2 * gib, backend.VolumeSpec{Size: backend.Size{Required: 2 * gib}}, pool, 2 * gib},
		"the first one here":  {[]string{"elsewhere", pool}, gib, backend.VolumeSpec{}, pool, gib},
		"nothing but allowed": {[]string{"other", pool}, gib, backend.VolumeSpec{Pool: pool, Size: backend.Size{Required: 5}}, pool, 5},
	} {
		t.Run(name, func(t *testing.T) {
			n, _ := inlineNode(Inline{Pools: test.pools, MaxSize: test.most})
			check.OK(t, n.permit(t.Context(), &test.ask))
			if test.ask.Pool != test.pool || test.ask.Size.Required != test.size || test.ask.Size.Limit != test.most {
				t.Errorf("got %+v", test.ask)
			}
		})
	}
	n, _ := inlineNode(Inline{Pools: []string{"elsewhere"}, MaxSize: gib})
	if err := n.permit(t.Context(), &backend.VolumeSpec{}); !errors.Is(err, backend.ErrPrecondition) || !strings.Contains(err.Error(), "elsewhere") {
		t.Errorf("without a pool here: %v", err)
	}
	n, b := inlineNode(Inline{Pools: []string{"away", pool}, MaxSize: gib})
	b.capacity = func() (backend.Capacity, error) { return backend.Capacity{}, backend.ErrUnavailable }
	spec := backend.VolumeSpec{}
	if err := n.permit(t.Context(), &spec); err != nil || spec.Pool != "away" {
		t.Errorf("one in a pool out of reach would be made a second time: %+v, %v", spec, err)
	}
}

func TestInlineVolume_ExistingOneIsNotCheckedAgain(t *testing.T) {
	n, b := inlineNode(Inline{})
	req := &csi.NodePublishVolumeRequest{VolumeId: inlineHandle, TargetPath: t.TempDir() + "/target", VolumeContext: map[string]string{ephemeralKey: "true", "size": "20Gi"}}
	id, _ := backend.IDFor(inlineHandle)
	a := access{mode: backend.Filesystem, group: noGroup}
	if err := n.publishEphemeral(t.Context(), id, a, req); !errors.Is(err, backend.ErrPrecondition) || !strings.Contains(err.Error(), "not allowed") {
		t.Fatalf("a new one: %v", err)
	}
	if _, err := b.Memory.Get(t.Context(), id); !errors.Is(err, backend.ErrNotFound) {
		t.Fatalf("it was made: %v", err)
	}
	spec := check.Got(ephemeralSpec(req, a))(t)
	check.Got(b.Memory.Create(t.Context(), spec))(t)
	// The memory backend gives no access, which the driver requests only after the check of what is allowed.
	if err := n.publishEphemeral(t.Context(), id, a, req); err == nil || strings.Contains(err.Error(), "not allowed") {
		t.Errorf("one that is there: %v", err)
	}
	check.Report(t, n.deleteEphemeral(t.Context(), id))
}

func TestInlineVolume_FinalAnswerLeavesNoVolume(t *testing.T) {
	req := &csi.NodePublishVolumeRequest{VolumeId: inlineHandle, VolumeContext: map[string]string{ephemeralKey: "true", "size": "1Gi"}}
	id, _ := backend.IDFor(inlineHandle)
	a := access{mode: backend.Filesystem, group: noGroup}
	for name, test := range map[string]struct {
		before bool  // it is there already
		kept   error // of its removal
		code   codes.Code
		words  []string
	}{
		"made here":                       {code: codes.Internal, words: []string{"nothing that could be mounted"}},
		"made here, and not removed":      {kept: errors.New("the disk is slow"), code: codes.Unavailable, words: []string{"nothing that could be mounted", "the volume stays: the disk is slow"}},
		"there before, perhaps with data": {before: true, code: codes.Unavailable, words: []string{"nothing that could be mounted", "kept"}},
	} {
		t.Run(name, func(t *testing.T) {
			n, b := inlineNode(Inline{Pools: []string{"memory"}, MaxSize: gib})
			b.delete = func(backend.ID) error { return test.kept }
			req.TargetPath = t.TempDir() + "/target"
			if test.before {
				spec := check.Got(ephemeralSpec(req, a))(t)
				check.Got(b.Memory.Create(t.Context(), spec))(t)
			}
			// The memory backend gives no access.
			expectError(t, toStatus(n.publishEphemeral(t.Context(), id, a, req)), test.code, test.words...)
			_, err := b.Memory.Get(t.Context(), id)
			if gone := errors.Is(err, backend.ErrNotFound); gone != (test.code == codes.Internal) {
				t.Errorf("gone: %t (%v)", gone, err)
			}
		})
	}
}

func TestInlineVolume_IsRetriedWithoutBeingMadeAgain(t *testing.T) {
	n, b := inlineNode(Inline{})
	v := check.Got(b.Memory.Create(t.Context(), backend.VolumeSpec{Name: inlineHandle}))(t)
	for _, cause := range []error{backend.ErrUnavailable, backend.ErrBusy, backend.ErrExhausted, context.DeadlineExceeded} {
		if got := n.remembered(t.Context(), v, true, cause); !errors.Is(got, cause) {
			t.Errorf("%v became %v", cause, got)
		}
		if _, err := b.Memory.Get(t.Context(), v.ID); err != nil {
			t.Errorf("after %v: %v", cause, err)
		}
	}
}

func TestInlineVolume_MountedOneIsNotRemoved(t *testing.T) {
	hostfs.RequireRoot(t)
	n, b := inlineNode(Inline{})
	v := check.Got(b.Memory.Create(t.Context(), backend.VolumeSpec{Name: inlineHandle}))(t)
	v.Access.Directory = t.TempDir() + "/" + string(v.ID) + "/data"
	target := t.TempDir()
	check.OK(t, os.MkdirAll(v.Access.Directory, 0o755))
	check.OK(t, nodeops.Bind(t.Context(), v.Access.Directory, target, false, nil))
	t.Cleanup(func() { check.Report(t, nodeops.Unmount(context.Background(), target)) })
	expectError(t, toStatus(n.remembered(t.Context(), v, true, errors.New("its group"))), codes.Unavailable, "its group", target)
	check.Got(b.Memory.Get(t.Context(), v.ID))(t)
}
