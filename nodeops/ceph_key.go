package nodeops

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// CephKey is the secret key of a user of a Ceph cluster. It prints as a placeholder.
type CephKey struct{ secret []byte }

const hidden = "(hidden)"

func (CephKey) String() string       { return hidden }
func (CephKey) GoString() string     { return hidden }
func (CephKey) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText keeps a key out of all that is encoded.
func (CephKey) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// ParseCephKey reads a key as ceph auth get-key prints it, or the keyring of one user. Its errors have nothing of it.
func ParseCephKey(text string) (CephKey, error) {
	const least, most = 12 + 16, 1 << 10 // its head and the shortest key; more than any
	encoded, users := strings.TrimSpace(text), 0
	if strings.HasPrefix(encoded, "[") {
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			switch {
			case strings.HasPrefix(name, "["):
				users++
			case strings.TrimSpace(name) == "key":
				encoded = strings.TrimSpace(value)
			}
		}
	}
	secret, err := base64.StdEncoding.DecodeString(encoded)
	switch {
	case users > 1:
		return CephKey{}, fmt.Errorf("the keyring is of %d users; give that of one, as ceph auth get client.NAME prints it", users)
	case err != nil || len(secret) < least || len(secret) > most:
		return CephKey{}, errors.New("it is no key of Ceph; give what ceph auth get-key client.NAME prints")
	}
	return CephKey{secret}, nil
}

// ReadCephKey reads a key from a file that its owner alone may read, and no other write. It follows links that stay in the
// directory of the file, as those of a mounted Secret do, and no others.
func ReadCephKey(path string) (CephKey, error) {
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return CephKey{}, fmt.Errorf("reading a key of Ceph: %w", err)
	}
	defer dir.Close()
	f, err := dir.OpenFile(filepath.Base(path), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return CephKey{}, fmt.Errorf("reading a key of Ceph in %s: %w", filepath.Dir(path), err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return CephKey{}, err
	}
	if mode := info.Mode(); mode != 0o400 {
		return CephKey{}, fmt.Errorf("the key of Ceph in %s: its mode is %s, and must be that of a file that its owner alone can read; run chmod 0400 %[1]s", path, mode)
	}
	const most = 4 << 10
	text, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return CephKey{}, err
	}
	key, err := ParseCephKey(string(text))
	if err != nil {
		return CephKey{}, fmt.Errorf("the key of Ceph in %s: %w", path, err)
	}
	return key, nil
}

// keyDescription is the name under which the kernel finds the key; it is no secret, and each thread has its own.
const keyDescription = "holdfast"

// addToThread puts the key where only the calling goroutine's thread finds it, and what it calls. The thread ends with the
// goroutine, and with it its keyring; the clients of the kernel have a copy by then.
func (k CephKey) addToThread() error {
	runtime.LockOSThread() // and never unlocked
	_, err := unix.AddKey("ceph", keyDescription, k.secret, unix.KEY_SPEC_THREAD_KEYRING)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENODEV):
		return &CephClientError{Module: "libceph", err: err}
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("a key for the client of Ceph: %w: a seccomp profile or a security module forbids add_key to this process, which a privileged container is allowed", err)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("a key for the client of Ceph: the kernel does not take it for one: %w", err)
	case errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("a key for the client of Ceph: %w: raise the quotas of keys, /proc/sys/kernel/keys/root_maxkeys and root_maxbytes", err)
	}
	return fmt.Errorf("a key for the client of Ceph: %w", err)
}
