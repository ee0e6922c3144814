//go:build ceph

package site

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
)

// longestKey is far more than any key has.
const longestKey = 4 << 10

// readKey reads the key of an account as the file has it now.
func readKey(file string, of account) (ceph.Key, error) {
	refuse := func(why string) error {
		return fmt.Errorf("%w: the key of client.%s, file %s: %s; it must be what `ceph auth get-key client.%s` prints, which is in the secret of %s",
			backend.ErrUnavailable, of.user, file, why, of.user, of.secret)
	}
	f, err := os.Open(file)
	if err != nil {
		return "", refuse(err.Error())
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, longestKey+1))
	if err != nil {
		return "", refuse(err.Error())
	}
	key := ceph.Key(strings.TrimSpace(string(content)))
	switch {
	case len(content) > longestKey:
		return "", refuse("it is too long for a key")
	case key == "":
		return "", refuse("it is empty")
	case key.Check(of.user) != nil:
		return "", refuse("it does not hold a key")
	}
	return key, nil
}
