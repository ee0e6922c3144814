package backendtest

import (
	"bytes"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
)

func TestMemoryConforms(t *testing.T) {
	Suite{Open: func(_ *testing.T, size int64) *Fixture {
		m := NewMemorySized(size)
		return &Fixture{
			Backend:  m,
			Reopen:   func(*testing.T) Storage { return m },
			Write:    func(_ *testing.T, v *backend.Volume, content []byte) { m.write(v.ID, content) },
			Read:     func(_ *testing.T, v *backend.Volume, length int) []byte { return m.read(v.ID, length) },
			Mode:     backend.Filesystem,
			Smallest: 16 * mib,
		}
	}}.Run(t)
}

func (m *Memory) write(id backend.ID, content []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.volumes[id].content = bytes.Clone(content)
}

func (m *Memory) read(id backend.ID, length int) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return bytes.Clone(m.volumes[id].content[:min(length, len(m.volumes[id].content))])
}
