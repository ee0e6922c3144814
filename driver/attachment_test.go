package driver

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestMount_IsIdentifiedByTheEntryOfItsPath(t *testing.T) {
	for path, want := range map[string]bool{
		"/srv/fast/volumes/v/image":                    true,
		"/volumes/v/data":                              true,
		"/volumes/v/data//deleted":                     true,
		"/srv/fast/volumes/v/image (deleted)":          true,
		"/srv/fast/.trash/volumes.v.1700000000/image":  true,
		"/srv/fast/volumes/v2/image":                   false,
		"/srv/fast/volumes/my-v/image":                 false,
		"/srv/fast/volumes/v/data/inner/dir":           false,
		"/srv/fast/.trash/volumes.v2.1700000000/image": false,
		"/": false,
		"":  false,
	} {
		if got := inEntry(path, "v"); got != want {
			t.Errorf("inEntry(%q) = %t", path, got)
		}
	}
}

func TestMount_DirectoryIsMatchedByItsOwnMountsOnly(t *testing.T) {
	own, other := t.TempDir(), t.TempDir()
	info := check.Got(os.Stat(own))(t)
	v := &backend.Volume{ID: "v"}
	p := &mountState{id: "v", v: v, attachment: directoryAttachment{hostFS{v: v}, info}}
	for name, test := range map[string]struct {
		m    nodeops.Mount
		want bool
	}{
		"its own":                  {nodeops.Mount{Root: "/volumes/v/data", Target: own}, true},
		"another with its path":    {nodeops.Mount{Root: "/volumes/v/data", Target: other}, false},
		"a directory inside it":    {nodeops.Mount{Root: "/volumes/v/data/inner", Target: own}, false},
		"one that no longer works": {nodeops.Mount{Root: "/volumes/v/data", Target: own + "/gone"}, false},
	} {
		if got := p.shows(&test.m); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	p.byName = true
	if gone := (nodeops.Mount{Root: "/volumes/v/data//deleted", Target: other}); !p.shows(&gone) {
		t.Error("a removed directory is not known by its name when the node drains")
	}
}

func TestMount_ImageIsMatchedByItsDevicesOnly(t *testing.T) {
	device, number := attached(t)
	other, others := attached(t)
	v := &backend.Volume{ID: "v", Mode: backend.Filesystem}
	p := &mountState{id: "v", v: v, attachment: imageAttachment{hostFS{v: v, devices: uses{device: {}}}}}
	for name, test := range map[string]struct {
		m    nodeops.Mount
		want bool
	}{
		"its own":                   {nodeops.Mount{FSType: "ext4", Device: number, Source: device, Root: "/"}, true},
		"its own, called otherwise": {nodeops.Mount{FSType: "ext4", Device: number, Source: other, Root: "/"}, true},
		"a directory inside it":     {nodeops.Mount{FSType: "ext4", Device: number, Source: device, Root: "/inner"}, false},
		"another's":                 {nodeops.Mount{FSType: "ext4", Device: others, Source: other, Root: "/"}, false},
		"another's, called so":      {nodeops.Mount{FSType: "ext4", Device: others, Source: device, Root: "/"}, false},
		"a tmpfs, called so":        {nodeops.Mount{FSType: "tmpfs", Device: "0:45", Source: device, Root: "/"}, false},
	} {
		if got := p.shows(&test.m); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// attached attaches an image of its own until the test ends.
func attached(t *testing.T) (device, number string) {
	t.Helper()
	hostfs.RequireRoot(t)
	device = hostfs.Disk(t, 1<<20)
	var st unix.Stat_t
	check.OK(t, unix.Stat(device, &st))
	return device, fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
}

func TestPaths_ToTheSameFileAreEqual(t *testing.T) {
	dir := t.TempDir()
	check.OK(t, os.Mkdir(dir+"/a", 0o755))
	check.OK(t, os.Mkdir(dir+"/b", 0o755))
	check.OK(t, os.Symlink(dir+"/a", dir+"/link"))
	for pair, want := range map[[2]string]bool{
		{dir + "/a/x", dir + "/a/x"}: true, {dir + "/a/x", dir + "/link/x"}: true, {dir + "/a/x", dir + "/b/x"}: false,
		{dir + "/a/x", dir + "/a/y"}: false, {dir + "/gone/x", dir + "/gone/x"}: true, {dir + "/gone/x", dir + "/a/x"}: false,
	} {
		if got := samePlace(pair[0], pair[1]); got != want {
			t.Errorf("samePlace(%s, %s) = %t", pair[0], pair[1], got)
		}
	}
}
