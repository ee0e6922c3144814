// Package ceph connects to a Ceph cluster. The engines below it keep volumes there: as images (rbd) and as directories of a
// file system (cephfs).
//
// What speaks to Ceph needs cgo and Ceph's libraries, and is built with the tag ceph; what is read without them is not
// tagged.
package ceph

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
)

// Config says where a cluster is, and as whom to speak to it.
type Config struct {
	Monitors   []string // HOST:PORT, or as in ceph.conf: v2:HOST:PORT, [v2:HOST:PORT,v1:HOST:PORT]
	FSID       string   // of the cluster; another one that answers there is refused. Empty: any is taken
	User       string   // without "client."
	Key        Key
	NodeUser   string // as whom nodes use volumes, without "client."; with a point at its end: as backend.Ceph has it; empty: User
	Secure     bool   // all that is sent is encrypted, which takes monitors with the messenger v2
	Pool       string // of images
	Namespace  string // in that pool; may be empty
	DataPool   string // where the content of images is, if it is not the pool
	FileSystem string
	// Patience is how long a call may take before its caller learns that the cluster does not answer; 0: DefaultPatience.
	Patience time.Duration
}

// DefaultPatience is short for a cluster and long for a caller that retries.
const DefaultPatience = 10 * time.Second

// Key is a secret: it is written nowhere.
type Key string

const redacted = "(secret)"

func (Key) String() string               { return redacted }
func (Key) GoString() string             { return redacted }
func (Key) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (Key) MarshalText() ([]byte, error) { return []byte(redacted), nil }

var (
	nameOfUser = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)
	nameOfPool = regexp.MustCompile(`^[^/@\s\x00-\x1f]+$`)
	fsid       = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	monitor    = regexp.MustCompile(`^[A-Za-z0-9.:,_\[\]-]+$`)
)

// Complete chooses what was left to choose, and refuses what cannot be.
func (c *Config) Complete() error {
	if err := c.CompleteButKey(); err != nil {
		return err
	}
	return c.Key.Check(c.User)
}

// Check refuses what is no key, for that user: Ceph's library would print it.
func (k Key) Check(user string) error {
	const head, number = 12, 2 // kind, time and length come before the secret
	b, err := base64.StdEncoding.DecodeString(string(k))
	if err != nil || strings.ContainsAny(string(k), "\r\n") || len(b) <= head || int(binary.LittleEndian.Uint16(b[head-number:])) != len(b)-head {
		return fmt.Errorf("%w key of user %s: it must be what `ceph auth get-key client.%s` prints, and nothing else", backend.ErrInvalid, user, user)
	}
	return nil
}

// CompleteButKey is Complete for who does not have the key yet.
func (c *Config) CompleteButKey() error {
	c.Patience = cmp.Or(c.Patience, DefaultPatience)
	if len(c.Monitors) == 0 {
		return fmt.Errorf("%w: no monitor of the Ceph cluster is named; give the addresses that `ceph mon dump` prints", backend.ErrInvalid)
	}
	for i, m := range c.Monitors {
		if !monitor.MatchString(m) {
			return fmt.Errorf("%w monitor %s: it must be HOST:PORT", backend.ErrInvalid, backend.Quote(m))
		}
		c.Monitors[i] = withProtocol(m)
	}
	if len(c.Spoken()) == 0 {
		return fmt.Errorf("%w monitors %s: only the messenger v2 encrypts, and none has it; give the addresses v2:HOST:PORT that `ceph mon dump` prints, or leave out secure", backend.ErrInvalid, strings.Join(c.Monitors, ", "))
	}
	for _, check := range []struct {
		what, is string
		valid    *regexp.Regexp
		optional bool
	}{
		{"user", c.User, nameOfUser, false},
		{"user of nodes", c.NodeUser, nameOfUser, true},
		{"fsid", c.FSID, fsid, true},
		{"pool", c.Pool, nameOfPool, true},
		{"namespace", c.Namespace, nameOfPool, true},
		{"data pool", c.DataPool, nameOfPool, true},
		{"file system", c.FileSystem, nameOfPool, true},
	} {
		if (!check.optional || check.is != "") && !check.valid.MatchString(check.is) {
			return fmt.Errorf("%w %s %s: it must match %s", backend.ErrInvalid, check.what, backend.Quote(check.is), check.valid)
		}
	}
	return nil
}

// Spoken are the monitors by the messengers that may be spoken.
func (c *Config) Spoken() (all []string) {
	for _, m := range c.Monitors {
		if !c.Secure || strings.Contains(m, "v2:") {
			all = append(all, m)
		}
	}
	return all
}

// ForNodes is the cluster as nodes reach it.
func (c Config) ForNodes() backend.Ceph {
	return backend.Ceph{FSID: c.FSID, Monitors: c.Monitors, User: cmp.Or(c.NodeUser, c.User), Secure: c.Secure}
}

// withProtocol names the protocol of an address whose port is that of version 2, which Ceph does not guess.
func withProtocol(m string) string {
	const v2 = "3300"
	if _, port, err := net.SplitHostPort(m); err == nil && port == v2 && !strings.HasPrefix(m, "v") {
		return "v2:" + m
	}
	return m
}
