package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/e2e/kube"
)

func TestAVolumeGrowsWhileItIsWritten(t *testing.T) {
	t.Parallel()
	for fsType, sizes := range map[string][2]int{"ext4": {64, 256}, "xfs": {400, 600}} {
		t.Run(fsType, func(t *testing.T) {
			t.Parallel()
			growsWhileWritten(t, fsType, sizes[0], sizes[1])
		})
	}
}

func growsWhileWritten(t *testing.T, fsType string, from, to int) {
	s := begin(t)
	// Its kernel lets root grow an ext4 that is in use.
	node := second(t, allNodes(t))
	s.Claim("data", fmt.Sprint(from, "Mi"), kube.OfClass(class(t, s, with("csi.storage.k8s.io/fstype", fsType))))
	s.Pod("writer", kube.Mount("data", "/data"), kube.OnNode(node), kube.Script(appender))
	s.Ready("writer")
	following, stop := context.WithCancel(t.Context())
	defer stop()
	lines := s.Lines(following, "writer")
	var acknowledged []string
	next := func() {
		line, more := <-lines
		if !more {
			t.Fatalf("the writer has ended; it said %q", acknowledged)
		}
		acknowledged = append(acknowledged, line)
	}
	for range 10 {
		next()
	}
	size := func() int {
		fields := strings.Fields(s.Exec("writer", "sh", "-ec", "df -m /data | tail -n 1"))
		mib, err := strconv.Atoi(fields[1])
		if err != nil {
			t.Fatalf("df says %q", fields)
		}
		return mib
	}
	before := size()
	s.Grow("data", fmt.Sprint(to, "Mi"))
	if after := size(); before > from || after < before+(to-from)*3/4 || after > to {
		t.Errorf("it had %d MiB and has %d", before, after)
	}
	for len(lines) > 0 {
		next()
	}
	next() // it goes on
	expectBlocks(t, s, "writer", acknowledged)
	if restarts := s.Ready("writer").Status.ContainerStatuses[0].RestartCount; restarts != 0 {
		t.Errorf("the writer failed %d times", restarts)
	}
}
