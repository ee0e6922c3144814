package provisioner

import (
	"crypto/rand"
	"strings"
	"sync"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// told remembers what was told, so that it is told once. It forgets all when it grows large.
type told struct {
	mu   sync.Mutex
	seen map[string]bool
}

const mostTold = 4096

func (t *told) first(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen[key] {
		return false
	}
	if t.seen == nil || len(t.seen) >= mostTold {
		t.seen = map[string]bool{}
	}
	t.seen[key] = true
	return true
}

// tellOncef writes an event about a PersistentVolume, once in the life of this process.
func (p *Provisioner) tellOncef(pv *core.PersistentVolume, kind, reason, format string, args ...any) {
	if !p.told.first(string(pv.UID) + " " + reason) {
		return
	}
	p.log.Info("told about a PersistentVolume", "volume", pv.Name, "reason", reason)
	if p.Events != nil {
		p.Events.Eventf(pv, kind, reason, format, args...)
	}
}

func (p *Provisioner) warnf(about runtime.Object, reason, format string, args ...any) {
	if p.Events != nil {
		p.Events.Eventf(about, core.EventTypeWarning, reason, format, args...)
	}
}

// unique tells processes apart that have the same name.
func unique() string { return strings.ToLower(rand.Text()[:8]) }
