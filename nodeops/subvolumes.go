package nodeops

import (
	"fmt"
	"os"
)

// HoldsSubvolumes says whether a subvolume has others in it. Any user who may write to it can create them, and its
// limit does not count their content.
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
