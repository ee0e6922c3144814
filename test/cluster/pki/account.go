package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"

	"github.com/holdfast-storage/holdfast/test/cluster/host"
)

// IssueAccountKeys makes the pair that signs and checks service account tokens: <name>.key and <name>.pub.
func IssueAccountKeys(dir, name string) error {
	keyFile, pubFile := filepath.Join(dir, name+".key"), filepath.Join(dir, name+".pub")
	if _, err := os.Stat(pubFile); err == nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := WriteKey(keyFile, key); err != nil {
		return err
	}
	// The public half is written last: where it is, both are.
	return host.WriteFile(pubFile, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o644)
}
