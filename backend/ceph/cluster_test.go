//go:build ceph

package ceph

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ceph/go-ceph/rados"
	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	rig "github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func monitors(conn *rados.Conn) (string, error) {
	text, _, err := conn.MonCommand([]byte(`{"prefix":"mon dump","format":"json"}`))
	return string(text), err
}

func TestCluster_AnswersAndKnowsWhatItIs(t *testing.T) {
	config := configOf(t, "admin")
	c := connected(t, config)
	if text, err := Call(t.Context(), c, "mon dump", monitors); err != nil || !strings.Contains(text, small.FSID) {
		t.Errorf("got %s, %v", text, err)
	}
	_, err := Call(t.Context(), c, "pool", func(conn *rados.Conn) (any, error) {
		_, err := conn.OpenIOContext("absent")
		return nil, err
	})
	if !errors.Is(err, unix.ENOENT) || !errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrNotFound) {
		t.Errorf("a pool that is not there: %v", err)
	}
	config.FSID = "00000000-0000-0000-0000-000000000000"
	if _, err := Call(t.Context(), connected(t, config), "mon dump", monitors); !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), small.FSID) {
		t.Errorf("another cluster is taken: %v", err)
	}
}

func TestCluster_WrongKeyIsRefusedAndNotTold(t *testing.T) {
	config := configOf(t, "admin")
	config.Key = "AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA=="
	_, err := Call(t.Context(), connected(t, config), "mon dump", monitors)
	if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "client.admin") || strings.Contains(err.Error(), "AQAAAA") {
		t.Errorf("got %v", err)
	}
}

// impatient bounds what must take seconds, not minutes, on any machine.
const impatient = time.Minute

func TestCluster_WithoutQuorumSaysSoInSecondsAndGoesOn(t *testing.T) {
	config := configOf(t, "admin")
	config.Patience = 2 * time.Second
	c := connected(t, config)
	check.Got(Call(t.Context(), c, "mon dump", monitors))(t)
	check.OK(t, small.Pause(rig.Monitor))
	resumed := false
	resume := func() {
		if !resumed {
			resumed = true
			check.Report(t, errors.Join(small.Resume(rig.Monitor), small.AwaitHealthy(context.Background())))
		}
	}
	t.Cleanup(resume)
	ctx, cancel := context.WithTimeout(t.Context(), impatient)
	defer cancel()
	var ops backend.Operations
	release := make(chan struct{})
	held := func(conn *rados.Conn) (string, error) { <-release; return monitors(conn) }
	create := func() (string, error) {
		return Do(ctx, c, &ops, "a", "create", func(ctx context.Context) (string, error) { return Call(ctx, c, "mon dump", held) })
	}
	for range 2 {
		_, err := create()
		if !errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrBusy) {
			t.Fatalf("got %v", err)
		}
		for _, said := range []string{"mon dump has been running for ", "create of a has been running for ", small.Monitor, "quorum", "retry"} {
			if !strings.Contains(err.Error(), said) {
				t.Errorf("%v does not say %q", err, said)
			}
		}
	}
	if n, _ := ops.InFlight(); n != 1 {
		t.Errorf("%d operations run, want the one that goes on", n)
	}
	if _, err := Call(ctx, c, "mon dump", monitors); !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "quorum") {
		t.Errorf("outside of an operation: %v", err)
	}
	fresh := connected(t, config)
	if _, err := Call(ctx, fresh, "mon dump", monitors); !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "quorum") {
		t.Errorf("a new connection: %v", err)
	}
	if ctx.Err() != nil {
		t.Errorf("it took longer than %s", impatient)
	}
	resume()
	close(release)
	for _, c := range []*Cluster{c, fresh} {
		again := func() (string, error) {
			return Do(t.Context(), c, &ops, "a", "create", func(ctx context.Context) (string, error) { return Call(ctx, c, "mon dump", monitors) })
		}
		text, err := again()
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for late := time.After(rig.Patience); err != nil; text, err = again() {
			select {
			case <-tick.C:
			case <-late:
				t.Fatalf("once it answers again: %v", err)
			}
		}
		if !strings.Contains(text, small.FSID) {
			t.Errorf("once it answers again: %s", text)
		}
	}
}
