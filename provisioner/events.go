package provisioner

import (
	"crypto/rand"
	"strings"
	"sync"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// onceOnly remembers which events were written, to write each once. It is emptied when it grows large.
type onceOnly struct {
	mu   sync.Mutex
	seen map[string]bool
}

const mostTold = 4096

func (t *onceOnly) first(key string) bool {
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

// eventOncef writes an event about a PersistentVolume, once per process.
func (p *Provisioner) eventOncef(pv *core.PersistentVolume, kind, reason, format string, args ...any) {
	if !p.onceOnly.first(string(pv.UID) + " " + reason) {
		return
	}
	p.log.Info("wrote an event about a PersistentVolume", "volume", pv.Name, "reason", reason)
	p.Events.Eventf(pv, kind, reason, format, args...)
}

func (p *Provisioner) warnf(about runtime.Object, reason, format string, args ...any) {
	p.Events.Eventf(about, core.EventTypeWarning, reason, format, args...)
}

// unique distinguishes processes that have the same name.
func unique() string { return strings.ToLower(rand.Text()[:8]) }
