package render

import (
	"cmp"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// defaultPort is that of the API, outside and inside.
const defaultPort = 5705

func (p *plan) targetPort() int32 { return cmp.Or(p.spec.Service.TargetPort, defaultPort) }

func (p *plan) serviceName() string { return cmp.Or(p.spec.Service.Name, name) }

// service leads to the API of every replica of the controller.
func (p *plan) service() []object {
	spec := p.spec.Service
	return []object{&core.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.serviceName(), Annotations: spec.Annotations, Labels: map[string]string{v1beta1.ComponentLabel: v1beta1.ControllerComponent},
		},
		Spec: core.ServiceSpec{
			Type:     cmp.Or(spec.Type, core.ServiceTypeClusterIP),
			Selector: map[string]string{v1beta1.NameLabel: name, v1beta1.ComponentLabel: v1beta1.ControllerComponent},
			Ports: []core.ServicePort{{
				Name: apiPort, Protocol: core.ProtocolTCP, AppProtocol: new("https"),
				Port: cmp.Or(spec.Port, defaultPort), TargetPort: intstr.FromString(apiPort),
			}},
		},
	}}
}

func (p *plan) ingress() []object {
	spec := p.spec.Ingress
	if !spec.Enabled {
		return nil
	}
	ingress := &networking.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: spec.Annotations, Labels: map[string]string{v1beta1.ComponentLabel: v1beta1.ControllerComponent}},
		Spec: networking.IngressSpec{Rules: []networking.IngressRule{{
			Host: spec.Host,
			IngressRuleValue: networking.IngressRuleValue{HTTP: &networking.HTTPIngressRuleValue{Paths: []networking.HTTPIngressPath{{
				Path: "/", PathType: new(networking.PathTypePrefix),
				Backend: networking.IngressBackend{Service: &networking.IngressServiceBackend{
					Name: p.serviceName(), Port: networking.ServiceBackendPort{Name: apiPort},
				}},
			}}}},
		}}},
	}
	if spec.IngressClassName != "" {
		ingress.Spec.IngressClassName = &spec.IngressClassName
	}
	if spec.TLS {
		ingress.Spec.TLS = []networking.IngressTLS{{Hosts: []string{spec.Host}, SecretName: ingressSecret}}
	}
	return []object{ingress}
}
