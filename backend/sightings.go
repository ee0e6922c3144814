package backend

import (
	"sync"
	"time"
)

// SeenAtLeast is how long this process has seen what was deleted before it removes it for its age. The age is by the clocks of
// the deletion and of now, of which either may be wrong, as after a boot without the time; this is by the monotonic clock.
const SeenAtLeast = time.Hour

// Sightings knows since when this process has seen what is in the trash of a pool.
type Sightings struct {
	mu    sync.Mutex
	first map[string]time.Time
}

// Ripe says whether what was deleted at a time, and is kept so long, is to be removed. What is kept for less than a minute is by
// the clocks alone.
func (s *Sightings) Ripe(what string, deleted, now time.Time, keep time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == nil {
		s.first = map[string]time.Time{}
	}
	if _, seen := s.first[what]; !seen {
		s.first[what] = now
	}
	return now.Sub(deleted) >= keep && (keep < time.Minute || now.Sub(s.first[what]) >= min(keep, SeenAtLeast))
}

// Forget is called when something has left the trash.
func (s *Sightings) Forget(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.first, what)
}
