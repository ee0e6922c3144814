package nodeops

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestProbe_FindsFeaturesByTryingAndLeavesNothingBehind(t *testing.T) {
	requireRoot(t)
	for fstype, want := range map[string]Features{
		"ext4":  {FSType: "ext4", BlockSize: 4096, DirectIO: true},
		"xfs":   {FSType: "xfs", BlockSize: 4096, DirectIO: true, Reflink: true},
		"btrfs": {FSType: "btrfs", BlockSize: 4096, DirectIO: isLinux6(15), Reflink: true},
	} {
		t.Run(fstype, func(t *testing.T) {
			image := newImage(t, fstype, fileSystems[fstype])
			dir := mountImage(t, image)
			before := names(t, dir)
			got, err := Probe(dir)
			if err != nil || got != want {
				t.Errorf("got %+v, %v, want %+v", got, err, want)
			}
			if after := names(t, dir); len(after) != len(before) {
				t.Errorf("left behind: %v, before %v", after, before)
			}
			unmountAll(t, dir)
			readOnly := Features{FSType: want.FSType, BlockSize: want.BlockSize, ReadOnly: true}
			if got, err := Probe(mountImage(t, image, "ro")); err != nil || got != readOnly {
				t.Errorf("mounted read-only: %+v, %v, want %+v", got, err, readOnly)
			}
		})
	}
}

func TestProbe_XFSWithoutReflinkIsRecognized(t *testing.T) {
	got, err := Probe(newFS(t, "xfs", fileSystems["xfs"], "-m", "reflink=0"))
	if err != nil || got.Reflink {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestProbe_BtrfsQuotaIsRecognized(t *testing.T) {
	dir := newFS(t, "btrfs", fileSystems["btrfs"])
	command(t, "btrfs", "quota", "enable", dir)
	got, err := Probe(dir)
	if err != nil || !got.BtrfsQuota {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestProbe_OfAFileOrNothingIsAnError(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{write(t, filepath.Join(dir, "file"), ""), filepath.Join(dir, "missing")} {
		if got, err := Probe(path); err == nil {
			t.Errorf("%s: %+v", path, got)
		}
	}
}

func names(t testing.TB, dir string) []string {
	t.Helper()
	entries := check.Got(os.ReadDir(dir))(t)
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestProbe_ProjectQuotaIsRecognizedWhereEnforced(t *testing.T) {
	requireRoot(t)
	for fstype, mkfs := range map[string][]string{"xfs": nil, "ext4": {"-O", "quota,project", "-E", "quotatype=prjquota"}} {
		t.Run(fstype, func(t *testing.T) {
			image := newImage(t, fstype, fileSystems[fstype], mkfs...)
			requireProjectQuota(t, image)
			got, err := Probe(mountImage(t, image, "prjquota"))
			if err != nil || !got.ProjectQuota {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// requireProjectQuota skips the test if the kernel does not support project quotas.
func requireProjectQuota(t testing.TB, image string) {
	t.Helper()
	probe := t.TempDir()
	_, err := run(t.Context(), "mount", "-o", "loop,prjquota", image, probe)
	unmountAll(t, probe)
	if err != nil {
		hostfs.Skip(t, "prjquota", fmt.Sprintf("this kernel has no project quotas: %v", err))
	}
}
