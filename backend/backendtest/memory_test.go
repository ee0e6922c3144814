package backendtest

import (
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
)

func TestMemory_Conforms(t *testing.T) {
	Suite{Open: func(_ *testing.T, size int64) *Fixture {
		m := NewMemorySized(size)
		return &Fixture{
			Backend:  m,
			Reopen:   func(*testing.T) backend.Storage { return m },
			Write:    func(_ *testing.T, v *backend.Volume, content []byte) { m.Write(v.ID, content) },
			Read:     func(_ *testing.T, v *backend.Volume, length int) []byte { return m.Read(v.ID, length) },
			Mode:     backend.Filesystem,
			Smallest: 16 * mib,
		}
	}}.Run(t)
}
