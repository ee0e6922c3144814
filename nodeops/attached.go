package nodeops

import (
	"path/filepath"
	"regexp"
)

// An attached device is one that a volume is made a disk by: a loop device, or one of RBD.

var (
	attachedName   = regexp.MustCompile(`^(loop|rbd)[0-9]+$`)
	attachedNumber = regexp.MustCompile(`^[0-9]{1,10}:[0-9]{1,10}$`)
)

func attachedByNumber(number string) string {
	if !attachedNumber.MatchString(number) {
		return ""
	}
	return deviceByNumber(number, attachedName)
}

// AttachedUnder is LoopUnder of any attached device.
func AttachedUnder(m *Mount) string { return attachedByNumber(numberUnder(m)) }

// AttachedNode is LoopNode of any attached device.
func AttachedNode(m *Mount) string { return attachedByNumber(numberOfNode(m, attachedName)) }

// IsRBD says whether an attached device is of RBD.
func IsRBD(device string) bool { return rbdName.MatchString(filepath.Base(device)) }

// GrowAttached makes an attached device as large as its image.
func GrowAttached(device string) error {
	if IsRBD(device) {
		return GrowRBD(device)
	}
	return GrowLoop(device)
}
