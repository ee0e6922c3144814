package render

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-storage/holdfast/deploy"
)

var flowSchemaKind = schema.GroupKind{Group: "flowcontrol.apiserver.k8s.io", Kind: "FlowSchema"}

// priority keeps the requests of Holdfast's accounts from waiting behind those of others.
func (p *plan) priority() []object {
	if !p.Has(flowSchemaKind) {
		return nil
	}
	return objectsOf(Policies(deploy.Priority, p.Namespace))
}
