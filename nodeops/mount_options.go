package nodeops

import (
	"fmt"
	"slices"
	"strings"
)

// mountRefusals are options that would mount something else, refer to another device or file, or allow the content of a
// volume to panic the host.
var mountRefusals = []string{
	"bind", "rbind", "move", "remount", "loop", "offset", "sizelimit", "encryption", "helper", "uhelper", "verity",
	"logdev", "rtdev", "journal_dev", "journal_path", "device", "errors=panic", "fatal_errors",
}

// CheckMountOptions validates options for MountFS and Bind, each of which is one element.
func CheckMountOptions(options []string) error {
	for _, o := range options {
		key, value, _ := strings.Cut(o, "=")
		switch {
		case slices.Contains(mountRefusals, key), slices.Contains(mountRefusals, o), strings.HasPrefix(strings.ToLower(key), "x-mount."):
			return fmt.Errorf("mount option %q is not allowed: it changes what is mounted, or can stop the host", shorten(o))
		case key == "", strings.HasPrefix(key, "-"), strings.ContainsFunc(o, control), strings.ContainsAny(key, `," \`):
			return fmt.Errorf("mount option %q is malformed; give one option as one element, like noatime or commit=30", shorten(o))
		case strings.Contains(value, ",") && !quotedLabel(key, value):
			return fmt.Errorf("mount option %q contains a comma; give one option as one element", shorten(o))
		}
	}
	return nil
}

func control(r rune) bool { return r < ' ' || r == 0x7f }

// quotedLabel recognizes an SELinux label in quotes, in which mount(8) does not split at commas.
func quotedLabel(key, value string) bool {
	inner, open := strings.CutPrefix(value, `"`)
	inner, closed := strings.CutSuffix(inner, `"`)
	return strings.HasSuffix(key, "context") && open && closed && !strings.Contains(inner, `"`)
}

// shorten truncates a value from outside for a message.
func shorten(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
