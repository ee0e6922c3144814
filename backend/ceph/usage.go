package ceph

import (
	"encoding/json"
	"fmt"

	"github.com/holdfast-storage/holdfast/backend"
)

// Usage is what the monitors report of a pool of data.
type Usage struct {
	Stored int64 // by anyone
	Free   int64 // for more data, copies not counted
	Quota  int64 // most that may be stored; 0: what there is
}

// Total returns how much can be stored.
func (u Usage) Total() int64 {
	if u.Quota > 0 {
		return min(u.Quota, u.Stored+u.Free)
	}
	return u.Stored + u.Free
}

// Room returns the room of the pool, of which others have stored some.
func (u Usage) Room(others int64) backend.Room {
	return backend.Room{Total: u.Total(), Others: others, Free: max(0, u.Total()-u.Stored)}
}

// parseUsage reads the answer of the monitors to `ceph df detail`.
func parseUsage(text []byte, pool string) (Usage, error) {
	var answer struct {
		Pools []struct {
			Name  string `json:"name"`
			Stats struct {
				Stored int64 `json:"stored"`
				Free   int64 `json:"max_avail"`
				Quota  int64 `json:"quota_bytes"`
			} `json:"stats"`
		} `json:"pools"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return Usage{}, fmt.Errorf("%w: the monitors report free space in a form that is not known: %w", backend.ErrUnavailable, err)
	}
	for _, p := range answer.Pools {
		if p.Name == pool {
			return Usage{p.Stats.Stored, p.Stats.Free, p.Stats.Quota}, nil
		}
	}
	return Usage{}, fmt.Errorf("%w: the monitors report nothing of the data pool %s", backend.ErrUnavailable, backend.Quote(pool))
}
