package local

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
)

// PoolConfig configures a pool.
type PoolConfig struct {
	Name           string
	Engine         string        // image (default) or directory, in any case
	Path           string        // an existing directory, preferably the root of a file system of its own
	Overcommit     float64       // factor for the promised bytes; 0 means 1.0
	Reserved       string        // kept free: bytes such as 10Gi, or a share such as 5% (default)
	TrashRetention time.Duration // how long a deleted volume can be restored; 0 means DefaultTrashRetention
	RequireMount   bool          // initialize a new pool only where a file system other than the root's is mounted
	// Expect is what the cluster remembers of the pool.
	Expect backend.PoolExpectation
	// HostProc is the /proc directory of a process in the host's namespaces, such as /host/proc/1. Empty if this process
	// is in them.
	HostProc string
}

// DefaultTrashRetention is how long a deleted volume can be restored, unless its space is needed earlier.
const DefaultTrashRetention = 24 * time.Hour

const poolKeys = "name, engine, path, overcommit, reserved, trashRetention, requireMount"

// ParsePool parses
// name=fast,engine=Image,path=/srv/fast[,overcommit=1.0][,reserved=5%][,trashRetention=24h][,requireMount=true].
// duration parses a duration.
func ParsePool(s string, duration func(string) (time.Duration, error)) (PoolConfig, error) {
	var c PoolConfig
	if err := backend.ParsePool(s, poolKeys, func(key, value string) error { return c.set(key, value, duration) }); err != nil {
		return c, err
	}
	return c, c.complete()
}

func (c *PoolConfig) set(key, value string, duration func(string) (time.Duration, error)) (err error) {
	switch key {
	case "name":
		c.Name = value
	case "engine":
		c.Engine = value
	case "path":
		c.Path = value
	case "reserved":
		c.Reserved = value
	case "overcommit":
		if c.Overcommit, err = strconv.ParseFloat(value, 64); err != nil {
			return fmt.Errorf("overcommit %s is not a number such as 1.5", backend.Quote(value))
		}
		if c.Overcommit == 0 {
			return fmt.Errorf("overcommit 0 would promise nothing; it must be above 0, at most %d", mostOvercommit)
		}
	case "trashRetention":
		c.TrashRetention, err = backend.ParseTrashRetention(value, duration)
		return err
	case "requireMount":
		if c.RequireMount, err = strconv.ParseBool(value); err != nil {
			return fmt.Errorf("requireMount %s is not true or false", backend.Quote(value))
		}
	default:
		return fmt.Errorf("unknown key %s; the keys are: %s", backend.Quote(key), poolKeys)
	}
	return nil
}

const mostOvercommit = 100

var poolName = regexp.MustCompile("^" + backend.PoolName + "$")

// complete validates the configuration and sets its defaults.
func (c *PoolConfig) complete() error {
	c.Engine = strings.ToLower(cmp.Or(c.Engine, "image"))
	if c.Overcommit == 0 {
		c.Overcommit = 1
	}
	c.Reserved = cmp.Or(c.Reserved, backend.DefaultReserve)
	if c.TrashRetention == 0 {
		c.TrashRetention = DefaultTrashRetention
	}
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w pool %s: "+format, append([]any{backend.ErrInvalid, backend.Quote(c.Name)}, args...)...)
	}
	switch {
	case !poolName.MatchString(c.Name):
		return invalid("name must be 1 to 63 of a-z, 0-9 and -, and not begin with -")
	case c.Engine != "image" && c.Engine != "directory":
		return invalid("engine %s; it must be Image or Directory", backend.Quote(c.Engine))
	case !filepath.IsAbs(c.Path):
		return invalid("path %s must be absolute", backend.Quote(c.Path))
	case !(c.Overcommit > 0 && c.Overcommit <= mostOvercommit): // also refuses NaN
		return invalid("overcommit %v; it must be above 0, at most %d", c.Overcommit, mostOvercommit)
	case c.TrashRetention < 0 && c.TrashRetention != backend.NoTrash:
		return invalid("trashRetention %s; it must be a time such as 24h, or 0s to keep nothing", c.TrashRetention)
	}
	c.Path = filepath.Clean(c.Path)
	if _, err := backend.ParseReserve(c.Reserved); err != nil {
		return invalid("%w", err)
	}
	return nil
}
