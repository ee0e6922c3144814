// Package bench measures how long the volumes of a StorageClass take: until a claim is bound, until its pod is Running,
// and until a deleted volume is gone; one at a time and many at once. It knows no driver, so that all are measured in
// the same way. It also measures pods without claims, so that clusters can be compared.
package bench

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"
)

// Config configures a Bench.
type Config struct {
	// Client must not have a rate limit, which would be measured.
	Client       kubernetes.Interface
	StorageClass string
	AtOnce       []int // number of volumes in each round
	Repeat       int   // number of rounds with one volume; other rounds run once
	Size         resource.Quantity
	Image        string        // must contain sh and sleep
	Node         string        // for all pods; empty: chosen by the scheduler
	Timeout      time.Duration // of each step of a round, and of the removal
	Version      string        // of this program, for the result
	Log          *slog.Logger  // for progress
}

const most = 1000

func (c *Config) validate() error {
	var errs []error
	for _, rule := range []struct {
		broken bool
		says   string
	}{
		{c.StorageClass == "", "the storage class is missing: name one that kubectl get storageclasses lists"},
		{len(c.AtOnce) == 0, "no number of volumes at once: give one at least, such as 1,20,100"},
		{c.Repeat < 1 || c.Repeat > most, fmt.Sprintf("%d repetitions: it must be 1 to %d", c.Repeat, most)},
		{c.Size.Sign() <= 0, fmt.Sprintf("size %s: it must be above 0, such as 64Mi", c.Size.String())},
		{c.Image == "", "the image is missing: name one that has sh and sleep, such as busybox:1"},
		{c.Timeout <= 0, fmt.Sprintf("timeout %s: it must be above 0, such as 5m", c.Timeout)},
	} {
		if rule.broken {
			errs = append(errs, errors.New(rule.says))
		}
	}
	for i, n := range c.AtOnce {
		if n < 1 || n > most {
			errs = append(errs, fmt.Errorf("%d volumes at once: it must be 1 to %d", n, most))
		}
		if slices.Contains(c.AtOnce[:i], n) {
			errs = append(errs, fmt.Errorf("%d volumes at once are given twice: name each number once", n))
		}
	}
	return errors.Join(errs...)
}
