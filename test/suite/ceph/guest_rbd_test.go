//go:build ceph

package ceph

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func mapped(ctx context.Context, t *testing.T, r nodeops.RBD) *nodeops.RBDDevice {
	t.Helper()
	d := check.Got(nodeops.MapRBD(ctx, r))(t)
	t.Cleanup(func() {
		check.Report(t, nodeops.UnmapRBD(context.WithoutCancel(ctx), d))
		nothingMapped(t)
	})
	return d
}

func nothingMapped(t *testing.T) {
	t.Helper()
	if left, err := nodeops.RBDDevices(); err != nil || len(left) > 0 {
		t.Errorf("mapped are %v, %v", left, err)
	}
}

// put writes through a device to the disk.
func put(t *testing.T, device string, at int64, content []byte) {
	t.Helper()
	f := check.Got(os.OpenFile(device, os.O_RDWR, 0))(t)
	defer f.Close()
	check.Got(f.WriteAt(content, at))(t)
	check.OK(t, f.Sync())
}

func get(t *testing.T, device string, at int64, length int) []byte {
	t.Helper()
	f := check.Got(os.Open(device))(t)
	defer f.Close()
	b := make([]byte, length)
	check.Got(f.ReadAt(b, at))(t)
	return b
}

func TestGuestRBD_MappedTwiceIsOneDeviceAndSaysAsWhichClient(t *testing.T) {
	ctx, w := onGuest(t)
	r := w.image(t, "twice")
	first := mapped(ctx, t, r)
	second, err := nodeops.MapRBD(ctx, r)
	if err != nil || *second != *first {
		t.Fatalf("it is %+v, then %+v, %v", first, second, err)
	}
	if first.Size != gib || first.FSID != w.FSID || first.Pool != pool || first.Image != r.Image || first.ImageID == "" || first.Snapshot != "" || first.ReadOnly {
		t.Errorf("it is %+v", first)
	}
	if !strings.HasPrefix(first.Client.ID, "client.") || !strings.HasPrefix(first.Client.Address, guestAddress+":") {
		t.Errorf("the client is %+v", first.Client)
	}
	put(t, first.Path, 5*mib, []byte("holdfast"))
	check.OK(t, nodeops.UnmapRBD(ctx, first))
	if err := nodeops.UnmapRBD(ctx, first); err != nil {
		t.Errorf("unmapping what is gone: %v", err)
	}
	nothingMapped(t)
	again := mapped(ctx, t, r)
	if got := get(t, again.Path, 5*mib, 8); string(got) != "holdfast" {
		t.Errorf("it reads %q", got)
	}
}

func TestGuestRBD_MappedAtOnceByManyIsOneDevice(t *testing.T) {
	ctx, w := onGuest(t)
	r := w.image(t, "twice")
	const callers = 8
	paths := make(chan string, callers)
	for range callers {
		go func() {
			d, err := nodeops.MapRBD(ctx, r)
			if err != nil {
				paths <- err.Error()
				return
			}
			paths <- d.Path
		}()
	}
	d := mapped(ctx, t, r)
	for range callers {
		if path := <-paths; path != d.Path {
			t.Errorf("one got %s, another %s", d.Path, path)
		}
	}
	if all, err := nodeops.RBDDevices(); err != nil || len(all) != 1 {
		t.Errorf("mapped are %v, %v", all, err)
	}
}

func TestGuestRBD_NamespaceAndSnapshotAreOtherImages(t *testing.T) {
	ctx, w := onGuest(t)
	plain := w.image(t, "plain")
	tenant, snapshot := plain, plain
	tenant.Namespace, snapshot.Snapshot = "tenant", "empty"
	d, e, s := mapped(ctx, t, plain), alsoMapped(ctx, t, tenant), alsoMapped(ctx, t, snapshot)
	put(t, d.Path, 0, []byte("plain"))
	for _, other := range []*nodeops.RBDDevice{e, s} {
		if other.Path == d.Path || !bytes.Equal(get(t, other.Path, 0, 5), make([]byte, 5)) {
			t.Errorf("%s shows what was written to %s", other, d)
		}
	}
	if !s.ReadOnly || e.ReadOnly {
		t.Errorf("the snapshot is %+v, the image %+v", s, e)
	}
	for _, r := range []nodeops.RBD{plain, tenant, snapshot} {
		if found, err := r.Devices(); err != nil || len(found) != 1 || found[0].Namespace != r.Namespace || found[0].Snapshot != r.Snapshot {
			t.Errorf("of %s there are %+v, %v", &r, found, err)
		}
	}
}

// alsoMapped is mapped of one among several.
func alsoMapped(ctx context.Context, t *testing.T, r nodeops.RBD) *nodeops.RBDDevice {
	t.Helper()
	d := check.Got(nodeops.MapRBD(ctx, r))(t)
	t.Cleanup(func() {
		check.Report(t, nodeops.UnmapRBD(context.WithoutCancel(ctx), d))
	})
	return d
}

func TestGuestRBD_OtherImageOfTheSameNameIsRefused(t *testing.T) {
	ctx, w := onGuest(t)
	r := w.image(t, "plain")
	r.ImageID = "123456789abc"
	if d, err := nodeops.MapRBD(ctx, r); err == nil || !strings.Contains(err.Error(), "123456789abc") {
		t.Errorf("mapped as %+v, %v", d, err)
	}
	nothingMapped(t)
	r.ImageID = ""
	mapped(ctx, t, r)
	r.ImageID = "123456789abc"
	if found, err := r.Devices(); err == nil {
		t.Errorf("of another image there are %+v", found)
	}
}

func TestGuestRBD_UnmapLeavesWhatIsOpen(t *testing.T) {
	ctx, w := onGuest(t)
	d := mapped(ctx, t, w.image(t, "plain"))
	f := check.Got(os.Open(d.Path))(t)
	defer f.Close()
	if err := nodeops.UnmapRBD(ctx, d); err == nil || !strings.Contains(err.Error(), unix.EBUSY.Error()) {
		t.Errorf("it was unmapped while it was open: %v", err)
	}
	if now, err := nodeops.RBDAt(d.Path); err != nil || now == nil || now.Image != d.Image {
		t.Errorf("it is %+v, %v", now, err)
	}
}

func TestGuestRBD_WhatCannotBeMappedIsSaidClearlyAndLeavesNothing(t *testing.T) {
	ctx, w := onGuest(t)
	for name, test := range map[string]struct {
		change func(*nodeops.RBD)
		want   string
	}{
		"no image":            {func(r *nodeops.RBD) { r.Image = "nothing" }, "no such image"},
		"no pool":             {func(r *nodeops.RBD) { r.Pool = "nothing" }, "no such image, pool"},
		"no namespace":        {func(r *nodeops.RBD) { r.Namespace = "nothing" }, "no such image"},
		"no snapshot":         {func(r *nodeops.RBD) { r.Snapshot = "nothing" }, "no such image"},
		"another's key":       {func(r *nodeops.RBD) { r.Cluster.Key = w.as(t, "files").Key }, "refuses user node"},
		"no such user":        {func(r *nodeops.RBD) { r.Cluster.User = "unknown" }, "refuses user unknown"},
		"no rights":           {func(r *nodeops.RBD) { r.Cluster = w.as(t, "stranger") }, "refuses user stranger"},
		"no monitor":          {func(r *nodeops.RBD) { r.Cluster.Monitors = []string{"v2:" + hostAddress + ":9"} }, "monitors answers at " + hostAddress + ":9"},
		"no host there":       {func(r *nodeops.RBD) { r.Cluster.Monitors = []string{"v2:10.0.0.77:3300"} }, "monitors answers at 10.0.0.77:3300"},
		"another cluster":     {func(r *nodeops.RBD) { r.Cluster.FSID = "01234567-89ab-cdef-0123-456789abcdef" }, "another cluster"},
		"no key":              {func(r *nodeops.RBD) { r.Cluster.Key = nodeops.CephKey{} }, "no key of user node"},
		"options in the name": {func(r *nodeops.RBD) { r.Image = "plain,rw" }, "image \"plain,rw\""},
	} {
		t.Run(name, func(t *testing.T) {
			r := w.image(t, "plain")
			test.change(&r)
			d, err := nodeops.MapRBD(ctx, r)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%+v, %v, want %q", d, err, test.want)
			}
			t.Log(err)
			nothingMapped(t)
		})
	}
}

func TestGuestRBD_WaitsNoLongerThanItsCaller(t *testing.T) {
	_, w := onGuest(t)
	r := w.image(t, "plain")
	r.Cluster.Monitors = []string{"v2:10.0.0.77:3300"}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := nodeops.MapRBD(ctx, r); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("%v", err)
	}
}

func TestGuestRBD_OldMessengerWorksToo(t *testing.T) {
	ctx, w := onGuest(t)
	r := w.image(t, "plain")
	r.Cluster.Monitors = []string{"v1:" + w.MonitorV1}
	mapped(ctx, t, r)
}

func TestGuestRBD_SecureWorksToo(t *testing.T) {
	ctx, w := onGuest(t)
	r := w.image(t, "plain")
	r.Cluster.Secure = true
	d := mapped(ctx, t, r)
	put(t, d.Path, 0, []byte("secret"))
}

func TestBareGuest_IsToldWhichModuleIsMissing(t *testing.T) {
	ctx, w := onGuest(t)
	check.OK(t, os.WriteFile("/proc/sys/kernel/modprobe", []byte("/bin/false"), 0))
	if _, err := nodeops.MapRBD(ctx, w.image(t, "plain")); !isLack(err, "rbd") || !strings.Contains(err.Error(), "modprobe rbd") {
		t.Errorf("mapping: %v", err)
	}
	if err := nodeops.CheckRBDClient(); !isLack(err, "rbd") {
		t.Errorf("asked about the client: %v", err)
	}
	target := t.TempDir()
	if err := nodeops.MountCephFS(ctx, w.directory(t, "shared"), target, nil); !isLack(err, "ceph") || !strings.Contains(err.Error(), "modprobe ceph") {
		t.Errorf("mounting: %v", err)
	}
	if err := nodeops.CheckCephFSClient(); !isLack(err, "ceph") {
		t.Errorf("asked about the client: %v", err)
	}
	nothingMapped(t)
}
