package nodeops

import (
	"crypto/ecdh"
	"crypto/hpke"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// What a node is handed through the API server is encrypted to the public key that it reports, so that it alone can read it.
var (
	nodeKEM  = hpke.DHKEM(ecdh.X25519())
	nodeKDF  = hpke.HKDFSHA256()
	nodeAEAD = hpke.AES256GCM()
)

// NodeKey is the private key of a node.
type NodeKey struct{ private hpke.PrivateKey }

// LoadNodeKey reads the key of this node, and makes it where there is none. It is kept in a file, so that after a restart the
// node can read what it was handed before.
func LoadNodeKey(file string) (NodeKey, error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return makeNodeKey(file)
	}
	if err != nil {
		return NodeKey{}, fmt.Errorf("the key of this node: %w", err)
	}
	private, err := nodeKEM.NewPrivateKey(content)
	if err != nil {
		return NodeKey{}, fmt.Errorf("the key of this node, %s, is damaged: remove the file, and another one is made: %w", file, err)
	}
	return NodeKey{private}, nil
}

func makeNodeKey(file string) (NodeKey, error) {
	private, err := nodeKEM.GenerateKey()
	if err != nil {
		return NodeKey{}, err
	}
	content, err := private.Bytes()
	if err != nil {
		return NodeKey{}, err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return NodeKey{}, fmt.Errorf("the key of this node: %w", err)
	}
	if err := ReplaceFile(file, content); err != nil {
		return NodeKey{}, fmt.Errorf("the key of this node: %w", err)
	}
	return NodeKey{private}, nil
}

// Public is what others encrypt to.
func (k NodeKey) Public() string {
	return base64.StdEncoding.EncodeToString(k.private.PublicKey().Bytes())
}

// SealForNode encrypts a secret to the public key of a node. It is opened only for the same purpose.
func SealForNode(public, purpose string, secret []byte) (string, error) {
	content, err := base64.StdEncoding.DecodeString(public)
	if err != nil {
		return "", fmt.Errorf("the public key %.80q: %w", public, err)
	}
	to, err := nodeKEM.NewPublicKey(content)
	if err != nil {
		return "", fmt.Errorf("the public key %.80q: %w", public, err)
	}
	sealed, err := hpke.Seal(to, nodeKDF, nodeAEAD, []byte(purpose), secret)
	return base64.StdEncoding.EncodeToString(sealed), err
}

// Open decrypts what was sealed for this node.
func (k NodeKey) Open(sealed, purpose string) ([]byte, error) {
	content, err := base64.StdEncoding.DecodeString(sealed)
	if err != nil {
		return nil, err
	}
	secret, err := hpke.Open(k.private, nodeKDF, nodeAEAD, []byte(purpose), content)
	if err != nil {
		return nil, fmt.Errorf("it was encrypted to another key, or for another purpose: %w", err)
	}
	return secret, nil
}
