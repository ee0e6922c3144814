package provisioner

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
)

// OnDelete says what becomes of the data when a PersistentVolume with the reclaim policy Delete is no longer wanted.
type OnDelete string

const (
	// DeleteData closes the export and removes the volume.
	DeleteData OnDelete = "delete"
	// RetainData keeps the volume and its export as they are; only the PersistentVolume goes.
	RetainData OnDelete = "retain"
	// ArchiveData keeps a snapshot of the volume, and removes the volume and its export.
	ArchiveData OnDelete = "archive"
)

// The ways of an export to treat the users of its clients.
const (
	noRootSquash = "no_root_squash"
	rootSquash   = "root_squash"
	allSquash    = "all_squash"
)

// parameters are what a StorageClass says. Zero values leave the choice to the server.
type parameters struct {
	server     string
	gid        string // a number above 0 in decimals
	squash     string
	rootSquash bool // squash was given by the key rootSquash
	inodes     uint64
	onDelete   OnDelete
}

// setters read the parameters, each into its field.
var setters = map[string]func(*parameters, string) error{
	"server":     setServer,
	"gid":        setGID,
	"rootSquash": setRootSquash,
	"squash":     setSquash,
	"inodes":     setInodes,
	"onDelete":   setOnDelete,
}

// elsewhere tells where keys belong that are often written here by mistake, by how they are spelled in lower case.
var elsewhere = map[string]string{
	"mountoptions":        "mount options are a field of the StorageClass beside parameters: mountOptions",
	"csi.storage.k8s.io/": "that is of a class of the CSI driver " + v1.DriverName + ", which chooses the file system itself here",
	"fstype":              "the server chooses the file system of its volumes",
	"pool":                "that is of a class of the CSI driver " + v1.DriverName,
	"mkfsoptions":         "that is of a class of the CSI driver " + v1.DriverName,
	"provisioning":        "that is of a class of the CSI driver " + v1.DriverName,
	"onnodeloss":          "that is of a class of the CSI driver " + v1.DriverName,
}

var serverPattern = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/)?[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$`)

func setServer(p *parameters, value string) error {
	if !serverPattern.MatchString(value) {
		return fmt.Errorf("it must be the NAME or the NAMESPACE/NAME of an NFSServer")
	}
	p.server = value
	return nil
}

func setGID(p *parameters, value string) error {
	if strings.EqualFold(value, "none") {
		p.gid = ""
		return nil
	}
	gid, err := strconv.ParseUint(value, 10, 32)
	if err != nil || gid == 0 || gid == math.MaxUint32 {
		return fmt.Errorf("it must be none, or a group from 1 to %d", uint32(math.MaxUint32-1))
	}
	p.gid = strconv.FormatUint(gid, 10)
	return nil
}

func setRootSquash(p *parameters, value string) error {
	switch strings.ToLower(value) {
	case "true":
		p.squash = rootSquash
	case "false":
		p.squash = noRootSquash
	default:
		return fmt.Errorf("it must be true or false")
	}
	p.rootSquash = true
	return nil
}

func setSquash(p *parameters, value string) error {
	if p.rootSquash {
		return fmt.Errorf("rootSquash is given too; give one of them")
	}
	if !slices.Contains([]string{noRootSquash, rootSquash, allSquash}, value) {
		return fmt.Errorf("it must be %s, %s or %s", noRootSquash, rootSquash, allSquash)
	}
	p.squash = value
	return nil
}

func setInodes(p *parameters, value string) (err error) {
	p.inodes, err = strconv.ParseUint(value, 10, 63)
	if err != nil || p.inodes == 0 {
		return fmt.Errorf("it must be a whole number from 1 to %d", math.MaxInt64)
	}
	return nil
}

func setOnDelete(p *parameters, value string) error {
	p.onDelete = OnDelete(value)
	if !slices.Contains([]OnDelete{DeleteData, RetainData, ArchiveData}, p.onDelete) {
		return fmt.Errorf("it must be %s, %s or %s", DeleteData, RetainData, ArchiveData)
	}
	return nil
}

// known finds a key however it is spelled.
func known(key string) (string, bool) {
	for name := range setters {
		if strings.EqualFold(name, key) {
			return name, true
		}
	}
	return "", false
}

// parseParameters reads the parameters of a StorageClass. The case of keys does not matter; an empty value leaves the
// choice to the server.
func parseParameters(given map[string]string) (parameters, error) {
	p := parameters{}
	spelled := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		name, ok := known(key)
		if !ok {
			return p, unknownKey(key)
		}
		if before, twice := spelled[name]; twice {
			return p, fmt.Errorf("%w parameters %s and %s: they are the same key, since case does not matter; give one of them",
				backend.ErrInvalid, backend.Quote(before), backend.Quote(key))
		}
		spelled[name] = key
	}
	// In the order of their names, so that rootSquash comes before squash.
	for _, name := range slices.Sorted(maps.Keys(spelled)) {
		value := given[spelled[name]]
		if value == "" {
			continue
		}
		if err := setters[name](&p, value); err != nil {
			return p, fmt.Errorf("%w parameter %s=%s: %w", backend.ErrInvalid, spelled[name], backend.Quote(value), err)
		}
	}
	p.onDelete = cmp.Or(p.onDelete, DeleteData)
	return p, nil
}

func unknownKey(key string) error {
	hint := ""
	for begins, text := range elsewhere {
		if strings.HasPrefix(strings.ToLower(key), begins) && (strings.HasSuffix(begins, "/") || len(key) == len(begins)) {
			hint = " (" + text + ")"
		}
	}
	return fmt.Errorf("%w: unknown parameter %s%s; known are (case does not matter): %s",
		backend.ErrInvalid, backend.Quote(key), hint, strings.Join(slices.Sorted(maps.Keys(setters)), ", "))
}

// serverOf reads which server a class names, whatever else is wrong with it. Empty means none that can be read.
func serverOf(given map[string]string) string {
	found := ""
	for key, value := range given {
		if !strings.EqualFold(key, "server") || value == "" {
			continue
		}
		if found != "" || !serverPattern.MatchString(value) {
			return ""
		}
		found = value
	}
	return found
}
