package web

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
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

// ownSecret has the self-made certificate, and the authority that signed it: clients that trust ca.crt of it need no
// change when the certificate is renewed.
const ownSecret = "holdfast-api-tls"

const (
	authorityCert = "ca.crt"
	authorityKey  = "ca.key"
)

const (
	authorityLasts = 10 * 365 * 24 * time.Hour
	pairLasts      = 365 * 24 * time.Hour
	clockSkew      = time.Hour
)

// made is a certificate with what is needed to renew it, in PEM.
type made struct{ authority, authorityKey, cert, key []byte }

// keepOwn uses the certificate that the secret has, after making or renewing it where that is due. Replicas that do so
// at once end with the same, as one write wins and all read it.
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
	if secret != nil && current(secret.Data, names, now) == nil {
		return i.use(secret.Data[core.TLSCertKey], secret.Data[core.TLSPrivateKeyKey])
	}
	var data map[string][]byte
	if secret != nil {
		data = secret.Data
	}
	m, err := makePair(data, names, now)
	if err != nil {
		return err
	}
	next := ownerOf(c).secret(i.Namespace, m)
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
		return fmt.Errorf("secret %s/%s: %w", i.Namespace, ownSecret, err)
	}
	i.Log.Info("made a certificate for the API", "secret", ownSecret, "names", names)
	return i.use(m.cert, m.key)
}

const fieldManager = "holdfast-api"

type owner v1beta1.StorageCluster

func ownerOf(c *v1beta1.StorageCluster) *owner { return (*owner)(c) }

// secret is removed with the StorageCluster alone: it is not rendered, so the operator's own label would
// have it pruned.
func (o *owner) secret(namespace string, m *made) *core.Secret {
	controls, blocks := true, false
	return &core.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: ownSecret,
			Labels: map[string]string{
				v1beta1.NameLabel: v1beta1.AppName, v1beta1.PartOfLabel: v1beta1.AppName, v1beta1.ComponentLabel: "api",
				v1beta1.ManagedByLabel: fieldManager, v1beta1.InstanceLabel: o.Name,
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: "StorageCluster", Name: o.Name, UID: o.UID,
				Controller: &controls, BlockOwnerDeletion: &blocks,
			}},
		},
		Type: core.SecretTypeTLS,
		Data: map[string][]byte{
			core.TLSCertKey: m.cert, core.TLSPrivateKeyKey: m.key, authorityCert: m.authority, authorityKey: m.authorityKey,
		},
	}
}

// namesFor are those under which clients reach the Service, and the pod through kubectl port-forward.
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

// current says why a self-made certificate must be replaced: a third of its time is left, or it has other names.
func current(data map[string][]byte, names []string, now time.Time) error {
	pair, err := tls.X509KeyPair(data[core.TLSCertKey], data[core.TLSPrivateKeyKey])
	if err != nil {
		return err
	}
	have := slices.Clone(pair.Leaf.DNSNames)
	slices.Sort(have)
	if !slices.Equal(have, names) {
		return fmt.Errorf("it is for %q, not %q", have, names)
	}
	if now.Before(pair.Leaf.NotBefore) || now.After(pair.Leaf.NotAfter.Add(-pairLasts/3)) {
		return fmt.Errorf("it is valid from %s to %s", pair.Leaf.NotBefore, pair.Leaf.NotAfter)
	}
	authority, _, err := parseAuthority(data, now)
	if err != nil {
		return err
	}
	return pair.Leaf.CheckSignatureFrom(authority)
}

// makePair signs with the authority that data has, or makes one where that is of no more use.
func makePair(data map[string][]byte, names []string, now time.Time) (*made, error) {
	m := &made{authority: data[authorityCert], authorityKey: data[authorityKey]}
	authority, signer, err := parseAuthority(data, now)
	if err != nil {
		if authority, signer, err = makeAuthority(m, now); err != nil {
			return nil, err
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	leaf := &x509.Certificate{
		Subject: pkix.Name{CommonName: "holdfast"}, NotBefore: now.Add(-clockSkew), NotAfter: now.Add(pairLasts),
		DNSNames: names, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, authority, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	m.cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	m.key, err = keyPEM(key)
	return m, err
}

func makeAuthority(m *made, now time.Time) (*x509.Certificate, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "holdfast API"}, NotBefore: now.Add(-clockSkew), NotAfter: now.Add(authorityLasts),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	if m.authorityKey, err = keyPEM(key); err != nil {
		return nil, nil, err
	}
	m.authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	cert, err := x509.ParseCertificate(der)
	return cert, key, err
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// parseAuthority refuses one that would not outlive what it signs.
func parseAuthority(data map[string][]byte, now time.Time) (*x509.Certificate, crypto.Signer, error) {
	pair, err := tls.X509KeyPair(data[authorityCert], data[authorityKey])
	if err != nil {
		return nil, nil, err
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || !pair.Leaf.IsCA {
		return nil, nil, errors.New("it cannot sign")
	}
	if now.Before(pair.Leaf.NotBefore) || now.Add(pairLasts).After(pair.Leaf.NotAfter) {
		return nil, nil, fmt.Errorf("the authority is valid from %s to %s", pair.Leaf.NotBefore, pair.Leaf.NotAfter)
	}
	return pair.Leaf, signer, nil
}
