package nodeops

import (
	"fmt"
	"os"
)

// HoldsSubvolumes returns whether a subvolume contains others. Users with write access can create them, and the limit
// does not include their content.
func HoldsSubvolumes(path string) (holds bool, err error) {
	err = onSubvolume(path, func(root *os.File, id uint64) error {
		inner, err := searchRoots(root, id, rootRef)
		holds = len(inner) > 0
		return err
	})
	if err != nil {
		return false, fmt.Errorf("looking for subvolumes in %s: %w", path, err)
	}
	return holds, nil
}
