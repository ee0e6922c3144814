package render

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/holdfast-storage/holdfast/deploy"
)

var podMonitorKind = schema.GroupKind{Group: "monitoring.coreos.com", Kind: "PodMonitor"}

// monitor lets Prometheus Operator find the metrics of all pods.
func (p *plan) monitor() []object {
	if !ptr.Deref(p.spec.Monitoring.Enabled, true) || !p.Has(podMonitorKind) {
		return nil
	}
	monitors := deploy.Objects(deploy.PodMonitor)
	for _, o := range monitors {
		o.SetLabels(p.spec.Monitoring.Labels)
	}
	return objectsOf(monitors)
}
