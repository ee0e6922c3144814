package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

const fill = "head -c 5000000 /dev/urandom >/data/file; sync /data/file; sha256sum /data/file"

// counter appends the same number to three files, each in its own volume, one after the other.
const counter = `
	n=0
	while :; do
		n=$((n + 1))
		for volume in a b c; do
			echo $n >>/$volume/numbers
			sync /$volume/numbers
		done
		echo $n
	done`

func TestGroupSnapshot_HoldsOneInstant(t *testing.T) {
	t.Parallel()
	s := begin(t)
	volumes := []string{"a", "b", "c"}
	var mounts []kube.PodOption
	for _, v := range volumes {
		s.Claim(v, "64Mi", kube.Labelled("of", "ledger"))
		mounts = append(mounts, kube.Mount(v, "/"+v))
	}
	s.Pod("writer", append(mounts, kube.Script(counter))...)
	s.Ready("writer")
	s.FirstLines("writer", 20)
	members := s.SnapshotGroup("ledger", "of", "ledger")
	if len(members) != len(volumes) {
		t.Fatalf("the group has the snapshots %v", members)
	}
	mounts = nil
	for _, v := range volumes {
		s.Claim("restored-"+v, "64Mi", kube.From("VolumeSnapshot", members[v]))
		mounts = append(mounts, kube.Mount("restored-"+v, "/"+v))
	}
	last := s.Run("reader", append(mounts, kube.Script("for v in a b c; do tail -n 1 /$v/numbers; done"))...)
	var a, b, c int
	if _, err := fmt.Sscan(strings.ReplaceAll(last, "\n", " "), &a, &b, &c); err != nil {
		t.Fatalf("%q: %v", last, err)
	}
	if a < 20 || a < b || b < c || a-c > 1 {
		t.Errorf("the volumes end with %d, %d and %d: no instant of the writer's", a, b, c)
	}
}
