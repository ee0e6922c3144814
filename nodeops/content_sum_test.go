package nodeops

import (
	"math"
	"testing"
)

func TestDigestContent_RangeEndsWithItsBlockInFilesOfAnySize(t *testing.T) {
	const block, most = digestBlock, int64(math.MaxInt64)
	for _, test := range []struct{ to, size, want int64 }{
		{1, 10, 10},
		{10, 10, 10},
		{1, block, block},
		{block, 3 * block, block},
		{block + 1, 3 * block, 2 * block},
		{2*block + 1, 2*block + 7, 2*block + 7},
		{most - 4095, most, most},
		{most, most, most},
		{most - block - 5, most, most - block + 1},
	} {
		if got := blockEnd(test.to, test.size); got != test.want {
			t.Errorf("a range to %d of %d bytes ends with %d, want %d", test.to, test.size, got, test.want)
		}
	}
}
