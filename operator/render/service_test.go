package render

import (
	"testing"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

func TestService_SelectsTheController(t *testing.T) {
	in := ask(nil)
	service := must[core.Service](t, in, "Service", "holdfast")
	port := service.Spec.Ports[0]
	if service.Spec.Type != core.ServiceTypeClusterIP || port.Port != 5705 || len(service.Spec.Ports) != 1 || len(service.Annotations) > 0 {
		t.Errorf("it is %+v", service)
	}
	pod := controllerOf(t, in).Spec.Template
	same(t, pod.Labels, service.Spec.Selector)
	found := false
	for _, p := range container(&pod.Spec, "holdfast").Ports {
		found = found || p.Name == port.TargetPort.StrVal
	}
	if !found {
		t.Errorf("the pods have no port %s", port.TargetPort.StrVal)
	}
}

func TestService_FollowsTheSpec(t *testing.T) {
	in := ask(func(s *v1beta1.StorageClusterSpec) {
		s.Service = v1beta1.ServiceSpec{Name: "storage", Type: core.ServiceTypeNodePort, Port: 443, TargetPort: 8443, Annotations: map[string]string{"a": "b"}}
		s.Ingress = v1beta1.IngressSpec{Enabled: true, Host: "holdfast.example"}
	})
	service := must[core.Service](t, in, "Service", "storage")
	if service.Spec.Type != core.ServiceTypeNodePort || service.Spec.Ports[0].Port != 443 || service.Annotations["a"] != "b" {
		t.Errorf("it is %+v", service)
	}
	if look[core.Service](t, in, "Service", "holdfast") != nil {
		t.Error("there is another")
	}
	if path := must[networking.Ingress](t, in, "Ingress", "holdfast").Spec.Rules[0].HTTP.Paths[0]; path.Backend.Service.Name != "storage" {
		t.Errorf("the Ingress leads to %+v", path.Backend.Service)
	}
}

func TestIngress_HasAHostAndAPath(t *testing.T) {
	spec := v1beta1.IngressSpec{Enabled: true, Host: "holdfast.example", IngressClassName: "nginx", Annotations: map[string]string{"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"}}
	in := ask(func(s *v1beta1.StorageClusterSpec) { s.Ingress = spec })
	ingress := must[networking.Ingress](t, in, "Ingress", "holdfast")
	rule := ingress.Spec.Rules[0]
	path := rule.HTTP.Paths[0]
	if rule.Host != "holdfast.example" || path.Path != "/" || *path.PathType != networking.PathTypePrefix || path.Backend.Service.Name != "holdfast" || path.Backend.Service.Port.Name != "api" {
		t.Errorf("the rule is %+v", rule)
	}
	if *ingress.Spec.IngressClassName != "nginx" || len(ingress.Spec.TLS) > 0 || ingress.Spec.DefaultBackend != nil {
		t.Errorf("it is %+v", ingress.Spec)
	}
	same(t, spec.Annotations, ingress.Annotations)
	spec.Enabled, spec.IngressClassName = false, ""
	if look[networking.Ingress](t, ask(func(s *v1beta1.StorageClusterSpec) { s.Ingress = spec }), "Ingress", "holdfast") != nil {
		t.Error("there is one that is not enabled")
	}
	spec.Enabled = true
	if class := must[networking.Ingress](t, ask(func(s *v1beta1.StorageClusterSpec) { s.Ingress = spec }), "Ingress", "holdfast").Spec.IngressClassName; class != nil {
		t.Errorf("the class is %q, not the cluster's default", *class)
	}
}

func TestIngress_TerminatesTLSWithTheSecret(t *testing.T) {
	in := everything()
	tls := must[networking.Ingress](t, in, "Ingress", "holdfast").Spec.TLS
	if len(tls) != 1 || len(tls[0].Hosts) != 1 || tls[0].Hosts[0] != "holdfast.example" {
		t.Fatalf("it is %+v", tls)
	}
	secret := must[core.Secret](t, in, "Secret", tls[0].SecretName)
	if secret.Type != core.SecretTypeTLS || string(secret.Data["tls.crt"]) != "c" || string(secret.Data["tls.key"]) != "k" || len(secret.Data) != 2 {
		t.Errorf("the secret is %+v", secret)
	}
}
