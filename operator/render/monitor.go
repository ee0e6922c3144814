package render

import (
	"maps"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/holdfast-storage/holdfast/deploy"
)

var podMonitorKind = schema.GroupKind{Group: "monitoring.coreos.com", Kind: "PodMonitor"}

// monitor lets Prometheus Operator find the metrics of all pods.
func (p *plan) monitor() ([]object, error) {
	if !ptr.Deref(p.spec.Monitoring.Enabled, true) || !p.Has(podMonitorKind) {
		return nil, nil
	}
	monitors, err := deploy.Objects(deploy.PodMonitor)
	if err != nil {
		return nil, err
	}
	var objects []object
	for _, o := range monitors {
		o.SetLabels(maps.Clone(p.spec.Monitoring.Labels))
		objects = append(objects, o)
	}
	return objects, nil
}
