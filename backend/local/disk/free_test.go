package disk

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// anyDisk is a selector without names.
var anyDisk = nodeops.DeviceSelector{MinSize: size}

// own makes loop devices look like disks of the host, with a serial number if one is given.
func (f *fixture) own(ids map[string]string) {
	f.look(func(d *nodeops.Device) {
		id, ok := ids[d.Path]
		d.Local, d.ID = ok, id
	})
}

// disks creates disks of the host.
func (f *fixture) disks(count int) (devices []string) {
	f.Helper()
	ids := map[string]string{}
	for range count {
		devices = append(devices, hostfs.Disk(f.T, size))
		ids[devices[len(devices)-1]] = ""
	}
	f.own(ids)
	return devices
}

func (f *fixture) note() {
	f.Helper()
	check.OK(f.T, f.NoteDevices())
}

// untouched expects that a disk is still empty.
func (f *fixture) untouched(device string) {
	f.Helper()
	check.Report(f.T, nodeops.ProvenEmpty(f.Context(), device))
}

func TestDiskAddedAfterBoot_IsTakenOnlyIfNamed(t *testing.T) {
	f := newFixture(t)
	f.note()
	late := f.disks(1)[0]
	f.refused(pool, anyDisk, late, "appeared after boot", "paths or model")
	f.untouched(late)
	f.mount(pool, late)

	g := newFixture(t)
	early := g.disks(1)[0]
	g.note()
	check.OK(t, g.Mount(t.Context(), pool, anyDisk, backend.PoolExpectation{}))
	g.isOn(pool, early)
}

func TestDiskAddedAfterBoot_IsTakenIfItsModelIsNamed(t *testing.T) {
	f := newFixture(t)
	f.note()
	late, other := f.disks(1)[0], hostfs.Disk(t, size)
	f.look(func(d *nodeops.Device) {
		if d.Path == late || d.Path == other {
			d.Local, d.Model = true, map[string]string{late: "Samsung 990", other: "Micron 7450"}[d.Path]
		}
	})
	f.refused(pool, nodeops.DeviceSelector{Model: "Intel *"}, "no disk of node node-a", `model "Intel *"`)
	f.refused(pool, anyDisk, late, other, "appeared after boot")
	check.OK(t, f.Mount(t.Context(), pool, nodeops.DeviceSelector{Model: "Samsung *"}, backend.PoolExpectation{}))
	f.isOn(pool, late)
	f.untouched(other)
}

// look lists the devices of this host after a change.
func (f *fixture) look(change func(*nodeops.Device)) {
	f.devices = func() ([]nodeops.Device, error) {
		all, err := nodeops.Devices()
		for i := range all {
			change(&all[i])
		}
		return all, err
	}
}

func TestDisk_ThatBacksAnotherDeviceIsNotTaken(t *testing.T) {
	f := newFixture(t)
	device := hostfs.Disk(t, size)
	over := hostfs.Attach(t, device)
	f.refused(pool, paths(device), device, "it is in use", over)
	hostfs.Detach(t, over)
	f.untouched(device)
	// Not every kernel has the device mapper: this is the state of a disk below one of its devices.
	f.look(func(d *nodeops.Device) {
		if d.Path == device {
			d.Holders = []string{"dm-0", "md1"}
		}
	})
	f.refused(pool, paths(device), device, "it is part of dm-0, md1")
	f.untouched(device)
	f.devices = nodeops.Devices
	f.mount(pool, device)
}

func TestDiskAddedAfterBoot_IncludesADeviceThatReusesAName(t *testing.T) {
	f := newFixture(t)
	device := f.disks(1)[0]
	f.note()
	b := check.Got(f.booted())(t)
	all := check.Got(f.list())(t)
	for _, d := range all {
		if d.Path != device {
			continue
		}
		if !b.hasDevice(&d) {
			t.Errorf("%+v was there", d)
		}
		fields := strings.Fields(d.Appearance)
		for i := range fields {
			changed := append([]string{}, fields...)
			changed[i] += "1"
			if d.Appearance = strings.Join(changed, " "); b.hasDevice(&d) {
				t.Errorf("another in its place is taken for it: %q", d.Appearance)
			}
		}
		if d.Appearance = ""; b.hasDevice(&d) {
			t.Error("a disk of unknown age is taken for one present at boot")
		}
	}
}

// holding starts a process that has a device open without O_EXCL, as containers do.
func holding(t *testing.T, device string) {
	t.Helper()
	hostfs.Beside(t, "sh", "-c", `exec 3<"$1"; echo; read end || exit 0`, "sh", device)
}

func TestDisk_InUseIsNotTakenThoughEmptyAndNamed(t *testing.T) {
	for words, use := range map[string]func(t *testing.T, device string){
		"has it open": holding,
		"attached to": func(t *testing.T, device string) { hostfs.Attach(t, device) }, // as the kubelet does for a pod
		"node is mounted": func(t *testing.T, device string) {
			node := filepath.Join(t.TempDir(), "node")
			shell(t, "touch", node)
			shell(t, "mount", "--bind", device, node)
			t.Cleanup(func() { check.Report(t, unix.Unmount(node, 0)) })
		},
	} {
		t.Run(words, func(t *testing.T) {
			f := newFixture(t)
			device := hostfs.Disk(t, size)
			use(t, device)
			f.refused(pool, paths(device), device, words)
			f.untouched(device)
		})
	}
}

func TestDisk_ThatMayBeAnotherDriversVolumeIsNotTaken(t *testing.T) {
	f := newFixture(t)
	theirs, free := hostfs.Disk(t, size), hostfs.Disk(t, size)
	f.own(map[string]string{theirs: "vol0123456789", free: "S5GXNX0W"})
	f.note()
	attached := []Attached{{Handle: "kubernetes.io/csi/other^vol-aaaabbbbcccc"}}
	f.Attached = func(context.Context) ([]Attached, error) { return attached, nil }
	f.refused(pool, anyDisk, "vol-aaaabbbbcccc", "paths or model", theirs, free) // they have the same serial number
	attached[0].Handle = "vol-0123456789"
	f.refused(pool, paths(theirs), "is volume vol-0123456789 of another driver", theirs)
	attached[0] = Attached{Handle: "elsewhere", Device: theirs}
	f.refused(pool, paths(theirs), "is volume elsewhere of another driver", theirs)
	f.untouched(theirs)
	f.untouched(free)
	check.OK(t, f.Mount(t.Context(), pool, anyDisk, backend.PoolExpectation{}))
	f.isOn(pool, free)

	g := newFixture(t)
	disk := g.disks(1)[0]
	errAPI := errors.New("forbidden")
	g.Attached = func(context.Context) ([]Attached, error) { return nil, errAPI }
	g.refused(pool, paths(disk), errAPI.Error())
	g.untouched(disk)
}

func TestLabel_AloneLetsNothingBeMounted(t *testing.T) {
	f := newFixture(t)
	forged := f.disks(1)[0]
	f.note()
	shell(t, "mkfs.xfs", "-q", "-L", label(pool), forged)
	head := check.Got(nodeops.ReadXFSHead(forged))(t)
	// A forged disk may have everything else of the pool's disk.
	shell(t, "mkdir", "-p", f.Place(pool))
	shell(t, "mount", forged, f.Place(pool))
	check.OK(t, (mark{Pool: pool, Cluster: "c1", UUID: head.UUID}).write(f.Place(pool)))
	f.unmount(pool)
	f.refused(pool, anyDisk, forged, "was not generated by this cluster", "paths or model")
	f.mount(pool, forged) // formatted by a release that used random UUIDs
}

func TestDisk_OfThePoolIsFoundWithoutItsRecordUnlessAddedAfterBootOrInUse(t *testing.T) {
	f := newFixture(t)
	device := f.disks(1)[0]
	f.note()
	try := func() error { return f.Mount(f.Context(), pool, anyDisk, backend.PoolExpectation{}) }
	check.OK(t, try())
	f.put(pool, "data")
	f.unmount(pool)
	shell(t, "rm", f.file(pool))
	t.Run("used", func(t *testing.T) {
		holding(t, device)
		f.fails(try(), "has it open")
	})
	shell(t, "rm", filepath.Join(f.records(), ".boot.json"))
	f.devices = func() ([]nodeops.Device, error) { return nil, nil }
	f.note()
	f.own(map[string]string{device: ""})
	f.refused(pool, anyDisk, device, "appeared after boot")
	shell(t, "rm", filepath.Join(f.records(), ".boot.json"))
	f.note()
	check.OK(t, try())
	f.keeps(pool, "data")
}

func TestDisk_ThatOnlyClaimsToBeTheRecordedOneIsNotUsed(t *testing.T) {
	f := newFixture(t)
	device, forged := hostfs.Disk(t, size), hostfs.Disk(t, size)
	f.own(map[string]string{device: "serial-of-the-disk"})
	f.note()
	try := func() error { return f.Mount(f.Context(), pool, anyDisk, backend.PoolExpectation{}) }
	check.OK(t, try())
	f.put(pool, "data")
	f.unmount(pool)
	shell(t, "dd", "if="+device, "of="+forged, "bs=1M", "status=none")
	f.own(map[string]string{forged: "another-serial"})
	f.refused(pool, anyDisk, "missing", forged, "another-serial", "serial-of-the-disk")
	f.own(map[string]string{forged: ""})
	f.own(map[string]string{device: "serial-of-the-disk", forged: "another-serial"})
	check.OK(t, try())
	f.isOn(pool, device)
	f.unmount(pool)
	f.own(map[string]string{forged: "another-serial"})
	f.mount(pool, forged) // the administrator names it
}

func TestDisk_WithoutASerialNumberIsRecognizedIfAlikeAndPresentAtBoot(t *testing.T) {
	r := &record{Model: "m", Size: 2}
	is := nodeops.Device{Path: "/dev/x", Appearance: "8:0 1 2", Model: "m", Size: 2}
	b := &boot{Devices: []string{is.Appearance}}
	check.Report(t, r.whyUntrusted(&is, false, b))
	for what, change := range map[string]func(d *nodeops.Device){
		"later": func(d *nodeops.Device) { d.Appearance = "8:0 2 3" }, "of another model": func(d *nodeops.Device) { d.Model = "n" }, "smaller": func(d *nodeops.Device) { d.Size = 1 },
	} {
		other := is
		change(&other)
		if r.whyUntrusted(&other, false, b) == nil || r.whyUntrusted(&is, false, nil) == nil {
			t.Errorf("one that is %s is taken for it", what)
		}
		check.Report(t, r.whyUntrusted(&other, true, nil)) // if it is named
	}
}

func TestUUID_IsOfOnePoolOfOneCluster(t *testing.T) {
	is := newUUID("c1", "fast")
	if !madeFor(is, "c1", "fast") {
		t.Errorf("%s is not known again", is)
	}
	for _, other := range []string{"", "x", is[:35], is + "0", strings.Repeat("0", 32), newUUID("c2", "fast"), newUUID("c1", "slow"), "1" + is[1:], "2" + is[1:]} {
		if other != is && madeFor(other, "c1", "fast") {
			t.Errorf("%q is taken for one of this cluster", other)
		}
	}
}
