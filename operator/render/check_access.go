package render

import (
	"fmt"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// metricsPort is that of the metrics, in the same pods.
const metricsPort = 9090

// checkAccess refuses invalid settings of the HTTPS API's Service and Ingress.
func checkAccess(p *plan) error {
	service := p.spec.Service
	if wrong := validation.IsDNS1035Label(p.serviceName()); len(wrong) > 0 {
		return fmt.Errorf("spec.service.name: %.80q cannot be the name of a Service: %s", service.Name, wrong[0])
	}
	if err := oneOf("spec.service.type", service.Type, "", core.ServiceTypeClusterIP, core.ServiceTypeNodePort, core.ServiceTypeLoadBalancer); err != nil {
		return err
	}
	if port := service.Port; port < 0 || port > 65535 {
		return fmt.Errorf("spec.service.port: %d is not allowed: it must be 1 to 65535", port)
	}
	if port := p.targetPort(); port < 1024 || port > 65535 || port == metricsPort {
		return fmt.Errorf("spec.service.targetPort: %d is not allowed: it must be 1024 to 65535, and not %d, which is the port of the metrics", port, metricsPort)
	}
	if err := checkAnnotations("spec.service.annotations", service.Annotations); err != nil {
		return err
	}
	if ref := p.spec.SecretRef; ref != nil {
		if err := checkName("spec.secretRef.name", ref.Name); err != nil {
			return err
		}
		if wrong := validation.IsDNS1123Label(ref.Namespace); ref.Namespace != "" && len(wrong) > 0 {
			return fmt.Errorf("spec.secretRef.namespace: %.80q cannot be a namespace: %s", ref.Namespace, wrong[0])
		}
	}
	return checkIngress(p)
}

func checkIngress(p *plan) error {
	ingress := p.spec.Ingress
	if !ingress.Enabled {
		return nil
	}
	valid := validation.IsDNS1123Subdomain
	if strings.HasPrefix(ingress.Host, "*.") {
		valid = validation.IsWildcardDNS1123Subdomain
	}
	if wrong := valid(ingress.Host); len(wrong) > 0 {
		return fmt.Errorf("spec.ingress.host: %.300q cannot be the name of a host: %s", ingress.Host, wrong[0])
	}
	if ingress.IngressClassName != "" {
		if err := checkName("spec.ingress.ingressClassName", ingress.IngressClassName); err != nil {
			return err
		}
	}
	return checkAnnotations("spec.ingress.annotations", ingress.Annotations)
}
