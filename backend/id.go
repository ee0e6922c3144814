package backend

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"regexp"
	"strings"
)

// ID identifies a volume, snapshot or group. IDs come only from ParseID and IDFor, so that an ID is safe as a file
// name.
type ID string

const (
	maxID   = 63
	maxName = 4096
)

const idText = `[a-z0-9][a-z0-9-]{0,62}`

var idPattern = regexp.MustCompile("^" + idText + "$")

// PoolName is the expression of a pool's name: like an ID, with the number of its device where the pool has several.
const PoolName = idText + `([.][0-9]{1,2})?`

// IsID returns whether a text is the ID of a volume, or the name of a pool that has no number.
func IsID(s string) bool { return idPattern.MatchString(s) }

// ParseID validates an ID from outside.
func ParseID(s string) (ID, error) {
	if !IsID(s) {
		return "", fmt.Errorf("%w id %s: it must be 1 to %d of a-z, 0-9 and -, and not begin with -", ErrInvalid, Quote(s), maxID)
	}
	return ID(s), nil
}

// IDFor derives an ID from the name in a request: the name itself if it is a valid ID, otherwise its valid characters
// and a digest of the name.
func IDFor(name string) (ID, error) {
	switch {
	case name == "":
		return "", fmt.Errorf("%w name: it is empty", ErrInvalid)
	case len(name) > maxName:
		return "", fmt.Errorf("%w name %s: %d bytes, at most %d are allowed", ErrInvalid, Quote(name), len(name), maxName)
	case IsID(name):
		return ID(name), nil
	}
	sum := sha256.Sum256([]byte(name))
	digest := strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:20]))
	kept := strings.Trim(keepable.ReplaceAllString(strings.ToLower(name), "-"), "-")
	if room := maxID - len(digest) - 1; len(kept) > room {
		kept = strings.Trim(kept[:room], "-")
	}
	if kept == "" {
		return ID(digest), nil
	}
	return ID(kept + "-" + digest), nil
}

var keepable = regexp.MustCompile(`[^a-z0-9]+`)

// Quote formats a value from outside for a message: escaped, and truncated if long.
func Quote(s string) string {
	const most = 80
	if len(s) > most {
		return fmt.Sprintf("%q... (%d bytes)", s[:most], len(s))
	}
	return fmt.Sprintf("%q", s)
}
