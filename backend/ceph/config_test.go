package ceph

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// secret has the form of a key.
const secret Key = "AQAAAAAAAAAAABAAsecretsecretsecretsecA=="

func valid() Config {
	return Config{Monitors: []string{"10.0.0.1:3300", "v1:10.0.0.2:6789"}, User: "holdfast", Key: secret, Pool: "rbd"}
}

func TestConfig_WhatCannotBeIsRefusedByName(t *testing.T) {
	c := valid()
	if err := c.Complete(); err != nil || c.Patience != DefaultPatience || c.Monitors[0] != "v2:10.0.0.1:3300" || c.Monitors[1] != "v1:10.0.0.2:6789" {
		t.Errorf("a valid one became %+v, %v", c, err)
	}
	for what, change := range map[string]func(*Config){
		"monitor":      func(c *Config) { c.Monitors = nil },
		"monitor \"x":  func(c *Config) { c.Monitors = []string{"x y"} },
		"user":         func(c *Config) { c.User = "" },
		"user \"a/":    func(c *Config) { c.User = "a/b" },
		"key":          func(c *Config) { c.Key = "" },
		"key of":       func(c *Config) { c.Key = secret + "\n" },
		"key of user":  func(c *Config) { c.Key = secret[:20] },
		"fsid":         func(c *Config) { c.FSID = "no" },
		"pool":         func(c *Config) { c.Pool = "a/b" },
		"namespace":    func(c *Config) { c.Namespace = "a b" },
		"user of node": func(c *Config) { c.NodeUser = "a b" },
		"monitors v1:": func(c *Config) { c.Secure, c.Monitors = true, c.Monitors[1:] },
	} {
		c := valid()
		change(&c)
		if err := c.Complete(); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), what) || strings.Contains(err.Error(), "secretsecret") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestKey_IsWrittenNowhere(t *testing.T) {
	c := valid()
	var logged strings.Builder
	slog.New(slog.NewJSONHandler(&logged, nil)).Info("m", "key", c.Key, "config", c)
	written := check.Got(json.Marshal(c))(t)
	for _, s := range []string{fmt.Sprint(c), fmt.Sprintf("%+v %#v %q %s", c, c, c.Key, c.Key), logged.String(), string(written)} {
		if strings.Contains(s, "secretsecret") {
			t.Errorf("the key is in %s", s)
		}
	}
}
