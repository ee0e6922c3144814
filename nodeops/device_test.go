package nodeops

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// newSysfs creates files as in sysfs: a path with content, or with " -> " a symlink.
func newSysfs(t *testing.T, lines ...string) (block string) {
	t.Helper()
	root := t.TempDir()
	for _, line := range lines {
		name, content, link := strings.Cut(line, " -> ")
		if !link {
			name, content, _ = strings.Cut(line, "=")
		}
		path := filepath.Join(root, name)
		check.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if link {
			check.OK(t, os.Symlink(content, path))
			continue
		}
		write(t, path, content+"\n")
	}
	return filepath.Join(root, "block")
}

// disk returns the attributes of a disk, and more.
func disk(name, place string, more ...string) (lines []string) {
	lines = []string{"block/" + name + " -> ../devices/" + place + "/" + name}
	for _, a := range append([]string{"dev=8:0", "size=2097152", "ro=0", "removable=0", "queue/rotational=0"}, more...) {
		lines = append(lines, "devices/"+place+"/"+name+"/"+a)
	}
	return lines
}

func TestDevice_IsDescribedAsTheKernelKnowsIt(t *testing.T) {
	devices := check.Got(devicesIn(newSysfs(t, slices.Concat(
		disk("sdaa", "pci/host0/target0", "device/model=ST4000  NM0035 ", "wwid=naa.5000c500", "queue/rotational=1", "ro=1", "sdaa1/partition=1", "holders/dm-0/x=1"),
		disk("sdb", "pci/host0/target1", "size=0"),
		disk("sdc", "pci/host0/target2", "device/serial=S1"),
	)...)))(t)
	if len(devices) != 2 || devices[0].Name != "sdc" || devices[1].Name != "sdaa" {
		t.Fatalf("found %+v; want sdc before sdaa, and none without a size", devices)
	}
	d := devices[1]
	if d.Path != "/dev/sdaa" || d.Number != "8:0" || d.Size != 1<<30 || d.Model != "ST4000 NM0035" || d.ID != "naa.5000c500" ||
		!d.Rotational || !d.ReadOnly || !d.Local || !slices.Equal(d.Partitions, []string{"sdaa1"}) || !slices.Equal(d.Holders, []string{"dm-0"}) {
		t.Errorf("described as %+v", d)
	}
	if d := devices[0]; d.ID != "S1" || d.Rotational || d.ReadOnly || d.Partitions != nil || d.Holders != nil {
		t.Errorf("described as %+v", d)
	}
}

func TestDevice_ThatIsNoDiskOfThisHostMustBeNamedByAPath(t *testing.T) {
	for what, test := range map[string]struct {
		local bool
		lines []string
	}{
		"a loop device":        {false, disk("loop0", "virtual/block")},
		"a mapped device":      {false, disk("dm-0", "virtual/block")},
		"an RBD image":         {false, disk("rbd0", "rbd/0")},
		"a USB stick":          {false, disk("sdb", "pci/usb1/host1", "removable=1")},
		"an iSCSI disk":        {false, disk("sdc", "platform/host2/session1/target2")},
		"a disk of a SAN":      {false, disk("sdd", "pci/host3/rport-3:0-1/target3")},
		"NVMe over TCP":        {false, disk("nvme0n1", "virtual/nvme-fabrics/ctl/nvme0", "device/transport=tcp")},
		"NVMe over fabric":     {false, disk("nvme0n1", "virtual/nvme-subsystem/nvme-subsys0", "device/nvme0/transport=rdma", "device/nvme1/transport=pcie")},
		"SATA":                 {true, disk("sda", "pci/host0/target0")},
		"virtio":               {true, disk("vda", "pci/virtio1/block")},
		"NVMe":                 {true, disk("nvme0n1", "pci/nvme/nvme0", "device/transport=pcie")},
		"NVMe in several ways": {true, disk("nvme0n1", "virtual/nvme-subsystem/nvme-subsys0", "device/nvme0/transport=pcie")},
	} {
		devices, err := devicesIn(newSysfs(t, test.lines...))
		if err != nil || len(devices) != 1 || devices[0].Local != test.local {
			t.Errorf("%s: %+v, %v", what, devices, err)
			continue
		}
		if chosen, err := (DeviceSelector{MinSize: 1}).Select(devices); err != nil || (len(chosen) == 1) != test.local {
			t.Errorf("%s chosen by its size: %+v, %v", what, chosen, err)
		}
	}
}

func TestDeviceSelector_DeviceMustMatchAllFields(t *testing.T) {
	small := Device{Name: "sda", Size: 1 << 30, Model: "Samsung SSD 980", Local: true}
	large := Device{Name: "sdb", Size: 4 << 30, Model: "Samsung SSD 990", Local: true}
	slow := Device{Name: "sdc", Size: 8 << 30, Model: "ST4000", Rotational: true, Local: true}
	for what, test := range map[string]struct {
		selector DeviceSelector
		want     []string
	}{
		"its size":       {DeviceSelector{MinSize: 4 << 30}, []string{"sdb", "sdc"}},
		"its model":      {DeviceSelector{Model: "Samsung*"}, []string{"sda", "sdb"}},
		"a whole model":  {DeviceSelector{Model: "Samsung"}, nil},
		"solid state":    {DeviceSelector{Rotational: new(bool)}, []string{"sda", "sdb"}},
		"all of it":      {DeviceSelector{MinSize: 2 << 30, Model: "*SSD*", Rotational: new(bool)}, []string{"sdb"}},
		"a path nowhere": {DeviceSelector{Paths: []string{"/dev/nowhere*"}}, nil},
	} {
		chosen, err := test.selector.Select([]Device{small, large, slow})
		var names []string
		for _, d := range chosen {
			names = append(names, d.Name)
		}
		if err != nil || !slices.Equal(names, test.want) {
			t.Errorf("by %s: %v, %v; want %v", what, names, err, test.want)
		}
	}
}

func TestDeviceSelector_EmptyOrInvalidSelectsNothing(t *testing.T) {
	for what, s := range map[string]DeviceSelector{
		"devices": {},
		"/srv/x":  {Paths: []string{"/srv/x"}},
		"/dev/[":  {Paths: []string{"/dev/["}},
		"[":       {Model: "["},
	} {
		if chosen, err := s.Select([]Device{{Name: "sda", Local: true}}); err == nil || len(chosen) > 0 || what != "devices" && !strings.Contains(err.Error(), what) {
			t.Errorf("%s: chosen %v, %v", what, chosen, err)
		}
	}
}

func TestDevice_IsFoundThroughLinksAndPatterns(t *testing.T) {
	first, second := hostfs.Disk(t, 64*mib), hostfs.Disk(t, 64*mib)
	// The only directory below /dev that tests use.
	links, err := os.MkdirTemp("/dev/shm", "disk-")
	if err != nil {
		hostfs.Skip(t, "shm", fmt.Sprintf("needs a directory of its own beneath /dev: %v", err))
	}
	t.Cleanup(func() { os.RemoveAll(links) })
	for name, target := range map[string]string{"b": first, "a": second, "again": second, "part": "/dev/null"} {
		check.OK(t, os.Symlink(target, filepath.Join(links, name)))
	}
	all := check.Got(Devices())(t)
	for pattern, want := range map[string][]string{
		links + "/*":                {second, first},
		links + "/b":                {first},
		first:                       {first},
		links + "/nothing":          nil,
		"/dev/shm/../../etc/passwd": nil,
	} {
		chosen, err := DeviceSelector{Paths: []string{pattern}}.Select(all)
		var paths []string
		for _, d := range chosen {
			paths = append(paths, d.Path)
		}
		if err != nil || !slices.Equal(paths, want) {
			t.Errorf("%s: %v, %v; want %v", pattern, paths, err, want)
		}
	}
	if chosen, err := (DeviceSelector{Paths: []string{links + "/b", links + "/*"}}).Select(all); err != nil || len(chosen) != 2 || chosen[0].Path != first {
		t.Errorf("an earlier pattern does not come first: %+v, %v", chosen, err)
	}
	if chosen, err := (DeviceSelector{Paths: []string{links + "/b"}, MinSize: gib}).Select(all); err != nil || len(chosen) != 0 {
		t.Errorf("a path hides the size: %+v, %v", chosen, err)
	}
}

func TestDevice_ThatWasRemovedIsGone(t *testing.T) {
	device := hostfs.Disk(t, 64*mib)
	check.Same(t, DeviceGone(DeviceNumber(device)), false)
	check.Same(t, DeviceGone("8:1048575"), true)
	for path, want := range map[string]bool{"/proc": false, newFS(t, "xfs", 320*mib): true} {
		f := check.Got(os.Open(path))(t)
		defer f.Close()
		if number, err := DeviceOf(f); err != nil || (number != "") != want || DeviceGone(number) {
			t.Errorf("%s lies on %q, %v", path, number, err)
		}
	}
}
