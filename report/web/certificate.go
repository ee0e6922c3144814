package web

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// ownSecret keeps the self-signed certificate, so that all replicas show the same one, after restarts too.
const ownSecret = "holdfast-api-tls"

const (
	pairLasts = 365 * 24 * time.Hour
	clockSkew = time.Hour
)

const fieldManager = "holdfast-api"

// keepOwn uses the certificate in the secret, after making or renewing it where that is due. Where several replicas do
// so at once, one write wins and all read it.
func (i *identity) keepOwn(ctx context.Context, c *v1beta1.StorageCluster) error {
	name := types.NamespacedName{Namespace: i.Namespace, Name: ownSecret}
	secret, known, refusal := i.own.Get(name)
	if isNew(refusal, &i.refused.own) {
		i.Log.Warn("the secret with the API's certificate may not be read, so each replica may show another one: apply the manifest of this release, which grants that",
			"secret", name.String(), "error", refusal)
	}
	if !known || c == nil || c.DeletionTimestamp != nil {
		return nil
	}
	names, now := namesFor(c, i.Namespace), time.Now()
	if secret != nil && usable(secret.Data, names, now) {
		return i.use(secret.Data)
	}
	data, err := makePair(names, now)
	if err != nil {
		return err
	}
	next := secretFor(c, i.Namespace, data)
	secrets := i.Kubernetes.CoreV1().Secrets(i.Namespace)
	if secret == nil {
		_, err = secrets.Create(ctx, next, metav1.CreateOptions{FieldManager: fieldManager})
	} else {
		next.ResourceVersion = secret.ResourceVersion
		_, err = secrets.Update(ctx, next, metav1.UpdateOptions{FieldManager: fieldManager})
	}
	switch {
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil // the watch brings what another replica wrote
	case err != nil:
		return fmt.Errorf("secret %s: %w", name, err)
	}
	i.Log.Info("made a certificate for the API", "secret", ownSecret, "names", names)
	return i.use(data)
}

// secretFor returns a secret that is removed with the StorageCluster alone: the operator, which does not render it,
// would prune it by its own label.
func secretFor(c *v1beta1.StorageCluster, namespace string, data map[string][]byte) *core.Secret {
	return &core.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: ownSecret,
			Labels: map[string]string{
				v1beta1.NameLabel: v1beta1.AppName, v1beta1.PartOfLabel: v1beta1.AppName, v1beta1.ComponentLabel: "api",
				v1beta1.ManagedByLabel: fieldManager, v1beta1.InstanceLabel: c.Name,
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: "StorageCluster", Name: c.Name, UID: c.UID,
				Controller: new(true), BlockOwnerDeletion: new(false),
			}},
		},
		Type: core.SecretTypeTLS, Data: data,
	}
}

// namesFor returns the names under which clients reach the Service, and the pod through kubectl port-forward.
func namesFor(c *v1beta1.StorageCluster, namespace string) []string {
	service := "holdfast"
	names := []string{"localhost"}
	if c != nil {
		if c.Spec.Service.Name != "" {
			service = c.Spec.Service.Name
		}
		if c.Spec.Ingress.Enabled && c.Spec.Ingress.Host != "" {
			names = append(names, c.Spec.Ingress.Host)
		}
	}
	names = append(names, service, service+"."+namespace, service+"."+namespace+".svc", service+"."+namespace+".svc.cluster.local")
	slices.Sort(names)
	return slices.Compact(names)
}

// usable returns false for a certificate that must be replaced: a third of its time is left, or it has other names.
func usable(data map[string][]byte, names []string, now time.Time) bool {
	pair, err := tls.X509KeyPair(data[core.TLSCertKey], data[core.TLSPrivateKeyKey])
	return err == nil && slices.Equal(pair.Leaf.DNSNames, names) &&
		!now.Before(pair.Leaf.NotBefore) && !now.After(pair.Leaf.NotAfter.Add(-pairLasts/3))
}

// makePair returns a self-signed certificate, which is no authority for others, as the data of a secret.
func makePair(names []string, now time.Time) (map[string][]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "holdfast"}, NotBefore: now.Add(-clockSkew), NotAfter: now.Add(pairLasts),
		DNSNames: names, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		core.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		core.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
	}, nil
}
