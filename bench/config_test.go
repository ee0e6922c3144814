package bench

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// config is a valid configuration.
func config() Config {
	return Config{
		StorageClass: "fast", AtOnce: []int{1, 3}, Repeat: 2, Size: resource.MustParse("64Mi"), Image: "busybox:1",
		Timeout: time.Minute, Version: "v1.2.3", Log: slog.New(slog.DiscardHandler),
	}
}

func TestConfig_InvalidNamesTheAllowedValues(t *testing.T) {
	for _, test := range []struct {
		change func(*Config)
		want   []string
	}{
		{func(c *Config) { c.StorageClass = "" }, []string{"storage class is missing", "kubectl get storageclasses"}},
		{func(c *Config) { c.AtOnce = nil }, []string{"at once", "1,20,100"}},
		{func(c *Config) { c.AtOnce = []int{1, 0} }, []string{"0 volumes at once", "1 to 1000"}},
		{func(c *Config) { c.AtOnce = []int{1001} }, []string{"1001 volumes", "1 to 1000"}},
		{func(c *Config) { c.AtOnce = []int{5, 1, 5} }, []string{"5 volumes", "twice"}},
		{func(c *Config) { c.Repeat = 0 }, []string{"0 repetitions", "1 to 1000"}},
		{func(c *Config) { c.Size = resource.Quantity{} }, []string{"size 0", "64Mi"}},
		{func(c *Config) { c.Size = resource.MustParse("-1Gi") }, []string{"size -1Gi"}},
		{func(c *Config) { c.Image = "" }, []string{"image is missing", "sh and sleep"}},
		{func(c *Config) { c.Timeout = -time.Second }, []string{"timeout -1s", "5m"}},
		{func(c *Config) { c.Repeat, c.Image = -1, "" }, []string{"-1 repetitions", "image"}},
	} {
		c := config()
		test.change(&c)
		_, err := New(c)
		for _, want := range test.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
	}
	check.Got(New(config()))(t)
}
