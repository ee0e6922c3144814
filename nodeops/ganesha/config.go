package ganesha

import (
	"fmt"
	"log/slog"
	"net/netip"
	"path"
	"strings"
	"time"
)

// Config configures a Server.
type Config struct {
	RunDir      string        // used by this server only, preferably on a tmpfs: it is meaningless after a reboot
	RecoveryDir string        // used by this server only, and persistent: the clients that may reclaim locks and opens
	Name        string        // of this server; clients continue after it has moved if the name is the same
	Port        uint16        // 0: 2049
	Clients     []string      // of exports that list none, until SetClients; empty: all
	Neighbours  []netip.Addr  // addresses that clients on this host may have; needed to reclaim locks after a move of the server
	Grace       time.Duration // grace period, in which only reclaims are granted; 0: 90 s
	Lease       time.Duration // time without renewal after which a client loses its state; 0: 60 s, at most Grace
	Interval    time.Duration // between two probes of the server; 0: 5 s
	Patience    time.Duration // timeout of a probe, after which the server counts as hung; 0: 30 s
	StartLimit  time.Duration // timeout of a start; 0: 5 min
	StopLimit   time.Duration // timeout of a stop, after which the server is killed; 0: 20 s
	Log         *slog.Logger  // nil: the default one
}

// The limits of Ganesha, and of the length of a socket address.
const (
	longestGrace     = 270 * time.Second
	longestLease     = 180 * time.Second
	longestDirectory = 90
)

// check validates the configuration and sets defaults.
func (c *Config) check() error {
	fill(&c.Port, 2049)
	fill(&c.Grace, 90*time.Second)
	fill(&c.Lease, min(c.Grace, 60*time.Second))
	fill(&c.Interval, 5*time.Second)
	fill(&c.Patience, 30*time.Second)
	fill(&c.StartLimit, 5*time.Minute)
	fill(&c.StopLimit, 20*time.Second)
	fill(&c.Log, slog.Default())
	for what, dir := range map[string]string{"the directory to run in": c.RunDir, "the directory for recovery": c.RecoveryDir} {
		if err := checkDirectory(dir); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	if err := (&Export{Clients: c.Clients}).checkClients(); err != nil {
		return err
	}
	switch {
	case c.Name == "" || len(c.Name) > longestName || strings.Trim(c.Name, nameAllows) != "":
		return fmt.Errorf("name %q of the NFS server: it must have 1 to %d letters, digits, dots, hyphens and underscores; give one that no other server has", c.Name, longestName)
	case c.Lease < time.Second || c.Lease > longestLease || c.Lease%time.Second != 0:
		return fmt.Errorf("lease of %s: whole seconds from 1s to %s are allowed; leave it out for a minute", c.Lease, longestLease)
	case c.Grace < c.Lease || c.Grace > longestGrace || c.Grace%time.Second != 0:
		return fmt.Errorf("grace period of %s: whole seconds from the lease, %s, to %s are allowed; leave it out for 90s", c.Grace, c.Lease, longestGrace)
	case c.Interval <= 0 || c.Patience <= 0 || c.StartLimit <= 0 || c.StopLimit <= 0:
		return fmt.Errorf("interval %s, patience %s, start limit %s, stop limit %s: all must be positive; leave them out for the defaults", c.Interval, c.Patience, c.StartLimit, c.StopLimit)
	}
	return nil
}

func fill[T comparable](value *T, usual T) {
	var none T
	if *value == none {
		*value = usual
	}
}

// checkDirectory allows only characters that need no quoting in the configurations of Ganesha and the bus, and in a
// D-Bus address.
func checkDirectory(dir string) error {
	if !path.IsAbs(dir) || path.Clean(dir) != dir || dir == "/" || len(dir) > longestDirectory || strings.Trim(dir, nameAllows+"/") != "" {
		return fmt.Errorf("%q: it must be an absolute path of at most %d letters, digits, dots, hyphens, underscores and slashes, and not the root; give another", dir, longestDirectory)
	}
	return nil
}

// address is where this host reaches the server.
func (c *Config) address() string { return fmt.Sprintf("127.0.0.1:%d", c.Port) }
