package provisioner

import (
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-storage/holdfast/kube"
)

// wait notes that a claim did not fit. Its end may have been reported before.
func (p *Provisioner) wait(c *core.PersistentVolumeClaim) {
	p.waiting.Store(c.UID, cache.MetaObjectToName(c))
	if p.claims.HasSynced() && p.waitingClaim(c.UID, cache.MetaObjectToName(c)) == nil {
		p.waiting.Delete(c.UID)
	}
}

// wakeWaiting tries the claims again that did not fit.
func (p *Provisioner) wakeWaiting() {
	p.waiting.Range(func(uid, name any) bool {
		p.waiting.Delete(uid)
		if c := p.waitingClaim(uid.(types.UID), name.(cache.ObjectName)); c != nil {
			p.claims.tell(c)
		}
		return true
	})
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
			p.waiting.Delete(c.UID)
		}
	}})
	return err
}
