package export

import "github.com/holdfast-storage/holdfast/backend"

// The wrapped backend has the pools and what is expected of them.

func (b *Backend) ExpectPool(pool string, e backend.PoolExpectation) {
	if m, ok := b.Backend.(backend.PoolMemory); ok {
		m.ExpectPool(pool, e)
	}
}

func (b *Backend) NotifyPools(changed func()) {
	if m, ok := b.Backend.(backend.PoolMemory); ok {
		m.NotifyPools(changed)
	}
}
