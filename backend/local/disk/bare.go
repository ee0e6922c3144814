package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// RefuseBare fails if path is the bare mount point of a pool's disk: wiping that directory would not wipe the disk.
// That the pool is on a disk follows from the record below dir, or from isDisk.
func RefuseBare(path, dir, pool string, isDisk bool) error {
	var stored []byte
	if pool != "" {
		var err error
		stored, err = os.ReadFile((&Host{Dir: dir}).file(pool))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("whether pool %s is a disk is not known: %w; nothing was removed", pool, err)
		}
	}
	if stored == nil && !isDisk {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(path, markFile)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	which := "of which this node has no record"
	var r record
	if json.Unmarshal(stored, &r) == nil && r.UUID != "" {
		which = fmt.Sprintf("UUID %s, was %s", r.UUID, r.Device)
	}
	return fmt.Errorf("pool %s is a disk (%s) that is not mounted: mount it at /var/lib/holdfast/pools/%s of the node and try again, "+
		"or leave the node out if its disk is gone; nothing was removed", pool, which, pool)
}
