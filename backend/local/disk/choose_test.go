package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestChoose_FirstEmptyDiskIsTakenAndOneWithDataNever(t *testing.T) {
	for what, spoil := range map[string]func(device string){
		"holds ext4":    func(d string) { shell(t, "mkfs.ext4", "-q", "-F", d) },
		"holds xfs":     func(d string) { shell(t, "mkfs.xfs", "-q", d) },
		"holds swap":    func(d string) { shell(t, "mkswap", d) },
		"has data at":   func(d string) { hostfs.Overwrite(t, d, mib-1, 1) },
		"after byte 33": func(d string) { hostfs.Overwrite(t, d, size-1, 1) },
		"a partition table": func(d string) {
			const table, first, kind, sectors, linux = 510, 446, 4, 12, 0x83
			hostfs.Overwrite(t, d, table, 0x55, 0xaa)
			hostfs.Overwrite(t, d, first+kind, linux)
			hostfs.Overwrite(t, d, first+sectors, 0, 8)
		},
	} {
		t.Run(what, func(t *testing.T) {
			f := newFixture(t)
			full, empty := hostfs.Disk(t, size), hostfs.Disk(t, size)
			spoil(full)
			before := hostfs.Content(t, full)
			f.fails(f.Mount(t.Context(), pool, paths(full), backend.PoolExpectation{}), what, full)
			f.mount(pool, full, empty)
			f.isOn(pool, empty)
			if hostfs.Content(t, full) != before {
				t.Error("the disk with data has changed")
			}
		})
	}
}

func TestChoose_DiskInUseOrTooSmallIsNotTaken(t *testing.T) {
	f := newFixture(t)
	small := hostfs.Disk(t, 64*mib)
	f.refused(pool, paths(small), "it has 64Mi, and a file system needs", small)
	used := hostfs.Disk(t, size)
	holder := check.Got(os.OpenFile(used, os.O_RDONLY|os.O_EXCL, 0))(t)
	defer holder.Close()
	f.refused(pool, paths(used), "in use", used)
	f.refused(pool, paths("/dev/nowhere"), "no disk of node node-a", "/dev/nowhere")
	f.refused(pool, nodeops.DeviceSelector{}, "no device is selected")
	f.refused(pool, nodeops.DeviceSelector{MinSize: 1 << 60}, "at least")
}

func TestChoose_TwoPoolsTakeADiskEach(t *testing.T) {
	f := newFixture(t)
	one, two := hostfs.Disk(t, size), hostfs.Disk(t, size)
	f.mount(pool, one, two)
	f.mount("slow", one, two)
	f.isOn(pool, one)
	f.isOn("slow", two)
}

func TestChoose_DiskIsFoundByItsContentWhenTheRecordIsLost(t *testing.T) {
	f := newFixture(t)
	empty, device := hostfs.Disk(t, size), hostfs.Disk(t, size)
	f.mount(pool, device)
	f.put(pool, "data")
	f.unmount(pool)
	check.OK(t, os.RemoveAll(f.Dir)) // the host is installed again
	f.mount(pool, empty, device)
	f.keeps(pool, "data")
}

func TestChoose_ForeignDiskOfTheSameLabelIsNotTaken(t *testing.T) {
	f := newFixture(t)
	foreign := hostfs.Disk(t, size)
	f.mount(pool, foreign)
	f.put(pool, "data")
	f.unmount(pool)
	before := hostfs.Content(t, foreign)

	g := newFixture(t)
	g.Cluster = cluster("c2")
	g.refused(pool, paths(foreign), "another cluster", "c1", "c2", foreign)
	g.refused("fast-too", paths(foreign), foreign)
	own := hostfs.Disk(t, size)
	g.mount(pool, foreign, own)
	g.isOn(pool, own)
	if hostfs.Content(t, foreign) != before {
		t.Error("looking at it has changed it")
	}
}

func TestChoose_XFSWithTheLabelAndNoMarkIsNotTaken(t *testing.T) {
	f := newFixture(t)
	device := hostfs.Disk(t, size)
	shell(t, "mkfs.xfs", "-q", "-L", "hf-fast", device)
	f.refused(pool, paths(device), markFile, device)
}

func TestPools_WithSimilarLabelsKeepTheirDisks(t *testing.T) {
	const one, two = "fast-disks-1", "fast-disks-2"
	f := newFixture(t)
	first, second := hostfs.Disk(t, size), hostfs.Disk(t, size)
	f.mount(one, first, second)
	f.unmount(one)
	check.OK(t, os.RemoveAll(f.records()))
	f.mount(two, first, second)
	f.mount(one, second, first)
	f.isOn(one, first)
	f.isOn(two, second)
}

func TestChoose_NothingIsMountedOverExistingFiles(t *testing.T) {
	f := newFixture(t)
	device := hostfs.Disk(t, size)
	check.OK(t, f.Directory(pool, f.Place(pool), backend.PoolExpectation{}))
	f.put(pool, "pool.json")
	f.refused(pool, paths(device), "pool.json", "hide")
	check.OK(t, os.Remove(filepath.Join(f.Place(pool), "pool.json")))
	shell(t, "mount", "-t", "tmpfs", "stranger", f.Place(pool))
	f.fails(f.Mount(t.Context(), pool, paths(device), backend.PoolExpectation{}), "stranger")
	f.unmount(pool)
	f.mount(pool, device)
	f.unmount(pool)
	shell(t, "mount", "-t", "tmpfs", "stranger", f.Place(pool))
	f.fails(f.Mount(t.Context(), pool, paths(device), backend.PoolExpectation{}), "stranger")
	f.isOn(pool, "stranger")
	f.unmount(pool)
	strange := hostfs.Disk(t, size)
	shell(t, "mkfs.xfs", "-q", strange)
	shell(t, "mount", strange, f.Place(pool))
	f.fails(f.Mount(t.Context(), pool, paths(device), backend.PoolExpectation{}), strange)
	f.isOn(pool, strange)
}

func TestChoose_WithoutTheClusterNoDiskIsChosenAndAKnownOneIsMounted(t *testing.T) {
	f := newFixture(t)
	device := hostfs.Disk(t, size)
	errAPI := errors.New("the API does not answer")
	f.Cluster = func(context.Context) (string, error) { return "", errAPI }
	f.refused(pool, paths(device), errAPI.Error())
	check.Report(t, nodeops.ProvenEmpty(t.Context(), device))
	f.Cluster = cluster("c1")
	f.mount(pool, device)
	f.unmount(pool)
	f.Cluster = func(context.Context) (string, error) { return "", errAPI }
	f.mount(pool, device)
}

func TestChoose_TwoProcessesTakeTurns(t *testing.T) {
	f := newFixture(t)
	unlock := check.Got(f.lock())(t)
	device := hostfs.Disk(t, size)
	f.refused(pool, paths(device), "another process")
	unlock()
	f.mount(pool, device)
}
