package nodeops

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestNodeKey_OpensWhatWasSealedForItBeforeARestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "deep", "key")
	own := check.Got(LoadNodeKey(file))(t)
	sealed, err := SealForNode(own.Public(), "pool", []byte("secret"))
	if err != nil || strings.Contains(sealed, "secret") {
		t.Fatalf("sealed is %q, %v", sealed, err)
	}
	again, err := LoadNodeKey(file)
	if err != nil || again.Public() != own.Public() {
		t.Fatalf("after a restart it is %v, %v", again, err)
	}
	if secret, err := again.Open(sealed, "pool"); string(secret) != "secret" || err != nil {
		t.Errorf("opened is %q, %v", secret, err)
	}
	if mode, err := os.Stat(file); err != nil || mode.Mode() != 0o600 {
		t.Errorf("the mode of the file is %v, %v", mode, err)
	}
}

func TestNodeKey_OpensNothingElse(t *testing.T) {
	dir := t.TempDir()
	own := check.Got(LoadNodeKey(filepath.Join(dir, "own")))(t)
	other := check.Got(LoadNodeKey(filepath.Join(dir, "other")))(t)
	sealed := check.Got(SealForNode(other.Public(), "pool", []byte("secret")))(t)
	for what, open := range map[string]func() ([]byte, error){
		"what another node was handed": func() ([]byte, error) { return own.Open(sealed, "pool") },
		"it for another purpose":       func() ([]byte, error) { return other.Open(sealed, "another pool") },
		"part of it":                   func() ([]byte, error) { return other.Open(sealed[:len(sealed)-4], "pool") },
		"no base64":                    func() ([]byte, error) { return other.Open("?", "pool") },
	} {
		if secret, err := open(); err == nil {
			t.Errorf("%s is opened: %q", what, secret)
		}
	}
	for _, public := range []string{"", "?", "AAAA"} {
		if sealed, err := SealForNode(public, "pool", nil); err == nil {
			t.Errorf("%q is taken for a public key: %s", public, sealed)
		}
	}
}

func TestNodeKey_DamagedFileIsNamedAndKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	check.OK(t, os.WriteFile(file, []byte("short"), 0o600))
	check.Fails(t, check.ErrorOf(LoadNodeKey(file)), nil, file)
	holds(t, file, "short")
}
