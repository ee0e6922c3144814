package driver

import (
	"slices"
	"testing"

	"github.com/holdfast-storage/holdfast/nodeops"
)

func TestCephFS_DirectoryOfAVolumeIsKnownByItsPath(t *testing.T) {
	for path, want := range map[string]bool{
		"/volumes/group/v/5e9b":        true,
		"/volumes/group/v":             true,
		"/volumes/group/v/5e9b/inside": true,
		"/volumes/group/v.1/5e9b":      true, // v was taken when it was made
		"/volumes/group/v.12/5e9b":     true,
		"/volumes/group/v.x/5e9b":      false,
		"/volumes/group/v./5e9b":       false,
		"/volumes/group/v.1.1/5e9b":    false,
		"/volumes/group/w/5e9b":        false,
		"/volumes/group/vv/5e9b":       false,
		"/volumes/group/.v/5e9b":       false,
		"":                             false,
	} {
		if isCephPath(path, "v") != want {
			t.Errorf("%q: not %t", path, want)
		}
		if got := idInCephPath(path) == "v"; got != want {
			t.Errorf("%q: found in it is %q", path, idInCephPath(path))
		}
	}
	for _, path := range []string{"/", "/volumes", "/volumes/group", "/volumes/group/", "/srv/group/v/5e9b", "/volumes/group/V/5e9b", "/volumes/_deleting/a_b"} {
		if got := idInCephPath(path); got != "" {
			t.Errorf("%q: found in it is %q", path, got)
		}
	}
}

func TestCephFS_VolumesInUseAreFoundWithoutARecord(t *testing.T) {
	const kubelet = "/var/lib/kubelet"
	staged := func(driver string) string {
		return kubelet + "/plugins/kubernetes.io/csi/" + driver + "/5e9b/globalmount"
	}
	const inPod = kubelet + "/pods/5e9b/volumes/kubernetes.io~csi/pv/mount"
	at := func(device, path, target string) nodeops.Mount {
		return nodeops.Mount{Device: device, FSType: "ceph", Root: "/", Source: "10.0.0.1:3300:" + path, Target: target}
	}
	mounts := []nodeops.Mount{
		at("0:1", "/volumes/g/ours/1", staged(DefaultName)),
		at("0:1", "/volumes/g/ours/1", inPod),
		at("0:2", "/volumes/csi/theirs/1", staged("cephfs.csi.ceph.com")),
		at("0:2", "/volumes/csi/theirs/1", inPod),
		at("0:3", "/volumes/g/left/1", inPod), // its staging directory was unmounted first
		at("0:4", "/volumes/g/recorded.1/1", staged(DefaultName)),
		at("0:5", "/volumes/g/manual/1", "/mnt"),
		{Device: "0:6", FSType: "ext4", Root: "/", Source: "/dev/sda", Target: staged(DefaultName)},
	}
	has, unknown := cephFSInUse(mounts, DefaultName, []string{"ended", "recorded"})
	if want := []string{"left", "ours", "recorded"}; !slices.Equal(has, want) {
		t.Errorf("in use are %v, want %v", has, want)
	}
	if len(unknown) != 2 || unknown[0].Device != "0:1" || unknown[1].Device != "0:3" {
		t.Errorf("to be asked are %+v", unknown)
	}
}
