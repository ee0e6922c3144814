// Package pki makes the certificates of a cluster: every connection in it is verified against one authority.
package pki

import (
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
	"io/fs"
	"math/big"
	"net"
	"path/filepath"
	"time"

	"github.com/holdfast-storage/holdfast/test/cluster/host"
)

const lifetime = 10 * 365 * 24 * time.Hour

// Authority signs certificates. Its files are <name>.crt and <name>.key in its directory.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
}

// Subject is whom a certificate names. One with Hosts may serve under them; every one may be a client.
type Subject struct {
	User   string
	Groups []string
	Hosts  []string // DNS names and addresses
}

// OpenAuthority reads an authority, or makes it.
func OpenAuthority(dir, name string) (*Authority, error) {
	certFile, keyFile := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err == nil {
		return &Authority{dir: dir, cert: pair.Leaf, key: pair.PrivateKey.(crypto.Signer)}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w; if %s and %s do not belong together, delete both", err, certFile, keyFile)
	}
	template, err := newTemplate(pkix.Name{CommonName: name})
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	a := &Authority{dir: dir, cert: template}
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	if a.cert, err = a.sign(certFile, keyFile, template, a.key); err != nil {
		return nil, err
	}
	return a, nil
}

// Issue makes <name>.crt and <name>.key for the subject, unless they are there and say the same.
func (a *Authority) Issue(name string, s Subject) error {
	certFile, keyFile := filepath.Join(a.dir, name+".crt"), filepath.Join(a.dir, name+".key")
	template, err := newTemplate(pkix.Name{CommonName: s.User, Organization: s.Groups})
	if err != nil {
		return err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(s.Hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, h := range s.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	if pair, err := tls.LoadX509KeyPair(certFile, keyFile); err == nil && a.vouches(pair.Leaf, template) {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	_, err = a.sign(certFile, keyFile, template, key)
	return err
}

// vouches reports whether the certificate is ours, lasts, and says what the template says.
func (a *Authority) vouches(cert, template *x509.Certificate) bool {
	if cert.CheckSignatureFrom(a.cert) != nil || time.Until(cert.NotAfter) < 30*24*time.Hour {
		return false
	}
	return cert.Subject.String() == template.Subject.String() &&
		fmt.Sprint(cert.DNSNames, cert.IPAddresses) == fmt.Sprint(template.DNSNames, template.IPAddresses)
}

func newTemplate(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	// A second kernel's clock may be a little behind.
	return &x509.Certificate{SerialNumber: serial, Subject: subject, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(lifetime)}, nil
}

// sign writes the key first: a certificate on disk always has its key.
func (a *Authority) sign(certFile, keyFile string, template *x509.Certificate, key crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", certFile, err)
	}
	if err := WriteKey(keyFile, key); err != nil {
		return nil, err
	}
	if err := host.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// WriteKey writes a private key that only its owner reads.
func WriteKey(path string, key crypto.Signer) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return host.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
}
