package upgrade

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// target returns the image of an upgrade. A version is another tag of the running image.
func target(spec *v1beta1.StorageUpgradeSpec, current v1beta1.Image) (v1beta1.Image, error) {
	if spec.Image != "" {
		return spec.Image, nil
	}
	if spec.Version == "" {
		return "", errors.New("give spec.image, or spec.version")
	}
	name, _, _ := strings.Cut(string(current), "@")
	if name == "" {
		return "", fmt.Errorf("spec.version is %s, but the image that runs is not known: give spec.image", spec.Version)
	}
	// A colon before the last slash belongs to a port.
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name = name[:i]
	}
	return v1beta1.Image(name + ":" + spec.Version), nil
}

// version is the output of the program's command version --output=json.
type version struct {
	Version  string `json:"version"`
	Metadata struct {
		Writes int `json:"writes"` // the version of the format that it writes
		Reads  int `json:"reads"`  // the newest version that it can read
	} `json:"metadata"`
}

// askForVersion are the arguments with which an image prints its version.
var askForVersion = []string{"version", "--output=json"}

// parseVersion reads the last line of a log that is a version.
func parseVersion(log string) (version, error) {
	var found *version
	for line := range strings.Lines(log) {
		var v version
		if json.Unmarshal([]byte(line), &v) == nil && v.Metadata.Reads > 0 {
			found = &v
		}
	}
	if found == nil {
		return version{}, fmt.Errorf("it wrote %q", kube.Shorten(strings.Join(strings.Fields(log), " "), 200))
	}
	return *found, nil
}
