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

// nextEpoch returns a number greater than that of any start before. By it clients see that the server has restarted and
// that what it has not yet written may be lost. Ganesha's own is the time in seconds, which two starts may share. With an
// error the number is as good as can be had: on a full disk too, clients want their server.
func nextEpoch(dir string, now time.Time) (epoch uint32, err error) {
	file := filepath.Join(dir, "epoch")
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	epoch = uint32(now.Unix())
	if last, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 32); err == nil { // else it says nothing
		epoch = max(epoch, uint32(last)+1)
	}
	return epoch, errors.Join(err, nodeops.ReplaceFile(file, []byte(strconv.FormatUint(uint64(epoch), 10)+"\n")))
}
