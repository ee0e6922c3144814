package provisioner

import (
	"context"
	"strings"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	helpers "k8s.io/component-helpers/storage/volume"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/kube"
)

// ShouldProvision accepts the claims for this server while the Lease is held.
func (p *Provisioner) ShouldProvision(_ context.Context, c *core.PersistentVolumeClaim) bool {
	return p.gate.isOpen() && p.wanted(c) && c.DeletionTimestamp == nil && p.isFor(c) && !p.isProvisioned(c)
}

// isProvisioned says whether a claim has a PersistentVolume of this server and is not bound to it yet. The library looks
// for one under the name that it gives.
func (p *Provisioner) isProvisioned(c *core.PersistentVolumeClaim) bool {
	_, found, _ := p.volumes.GetStore().GetByKey(p.persistentName(nameFor(c))) // the only error of a cache is that there is none
	return found
}

// ShouldDelete says whether the Lease is held, without which no volume is deleted.
func (p *Provisioner) ShouldDelete(context.Context, *core.PersistentVolume) bool {
	return p.gate.isOpen()
}

// isFor says whether the class of a claim names this server. One that names none, or none that can be read, is for the
// default server, which reports what is wrong with it.
func (p *Provisioner) isFor(c *core.PersistentVolumeClaim) bool {
	class := kube.InStore[*storage.StorageClass](p.classes.GetStore(), helpers.GetPersistentVolumeClaimClass(c))
	if class == nil {
		return true // the library looks for it again
	}
	server := serverOf(class.Parameters)
	switch {
	case server == "":
		return p.Servers.IsDefault()
	case server == p.Identity, !strings.Contains(server, "/") && p.Servers.IsNamed(server):
		return true
	case p.Servers.IsDefault() && !p.Servers.Known(server) && p.isFirst(string(c.UID)+" "+server):
		p.warnf(c, "UnknownServer", "StorageClass %s names the NFSServer %s, which does not exist; create it, or choose another class", class.Name, backend.Quote(server))
	}
	return false
}
