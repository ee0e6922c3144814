package nodeops

import (
	"errors"
	"fmt"
	"math"
	"os"
)

// ErrTooMuch means that a tree has far more data than its file system has room for.
var ErrTooMuch = errors.New("there is too much to read")

// mostReads is how many times the size of a file system is read at most. What is not only zeros fills the target before.
const mostReads = 16

// readLimit ends a copy that would read for years: a user can share few blocks of zeros among ranges of files that are
// petabytes in sum. Nothing is written for them, so the target is never full.
type readLimit struct {
	source, target int64 // the sizes of the file systems
	read           int64
}

func limitReads(dst, src string) (*readLimit, error) {
	from, err := statfs(src)
	if err != nil {
		return nil, err
	}
	to, err := statfs(dst)
	return &readLimit{source: from.Total, target: to.Total}, err
}

// add counts bytes that are to be read of a file of the source. Nil has no limit, as have file systems of no known size.
func (l *readLimit) add(f *os.File, bytes int64) error {
	if l == nil || l.source <= 0 && l.target <= 0 {
		return nil
	}
	l.read += bytes
	if most := min(max(l.source, l.target), math.MaxInt64/mostReads) * mostReads; l.read > most {
		return fmt.Errorf("%w: with %s, these are %d bytes of the source, whose file system has %d, and that of the target %d; at most %d are read. The files of the source share blocks of zeros: make holes of them, such as with fallocate --dig-holes",
			ErrTooMuch, f.Name(), l.read, l.source, l.target, most)
	}
	return nil
}
