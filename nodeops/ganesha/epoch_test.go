package ganesha

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestEpoch_EachStartHasAGreaterOne(t *testing.T) {
	dir, now := t.TempDir(), time.Unix(1_800_000_000, 0)
	for _, c := range []struct {
		clock time.Time
		want  uint32
	}{
		{now, 1_800_000_000},
		{now, 1_800_000_001},
		{now.Add(-time.Hour), 1_800_000_002},
		{now.Add(time.Hour), 1_800_003_600},
	} {
		if got, err := nextEpoch(dir, c.clock); err != nil || got != c.want {
			t.Errorf("at %s: %d, %v, want %d", c.clock, got, err, c.want)
		}
	}
	check.OK(t, os.WriteFile(filepath.Join(dir, "epoch"), []byte("rubbish"), 0o600)) // counts as none
	check.Same(t, check.Got(nextEpoch(dir, now))(t), 1_800_000_000)
	if got, err := nextEpoch(filepath.Join(dir, "missing"), now); err == nil || got != 1_800_000_000 {
		t.Errorf("got %d, %v, want the time and an error", got, err)
	}
}
