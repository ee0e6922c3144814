package ganesha

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestServer_ThousandExportsReturnAfterADeath(t *testing.T) {
	base := newExport(t, 1).Path
	var exports []Export
	for id := range uint16(1000) {
		e := exportOf(id+1, filepath.Join(base, fmt.Sprint(id)))
		check.OK(t, os.Mkdir(e.Path, 0o755))
		exports = append(exports, e)
	}
	last := len(exports) - 1
	r := prepare(t, testConfig(t), exports[:last]...)
	r.start()
	l := r.up()
	signal(t, l.ganesha, unix.SIGKILL)
	r.put(exports[last])
	<-l.ganesha.done
	ids := check.Got(r.up().admin.exportIDs(r.within()))(t)
	slices.Sort(ids)
	for i, e := range exports {
		if i >= len(ids) || ids[i] != e.ID {
			t.Fatalf("of %d exports %d are served, and not number %d", len(exports), len(ids), e.ID)
		}
	}
}
