// Package bench measures how long the volumes of a StorageClass take: until a claim is bound, until its pod is Running,
// and until a deleted volume is gone; one at a time and many at once. It knows no driver, so that all are measured in
// the same way. It also measures pods without claims, so that clusters can be compared.
package bench

import (
	"errors"
	"fmt"
	"log/slog"
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

// The limits of a run.
const (
	mostAtOnce = 1000
	mostRepeat = 1000
)

func (c *Config) validate() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.StorageClass == "" {
		wrong("the storage class is missing: name one that kubectl get storageclasses lists")
	}
	if len(c.AtOnce) == 0 {
		wrong("no number of volumes at once: give one at least, such as 1,20,100")
	}
	given := map[int]bool{}
	for _, n := range c.AtOnce {
		if n < 1 || n > mostAtOnce {
			wrong("%d volumes at once: it must be 1 to %d", n, mostAtOnce)
		}
		if given[n] {
			wrong("%d volumes at once are given twice: name each number once", n)
		}
		given[n] = true
	}
	if c.Repeat < 1 || c.Repeat > mostRepeat {
		wrong("%d repetitions: it must be 1 to %d", c.Repeat, mostRepeat)
	}
	if c.Size.Sign() <= 0 {
		wrong("size %s: it must be above 0, such as 64Mi", c.Size.String())
	}
	if c.Image == "" {
		wrong("the image is missing: name one that has sh and sleep, such as busybox:1")
	}
	if c.Timeout <= 0 {
		wrong("timeout %s: it must be above 0, such as 5m", c.Timeout)
	}
	return errors.Join(errs...)
}

// repeats returns how many rounds of n volumes run.
func (c *Config) repeats(n int) int {
	if n == 1 {
		return c.Repeat
	}
	return 1
}
