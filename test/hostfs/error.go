package hostfs

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// MeetError makes the kernel meet an error in the mounted ext4 on a device, and waits until it has counted it, which it
// does later.
func MeetError(t testing.TB, device string) {
	t.Helper()
	dir := filepath.Join("/sys/fs/ext4", filepath.Base(device))
	count := func() string {
		content, err := os.ReadFile(filepath.Join(dir, "errors_count"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(content))
	}
	before := count()
	if err := os.WriteFile(filepath.Join(dir, "trigger_fs_error"), []byte("by a test"), 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for count() == before {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the ext4 on %s counts %s errors still", device, before)
		}
	}
}
