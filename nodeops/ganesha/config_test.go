package ganesha

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestConfig_MissingValuesGetDefaults(t *testing.T) {
	for grace, lease := range map[time.Duration]time.Duration{0: time.Minute, 30 * time.Second: 30 * time.Second} {
		s := check.Got(New(Config{RunDir: "/run/x", RecoveryDir: "/data/r", Name: "nfs.one", Grace: grace}))(t)
		if c := s.config; c.Port != 2049 || c.Lease != lease || c.Grace < c.Lease || c.Patience <= 0 || c.Interval <= 0 || c.Log == nil {
			t.Errorf("%+v", c)
		}
	}
}

func TestConfig_InvalidIsRefusedWithTheReason(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(*Config)
	}{
		{"the directory to run in", func(c *Config) { c.RunDir = "" }},
		{"the directory to run in", func(c *Config) { c.RunDir = "run" }},
		{"the directory to run in", func(c *Config) { c.RunDir = "/run/a b" }},
		{"the directory to run in", func(c *Config) { c.RunDir = "/run/<listen>" }},
		{"the directory to run in", func(c *Config) { c.RunDir = "/run/x,guid=1" }},
		{"at most 90", func(c *Config) { c.RunDir = "/" + strings.Repeat("a", 90) }},
		{"the directory for recovery", func(c *Config) { c.RecoveryDir = "/" }},
		{"the directory for recovery", func(c *Config) { c.RecoveryDir = `/data"; Graceless = true; "` }},
		{"that no other server has", func(c *Config) { c.Name = "" }},
		{"that no other server has", func(c *Config) { c.Name = `a"; Graceless = true; "` }},
		{"1s to 3m0s", func(c *Config) { c.Lease = 181 * time.Second }},
		{"1s to 3m0s", func(c *Config) { c.Lease = 1500 * time.Millisecond }},
		{"1s to 3m0s", func(c *Config) { c.Lease = -time.Second }},
		{"to 4m30s", func(c *Config) { c.Grace = 271 * time.Second }},
		{"from the lease, 1m0s", func(c *Config) { c.Grace, c.Lease = 59*time.Second, time.Minute }},
		{"all must be positive", func(c *Config) { c.Patience = -1 }},
		{"all must be positive", func(c *Config) { c.Interval = -1 }},
	} {
		config := Config{RunDir: "/run/x", RecoveryDir: "/data/r", Name: "nfs.one"}
		c.change(&config)
		if _, err := New(config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want an error with %s", config, err, c.want)
		}
	}
}
