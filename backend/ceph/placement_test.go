package ceph

import "testing"

// What ceph osd map says.
func TestObjectHash_IsThatOfCeph(t *testing.T) {
	for name, want := range map[string]uint32{"foo": 0x7fc1f406, "rbd_directory": 0x30a98c1c} {
		if got := objectHash("", name); got != want {
			t.Errorf("%s: %x, want %x", name, got, want)
		}
	}
}

func TestNameInEach_IsInEachGroup(t *testing.T) {
	for _, groups := range []int{1, 2, 3, 12, 32, 33, 100, 4096} {
		for group, name := range nameInEach("tenant", groups) {
			if got := groupOf(objectHash("tenant", name), groups); got != group {
				t.Errorf("of %d, %s is in %d and not in %d", groups, name, got, group)
			}
		}
	}
}
