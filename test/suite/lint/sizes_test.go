package lint

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

var inBytes = regexp.MustCompile(`"[^"\n]*%d ([a-z ]*%d )?bytes`)

// exact are the beginnings of paths whose messages have numbers of bytes: of a text or a record, or of a size that must be
// exact, such as of a disk that is recognized by it.
var exact = []string{
	"agent/agent.go", "backend/backendtest/", "backend/bytes.go", "backend/ceph/", "backend/export/ledger_files.go", "backend/export/settings.go", "backend/id.go",
	"backend/local/disk/free.go", "backend/local/disk/record.go", "backend/local/meta.go", "backend/volume.go", "cmd/holdfast/manifest.go",
	"driver/paths.go", "driver/socket.go", "nodeops/", "provisioner/claim.go", "test/",
}

func TestMessages_HaveSizesInUnits(t *testing.T) {
	seen := 0
	for _, path := range files(t, ".go") {
		seen += len(inBytes.FindAllString(read(t, path), -1))
		if strings.HasSuffix(path, "_test.go") || slices.ContainsFunc(exact, func(begin string) bool { return strings.HasPrefix(path, begin) }) {
			continue
		}
		for _, found := range inBytes.FindAllString(read(t, path), -1) {
			t.Errorf("%s: %s: write the size with Readable of backend or v1beta1", path, found)
		}
	}
	if seen < 10 {
		t.Errorf("only %d messages have bytes: the search finds none", seen)
	}
}
