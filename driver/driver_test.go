package driver

import (
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/backend/backendtest"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestConfig_InvalidIsRefusedByName(t *testing.T) {
	good := Config{NodeID: "node-a", Endpoint: "unix:///run/x/csi.sock", Backend: backendtest.NewMemory()}
	for name, test := range map[string]struct {
		adjust func(*Config)
		want   string
	}{
		"tcp endpoint":        {func(c *Config) { c.Endpoint = "tcp://127.0.0.1:9000" }, `"tcp://127.0.0.1:9000"`},
		"no endpoint":         {func(c *Config) { c.Endpoint = "" }, `endpoint ""`},
		"directory endpoint":  {func(c *Config) { c.Endpoint = "unix:///run/holdfast/" }, `"unix:///run/holdfast/"`},
		"long endpoint":       {func(c *Config) { c.Endpoint = "unix:///" + strings.Repeat("p", 107) }, "107 bytes"},
		"no node":             {func(c *Config) { c.NodeID = "" }, `node id ""`},
		"node with a slash":   {func(c *Config) { c.NodeID = "a/b" }, `"a/b"`},
		"node of 64 bytes":    {func(c *Config) { c.NodeID = strings.Repeat("n", 64) }, "1 to 63"},
		"driver with a space": {func(c *Config) { c.Name = "a b" }, `"a b"`},
		"negative volumes":    {func(c *Config) { c.MaxVolumes = -1 }, "-1"},
		"no backend":          {func(c *Config) { c.Backend = nil }, "backend"},
	} {
		t.Run(name, func(t *testing.T) {
			c := good
			test.adjust(&c)
			if _, err := New(c); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error that names %s", err, test.want)
			}
		})
	}
	d := check.Got(New(good))(t)
	if d.Name != DefaultName || d.StopTimeout != DefaultStopTimeout {
		t.Errorf("defaults are %q and %s", d.Name, d.StopTimeout)
	}
}

func TestEndpoint_OfBothFormsIsTheSamePath(t *testing.T) {
	for _, endpoint := range []string{"unix:///run/h/csi.sock", "unix:/run/h/csi.sock", "unix:///run/h/../h/csi.sock"} {
		if path, err := SocketPath(endpoint); err != nil || path != "/run/h/csi.sock" {
			t.Errorf("SocketPath(%q) = %q, %v", endpoint, path, err)
		}
	}
}
