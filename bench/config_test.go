package bench

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// config is a valid configuration.
func config() Config {
	return Config{
		StorageClass: "fast", AtOnce: []int{1, 3}, Repeat: 2, Size: resource.MustParse("64Mi"), Image: "busybox:1",
		Timeout: time.Minute, Version: "v1.2.3", Log: slog.New(slog.DiscardHandler),
	}
}

func TestConfig_InvalidNamesTheAllowedValues(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Config)
		want   []string
	}{
		"no class":        {func(c *Config) { c.StorageClass = "" }, []string{"storage class is missing", "kubectl get storageclasses"}},
		"no numbers":      {func(c *Config) { c.AtOnce = nil }, []string{"at once", "1,20,100"}},
		"none at once":    {func(c *Config) { c.AtOnce = []int{1, 0} }, []string{"0 volumes at once", "1 to 1000"}},
		"too many":        {func(c *Config) { c.AtOnce = []int{1001} }, []string{"1001 volumes", "1 to 1000"}},
		"a number twice":  {func(c *Config) { c.AtOnce = []int{5, 1, 5} }, []string{"5 volumes", "twice"}},
		"no repetition":   {func(c *Config) { c.Repeat = 0 }, []string{"0 repetitions", "1 to 1000"}},
		"no size":         {func(c *Config) { c.Size = resource.Quantity{} }, []string{"size 0", "64Mi"}},
		"a negative size": {func(c *Config) { c.Size = resource.MustParse("-1Gi") }, []string{"size -1Gi"}},
		"no image":        {func(c *Config) { c.Image = "" }, []string{"image is missing", "sh and sleep"}},
		"no time":         {func(c *Config) { c.Timeout = 0 }, []string{"timeout 0s", "5m"}},
		"two things":      {func(c *Config) { c.Repeat, c.Image = -1, "" }, []string{"-1 repetitions", "image"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := config()
			test.change(&c)
			_, err := New(c)
			if err == nil {
				t.Fatal("it is accepted")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
	if _, err := New(config()); err != nil {
		t.Errorf("what is allowed is refused: %v", err)
	}
}
