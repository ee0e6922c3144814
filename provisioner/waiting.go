package provisioner

import (
	"sync"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-storage/holdfast/kube"
)

// waiting are claims that did not fit, by UID. They are kept by name only, and as long as they exist: anyone can make
// claims that do not fit, and delete them.
type waiting struct {
	mu     sync.Mutex
	claims map[types.UID]cache.ObjectName
}

func (w *waiting) add(c *core.PersistentVolumeClaim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.claims == nil {
		w.claims = map[types.UID]cache.ObjectName{}
	}
	w.claims[c.UID] = cache.MetaObjectToName(c)
}

func (w *waiting) drop(claim types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.claims, claim)
}

func (w *waiting) take() map[types.UID]cache.ObjectName {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.claims
	w.claims = nil
	return all
}

// wait notes that a claim did not fit. Its end may have been reported before.
func (p *Provisioner) wait(c *core.PersistentVolumeClaim) {
	p.waiting.add(c)
	if p.claims.HasSynced() && p.waitingClaim(c.UID, cache.MetaObjectToName(c)) == nil {
		p.waiting.drop(c.UID)
	}
}

// wakeWaiting tries the claims again that did not fit.
func (p *Provisioner) wakeWaiting() {
	for uid, name := range p.waiting.take() {
		if c := p.waitingClaim(uid, name); c != nil {
			p.claims.tell(c)
		}
	}
}

// waitingClaim returns nil if the claim is gone.
func (p *Provisioner) waitingClaim(uid types.UID, name cache.ObjectName) *core.PersistentVolumeClaim {
	if c := kube.InStore[*core.PersistentVolumeClaim](p.claims.GetStore(), name.String()); c != nil && c.UID == uid {
		return c
	}
	return nil
}

// watchWaiting drops the claims that end.
func (p *Provisioner) watchWaiting() error {
	_, err := p.claims.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) {
		if c, ok := kube.Deleted(object).(*core.PersistentVolumeClaim); ok {
			p.waiting.drop(c.UID)
		}
	}})
	return err
}
