package ganesha

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-storage/holdfast/nodeops"
)

// nextEpoch returns a number greater than that of every earlier start. Clients detect by it that the server has
// restarted, and that unstable writes may be lost. Ganesha's default is the time in seconds, which two starts may
// share. With an error it still returns the best available number: clients need their server on a full disk too.
func nextEpoch(dir string, now time.Time) (epoch uint32, err error) {
	file := filepath.Join(dir, "epoch")
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	epoch = uint32(now.Unix())
	if last, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 32); err == nil { // an invalid file is ignored
		epoch = max(epoch, uint32(last)+1)
	}
	return epoch, errors.Join(err, nodeops.ReplaceFile(file, []byte(strconv.FormatUint(uint64(epoch), 10)+"\n")))
}
