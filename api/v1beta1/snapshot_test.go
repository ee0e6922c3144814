package v1beta1

import "testing"

func TestConsistencyOn_OnlyANodeWritesOutWhatIsInUse(t *testing.T) {
	for node, want := range map[string]Consistency{
		"node-a": WrittenOut, "node-a.example.org": WrittenOut,
		"shop.files.nfs.holdfast.dev": CrashConsistent, "block.ceph.holdfast.dev": CrashConsistent,
	} {
		if got := ConsistencyOn(node); got != want {
			t.Errorf("on %s it is %s", node, got)
		}
	}
}
