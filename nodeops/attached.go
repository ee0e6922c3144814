package nodeops

import (
	"context"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// An attached device is the block device of a volume's image: a loop device, or one of RBD.

var (
	attachedName   = regexp.MustCompile(`^(loop|rbd)[0-9]+$`)
	attachedNumber = regexp.MustCompile(`^[0-9]{1,10}:[0-9]{1,10}$`)
)

func attachedByNumber(number string) string {
	if !attachedNumber.MatchString(number) || strings.HasPrefix(number, "0:") { // of no device
		return ""
	}
	return deviceByNumber(number, attachedName)
}

// AttachedUnder is LoopUnder for any attached device.
func AttachedUnder(m *Mount) string { return attachedByNumber(numberUnder(m)) }

// AttachedNode is LoopNode for any attached device.
func AttachedNode(m *Mount) string { return attachedByNumber(numberOfNode(m, attachedName)) }

// IsOrphan returns whether m binds the node of a device that is gone. It shows nothing, until another device gets the number.
func IsOrphan(m *Mount) bool {
	return m.FSType == "devtmpfs" && strings.HasSuffix(m.Root, "//deleted")
}

// IsRBD returns whether an attached device is of RBD.
func IsRBD(device string) bool { return rbdName.MatchString(filepath.Base(device)) }

// GrowAttached updates the size of an attached device to that of its image. It waits for an answer of the cluster of an RBD
// device no longer than limit.
func GrowAttached(ctx context.Context, device string, limit time.Duration) error {
	if IsRBD(device) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return GrowRBD(ctx, device)
	}
	return GrowLoop(device)
}
