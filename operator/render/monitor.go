package render

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-storage/holdfast/deploy"
)

var podMonitorKind = schema.GroupKind{Group: "monitoring.coreos.com", Kind: "PodMonitor"}

// monitor lets Prometheus Operator find the metrics of all pods.
func (p *plan) monitor() ([]object, error) {
	if p.spec.DisableMonitoring || !p.Has(podMonitorKind) {
		return nil, nil
	}
	monitors, err := deploy.Objects(deploy.PodMonitor)
	if err != nil {
		return nil, err
	}
	var objects []object
	for _, o := range monitors {
		objects = append(objects, o)
	}
	return objects, nil
}
