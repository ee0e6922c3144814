package export

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops/ganesha"
)

// The labels that control the export of a volume. Unknown labels with the same prefix are refused.
const (
	labelPrefix   = "export.holdfast.dev/"
	LabelSquash   = labelPrefix + "squash"    // no_root_squash, root_squash or all_squash
	LabelReadOnly = labelPrefix + "read-only" // true or false
	LabelClients  = labelPrefix + "clients"   // addresses and networks, separated by commas; empty: those of the server
	LabelAnonUID  = labelPrefix + "anon-uid"  // user id for squashed users
	LabelAnonGID  = labelPrefix + "anon-gid"
	LabelGID      = labelPrefix + "gid"  // group of a new volume's root directory
	LabelMode     = labelPrefix + "mode" // mode of a new volume's root directory, octal; 2770 if a gid is set without a mode
)

// Settings configure the export of a volume.
type Settings struct {
	Squash   ganesha.Squash // empty: no_root_squash
	ReadOnly bool
	Clients  []string // addresses and networks; empty: the exporter's default
	AnonUID  *uint32
	AnonGID  *uint32
}

// top has owner and mode of a new volume's root directory; nil keeps what the file system made.
type top struct {
	gid  *uint32
	mode *uint32
}

// groupMode lets the group write, and new files inherit the group.
const groupMode = 0o2770

func (s *Settings) check() error {
	e := s.export("any", identity{ID: 1, Filesystem: "1.2"}, "/any")
	if err := e.Check(); err != nil {
		return fmt.Errorf("%w settings: %w", backend.ErrInvalid, err)
	}
	return nil
}

// export returns the exporter's settings for a volume that is mounted at dir.
func (s *Settings) export(volume backend.ID, known identity, dir string) ganesha.Export {
	return ganesha.Export{
		ID: known.ID, Path: dir, Pseudo: PathOf(volume), Filesystem: known.Filesystem, Squash: s.Squash, ReadOnly: s.ReadOnly,
		Clients: slices.Clone(s.Clients), AnonUID: s.AnonUID, AnonGID: s.AnonGID,
	}
}

// PathOf returns the path that clients mount.
func PathOf(volume backend.ID) string { return "/" + string(volume) }

// longestClient is the length of the longest IPv6 network.
const longestClient = len("0000:0000:0000:0000:0000:0000:0000:0000/128")

var readers = map[string]func(*Settings, *top, string) error{
	LabelSquash: func(s *Settings, _ *top, value string) error {
		s.Squash = ganesha.Squash(value)
		if value == "" {
			return fmt.Errorf("it is empty; leave the label out, or give %s, %s or %s", ganesha.NoRootSquash, ganesha.RootSquash, ganesha.AllSquash)
		}
		return nil
	},
	LabelReadOnly: func(s *Settings, _ *top, value string) error {
		if value != "true" && value != "false" {
			return fmt.Errorf("it must be true or false")
		}
		s.ReadOnly = value == "true"
		return nil
	},
	LabelClients: func(s *Settings, _ *top, value string) error {
		s.Clients = nil
		for client := range strings.SplitSeq(value, ",") {
			client = strings.TrimSpace(client)
			if len(client) > longestClient {
				return fmt.Errorf("a client has %d bytes; an address or network has at most %d", len(client), longestClient)
			}
			if client != "" {
				s.Clients = append(s.Clients, client)
			}
		}
		if len(s.Clients) == 0 && strings.TrimSpace(value) != "" {
			return fmt.Errorf("it names no client; leave it empty for those of the server")
		}
		return nil
	},
	LabelAnonUID: func(s *Settings, _ *top, value string) (err error) { s.AnonUID, err = number(value); return err },
	LabelAnonGID: func(s *Settings, _ *top, value string) (err error) { s.AnonGID, err = number(value); return err },
	LabelGID:     func(_ *Settings, t *top, value string) (err error) { t.gid, err = number(value); return err },
	LabelMode:    func(_ *Settings, t *top, value string) (err error) { t.mode, err = octal(value); return err },
}

// settings applies the labels of a volume to the defaults.
func (c *Config) settings(labels map[string]string) (Settings, top, error) {
	s, t := c.Defaults, top{}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if !strings.HasPrefix(key, labelPrefix) {
			continue
		}
		read := readers[key]
		if read == nil {
			return s, t, fmt.Errorf("%w label %s; these are known: %s", backend.ErrInvalid, backend.Quote(key), strings.Join(slices.Sorted(maps.Keys(readers)), ", "))
		}
		if err := read(&s, &t, labels[key]); err != nil {
			return s, t, fmt.Errorf("%w label %s=%s: %w", backend.ErrInvalid, key, backend.Quote(labels[key]), err)
		}
	}
	if t.gid != nil && t.mode == nil {
		t.mode = new(uint32(groupMode))
	}
	return s, t, s.check()
}

// number parses a user or group id. The kernel uses the highest number for "none".
func number(value string) (*uint32, error) {
	n, err := strconv.ParseUint(value, 10, 32)
	if err != nil || n == math.MaxUint32 || value != strconv.FormatUint(n, 10) {
		return nil, fmt.Errorf("it must be a number from 0 to %d", uint32(math.MaxUint32-1))
	}
	return new(uint32(n)), nil
}

func octal(value string) (*uint32, error) {
	n, err := strconv.ParseUint(value, 8, 32)
	if err != nil || n > 0o3777 || len(value) < 3 || len(value) > 4 {
		return nil, fmt.Errorf("it must be 3 or 4 octal digits, at most 3777, such as 2775: set-group-ID and sticky are allowed, set-user-ID is not")
	}
	return new(uint32(n)), nil
}
