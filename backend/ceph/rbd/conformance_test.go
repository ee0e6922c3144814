//go:build ceph

package rbd

import (
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/backendtest"
)

func TestBlockImage_Conforms(t *testing.T)      { conforms(t, backend.Block, "", "") }
func TestFilesystemImage_Conforms(t *testing.T) { conforms(t, backend.Filesystem, "ext4", "team-a") }

// conforms writes to the image itself, over its file system.
func conforms(t *testing.T, mode backend.Mode, fstype, inside string) {
	backendtest.Suite{Open: func(t *testing.T, size int64) *backendtest.Fixture {
		at := newPool(t, size)
		if inside != "" {
			at.Namespace = namespace(t, at, inside)
		}
		config := Config{Name: "pool"}
		b, end := open(t, at, config)
		return &backendtest.Fixture{
			Backend: b,
			Reopen: func(t *testing.T) backend.Storage {
				end()
				b, end = open(t, at, config)
				return b
			},
			Mode: mode, FSType: fstype, Smallest: 16 * mib,
			Write: func(t *testing.T, v *backend.Volume, content []byte) { write(t, at, v, content) },
			Read:  func(t *testing.T, v *backend.Volume, length int) []byte { return read(t, at, v, length) },
		}
	}}.Run(t)
}
