package provisioner

import (
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// mostReported is how many of the events that are written once are remembered.
const mostReported = 4096

// isFirst says whether an event that is written once per process was not written yet. Calls for one object never overlap.
func (p *Provisioner) isFirst(event string) bool {
	_, is := p.reported.Get(event)
	p.reported.Add(event, true)
	return !is
}

// eventOncef writes an event about a PersistentVolume, once per process.
func (p *Provisioner) eventOncef(pv *core.PersistentVolume, kind, reason, format string, args ...any) {
	if p.isFirst(string(pv.UID) + " " + reason) {
		p.log.Info("wrote an event about a PersistentVolume", "volume", pv.Name, "reason", reason)
		p.Events.Eventf(pv, kind, reason, format, args...)
	}
}

func (p *Provisioner) warnf(about runtime.Object, reason, format string, args ...any) {
	p.Events.Eventf(about, core.EventTypeWarning, reason, format, args...)
}
