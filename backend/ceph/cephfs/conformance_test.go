//go:build ceph

package cephfs

import (
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/backendtest"
)

func TestCephFS_Conforms(t *testing.T) {
	backendtest.Suite{Open: func(t *testing.T, size int64) *backendtest.Fixture {
		w := newWorld(t, size)
		return &backendtest.Fixture{
			Backend: w.backend,
			Reopen: func(*testing.T) backend.Storage {
				w.reopen()
				return w.backend
			},
			Write: func(_ *testing.T, v *backend.Volume, content []byte) { w.write(v, "file", content) },
			Read: func(_ *testing.T, v *backend.Volume, length int) []byte {
				content := w.read(v, "file")
				return content[:min(length, len(content))]
			},
			Mode: backend.Filesystem, FSType: fsType, Smallest: 64 << 20,
		}
	}}.Run(t)
}
