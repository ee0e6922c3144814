package host

import (
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
)

func TestLock_IsHeldByOneAtATimeAlthoughItsFileIsRemoved(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks", "lock")
	var group sync.WaitGroup
	var inside, most int
	var mutex sync.Mutex
	for range 8 {
		group.Go(func() {
			for range 20 {
				unlock, err := Lock(t.Context(), file, time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				mutex.Lock()
				inside++
				most = max(most, inside)
				mutex.Unlock()
				runtime.Gosched()
				mutex.Lock()
				inside--
				mutex.Unlock()
				unlock()
			}
		})
	}
	group.Wait()
	if most != 1 {
		t.Errorf("%d held the lock at once", most)
	}
}

func TestLock_ThatIsHeldIsRefusedAfterTheLimit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	unlock, err := Lock(t.Context(), file, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if _, err := Lock(t.Context(), file, 20*time.Millisecond); err == nil {
		t.Error("two hold it")
	}
}
