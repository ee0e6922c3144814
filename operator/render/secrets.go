package render

import (
	"fmt"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/kube"
)

// ingressSecret holds the TLS pair of the Ingress.
const ingressSecret = "holdfast-ingress"

// credential is a user name and password that Kubernetes passes to the driver with a call.
type credential struct {
	field     string // of spec.csi
	secret    string
	keys      string // how the keys of the pair begin in the referenced secret
	parameter string // how the parameters of a class begin that name the secret
	enabled   bool
}

// parameters are those of a class that name the secret and its namespace.
func (c credential) parameters() []string {
	return []string{"csi.storage.k8s.io/" + c.parameter + "-name", "csi.storage.k8s.io/" + c.parameter + "-namespace"}
}

// credentials returns the pairs that are needed.
func (p *plan) credentials() (enabled []credential) {
	if !p.withCSI() {
		return nil
	}
	csi := p.spec.CSI
	for _, c := range []credential{
		{"credentials.provision", "csi-provisioner-secret", "csiProvision", "provisioner-secret", csi.Credentials.Provision},
		{"credentials.controllerPublish", "csi-controller-publish-secret", "csiControllerPublish", "controller-publish-secret", csi.Credentials.ControllerPublish},
		{"credentials.nodePublish", "csi-node-publish-secret", "csiNodePublish", "node-publish-secret", csi.Credentials.NodePublish},
		{"credentials.controllerExpand", "csi-controller-expand-secret", "csiControllerExpand", "controller-expand-secret", csi.Credentials.ControllerExpand},
	} {
		if c.enabled {
			enabled = append(enabled, c)
		}
	}
	return enabled
}

// secrets returns the secrets that are made of the referenced one.
func (p *plan) secrets() ([]object, error) {
	var objects []object
	for _, c := range p.credentials() {
		data, err := p.pick("spec.csi."+c.field, map[string]string{"username": c.keys + "Username", "password": c.keys + "Password"})
		if err != nil {
			return nil, err
		}
		objects = append(objects, &core.Secret{ObjectMeta: metav1.ObjectMeta{Name: c.secret}, Type: core.SecretTypeOpaque, Data: data})
	}
	if p.spec.Ingress.Enabled && p.spec.Ingress.TLS {
		data, err := p.pick("spec.ingress.tls", map[string]string{core.TLSCertKey: core.TLSCertKey, core.TLSPrivateKeyKey: core.TLSPrivateKeyKey})
		if err != nil {
			return nil, err
		}
		objects = append(objects, &core.Secret{ObjectMeta: metav1.ObjectMeta{Name: ingressSecret}, Type: core.SecretTypeTLS, Data: data})
	}
	return objects, nil
}

// pick takes keys of the referenced secret, each under its new name, for the field that needs them.
func (p *plan) pick(field string, keys map[string]string) (map[string][]byte, error) {
	if p.spec.SecretRef == nil {
		return nil, fmt.Errorf("%s needs a secret: name one in spec.secretRef", field)
	}
	data := map[string][]byte{}
	for _, to := range sortedKeys(keys) {
		value := p.Secret[keys[to]]
		if len(value) == 0 {
			return nil, fmt.Errorf("%s: the %w %s has no key %s: add it, or switch the field off", field, ErrSecret, kube.SecretName(p.Cluster, p.Namespace), keys[to])
		}
		data[to] = value
	}
	return data, nil
}
