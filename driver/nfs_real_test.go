package driver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-storage/holdfast/backend/backendtest"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/crash"
	"github.com/holdfast-storage/holdfast/test/rig/nfsserver"
)

// client is a node whose driver knows of no volume; it mounts those of a server.
type client struct {
	*rig
	dir string
}

func newClient(t *testing.T) *client { return newClientIn(t, t.TempDir()) }

func newClientIn(t *testing.T, dir string) *client {
	c := &client{dir: dir}
	t.Cleanup(func() {
		all, err := nodeops.Mounts()
		for _, m := range slices.Backward(all) {
			if strings.HasPrefix(m.Target, c.dir) {
				err = errors.Join(err, unix.Unmount(m.Target, unix.MNT_DETACH))
			}
		}
		check.Report(t, err)
	})
	c.rig = newRig(t, backendtest.NewMemory(), func(config *Config) {
		config.Services, config.Patience, config.GiveUpAfter, config.Namespaces = NodeServices, 3*time.Second, -1, "/proc/1/ns"
	})
	return c
}

func (c *client) path(parts ...string) string {
	return filepath.Join(append([]string{c.dir}, parts...)...)
}

func shareOf(volume, server string) map[string]string {
	return map[string]string{serverContext: server, pathContext: "/" + volume}
}

func manyNodes(group string) *csi.VolumeCapability {
	c := withMode(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, mountCapability("ext4"))
	c.GetMount().VolumeMountGroup = group
	return c
}

// stage asks once, as long as the server is not slow.
func (c *client) stage(volume string, capability *csi.VolumeCapability) error {
	return c.stageFrom(volume, nfsserver.Address, capability)
}

func (c *client) stageFrom(volume, server string, capability *csi.VolumeCapability) error {
	c.Helper()
	path := c.path(volume)
	c.must(os.MkdirAll(path, 0o755))
	_, err := c.NodeStageVolume(c.ctx(), &csi.NodeStageVolumeRequest{
		VolumeId: volume, StagingTargetPath: path, VolumeCapability: capability, VolumeContext: shareOf(volume, server),
	})
	return err
}

// staged asks again while the server, which has just started, does not answer in time.
func (c *client) staged(volume, server string, capability *csi.VolumeCapability) {
	c.Helper()
	err := c.stageFrom(volume, server, capability)
	for tries := 0; status.Code(err) == codes.Unavailable && tries < 20; tries++ {
		err = c.stageFrom(volume, server, capability)
	}
	c.must(err)
}

func (c *client) publish(volume, target string, capability *csi.VolumeCapability, readOnly bool) error {
	_, err := c.NodePublishVolume(c.ctx(), &csi.NodePublishVolumeRequest{
		VolumeId: volume, StagingTargetPath: c.path(volume), TargetPath: c.path(target), VolumeCapability: capability,
		Readonly: readOnly, VolumeContext: shareOf(volume, nfsserver.Address),
	})
	return err
}

func (c *client) unpublish(volume, target string) error {
	_, err := c.NodeUnpublishVolume(c.ctx(), &csi.NodeUnpublishVolumeRequest{VolumeId: volume, TargetPath: c.path(target)})
	return err
}

func (c *client) unstage(volume string) error {
	_, err := c.NodeUnstageVolume(c.ctx(), &csi.NodeUnstageVolumeRequest{VolumeId: volume, StagingTargetPath: c.path(volume)})
	return err
}

func (c *client) stats(volume, target string) (*csi.NodeGetVolumeStatsResponse, error) {
	return c.NodeGetVolumeStats(c.ctx(), &csi.NodeGetVolumeStatsRequest{VolumeId: volume, VolumePath: c.path(target)})
}

func (c *client) health(volume, target string) []*csi.VolumeHealth_VolumeHealthEntry {
	c.Helper()
	resp := check.Got(c.NodeGetVolumeHealth(c.ctx(), &csi.NodeGetVolumeHealthRequest{VolumeId: volume, VolumePublishPath: c.path(target)}))(c)
	return resp.GetVolumeHealth().GetHealthStatuses()
}

func (c *client) must(errs ...error) {
	c.Helper()
	check.OK(c, errors.Join(errs...))
}

// left names what is mounted of the client's.
func (c *client) left() (targets []string) {
	c.Helper()
	all, err := nodeops.Mounts()
	c.must(err)
	for _, m := range all {
		if strings.HasPrefix(m.Target, c.dir) {
			targets = append(targets, m.Target)
		}
	}
	return targets
}

func TestNFSVolume_IsUsedByManyPodsOfANode(t *testing.T) {
	_, dirs := nfsserver.Start(t, 2049, "v", "w")
	c := newClient(t)
	c.staged("v", nfsserver.Address, manyNodes(""))
	if m, err := nodeops.MountAt(c.path("v")); err != nil {
		t.Error(err)
	} else if kib, err := os.ReadFile(filepath.Join("/sys/class/bdi", m.Device, "read_ahead_kb")); err != nil || string(kib) != "4096\n" {
		t.Errorf("the kernel reads %s KiB ahead, %v", kib, err)
	}
	for range 2 { // each call may be repeated
		c.must(c.stage("v", manyNodes("")), c.publish("v", "a", manyNodes("4711"), false), c.publish("v", "b", manyNodes(""), false), c.publish("v", "reader", manyNodes(""), true))
	}
	c.must(os.WriteFile(c.path("a", "file"), []byte("content"), 0o644))
	for _, path := range []string{c.path("b", "file"), c.path("reader", "file"), filepath.Join(dirs[0], "file")} {
		if got, err := os.ReadFile(path); err != nil || string(got) != "content" {
			t.Errorf("%s has %q, %v", path, got, err)
		}
	}
	if err := os.WriteFile(c.path("reader", "more"), nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("a reader wrote: %v", err)
	}
	var top unix.Stat_t
	c.must(unix.Stat(dirs[0], &top))
	if top.Gid != 4711 || top.Mode&0o2070 != 0o2070 {
		t.Errorf("the top is of group %d, mode %o", top.Gid, top.Mode)
	}
	usage, err := c.stats("v", "a")
	if err != nil || usage.GetUsage()[0].GetTotal() == 0 || len(usage.GetUsage()) != 2 {
		t.Errorf("the usage is %v, %v", usage, err)
	}
	if h := c.health("v", "a"); len(h) > 0 {
		t.Errorf("its health is %v", h)
	}
	grown, err := c.NodeExpandVolume(c.ctx(), &csi.NodeExpandVolumeRequest{VolumeId: "v", VolumePath: c.path("a"), CapacityRange: &csi.CapacityRange{RequiredBytes: gib}})
	if err != nil || grown.GetCapacityBytes() != gib {
		t.Errorf("grown: %v, %v", grown, err)
	}
	expectError(t, c.publish("v", "reader", manyNodes(""), false), codes.AlreadyExists, "read-only")
	_, err = c.stats("w", "a")
	expectError(t, err, codes.NotFound, "w")
	expectError(t, c.unpublish("w", "a"), codes.FailedPrecondition, "127.0.0.1:/v", "left alone")
	alone := withMode(csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, mountCapability(""))
	expectError(t, c.publish("v", "third", alone, false), codes.FailedPrecondition, "SINGLE_NODE_SINGLE_WRITER")
	for range 2 {
		c.must(c.unpublish("v", "a"), c.unpublish("v", "b"), c.unpublish("v", "reader"), c.unstage("v"))
	}
	if left := c.left(); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
}

func TestNFSVolume_ForReadersIsReadOnly(t *testing.T) {
	nfsserver.Start(t, 2049, "v")
	c := newClient(t)
	readers := withMode(csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, mountCapability(""))
	c.staged("v", nfsserver.Address, readers)
	c.must(c.publish("v", "a", readers, false))
	if err := os.WriteFile(c.path("a", "file"), nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("a reader wrote: %v", err)
	}
	expectError(t, c.stage("v", manyNodes("")), codes.AlreadyExists, "read-only")
	expectError(t, c.publish("v", "b", manyNodes(""), false), codes.FailedPrecondition, "read-only")
	c.must(c.unpublish("v", "a"), c.unstage("v"))
}

func TestNFSVolume_OfAServerWithANameIsFound(t *testing.T) {
	nfsserver.Start(t, 2049, "v")
	c := newClient(t)
	expectError(t, c.stageFrom("v", "no.such.host.invalid", manyNodes("")), codes.Unavailable, "no.such.host.invalid")
	c.staged("v", "localhost", manyNodes(""))
	c.must(c.unstage("v"))
}

// Of a server that is silent each call ends within its limit, whatever hangs below it, and none of another volume waits.
func TestNFSVolume_OfASilentServerBlocksNoCaller(t *testing.T) {
	s, _ := nfsserver.Start(t, 2049, "v", "late")
	c := newClient(t)
	c.staged("v", nfsserver.Address, manyNodes(""))
	c.must(c.publish("v", "a", manyNodes(""), false), c.publish("v", "b", manyNodes(""), false))
	c.must(os.WriteFile(c.path("a", "file"), []byte("content"), 0o644))
	s.Stop()
	for range 2 {
		_, err := c.stats("v", "a")
		expectError(t, err, codes.Unavailable, "v", "does not answer")
		if h := c.health("v", "b"); len(h) != 1 || h[0].GetStatus() != csi.VolumeHealthErrorType_INACCESSIBLE {
			t.Errorf("its health is %v", h)
		}
		expectError(t, c.stage("late", manyNodes("")), codes.Unavailable, "late")
	}
	c.must(c.unpublish("other", "nowhere")) // of a volume that has no server
	for i, target := range []string{"a", "b"} {
		if err := c.unpublish("v", target); err != nil {
			t.Errorf("unpublishing %d: %v", i, err)
		}
	}
	c.must(c.unstage("v"), c.unstage("late"))
	if left := c.left(); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
	s.On()
	c.staged("v", nfsserver.Address, manyNodes(""))
	c.must(c.publish("v", "a", manyNodes(""), false))
	if got, err := os.ReadFile(c.path("a", "file")); err != nil || string(got) != "content" {
		t.Errorf("when the server was back it had %q, %v", got, err)
	}
	c.must(c.unpublish("v", "a"), c.unstage("v"))
	if left := c.left(); len(left) > 0 {
		t.Errorf("the abandoned call mounted %v", left)
	}
}

func TestNFSVolume_OfAnotherServerIsNotMistakenForIt(t *testing.T) {
	nfsserver.Start(t, 2049, "v")
	c := newClient(t)
	c.staged("v", nfsserver.Address, manyNodes(""))
	expectError(t, c.stageFrom("v", "192.0.2.1", manyNodes("")), codes.FailedPrecondition, "127.0.0.1:/v", "192.0.2.1:/v")
	c.must(os.Mkdir(c.path("full"), 0o755), os.WriteFile(c.path("full", "file"), nil, 0o644))
	expectError(t, c.publish("v", "full", manyNodes(""), false), codes.FailedPrecondition, fmt.Sprintf("%q", "file"))
	c.must(c.unstage("v"))
}

// killedClient makes the test below play the node service that is killed: it is the directory where it mounts.
const killedClient = "HOLDFAST_TEST_KILLED_CLIENT"

// TestNFSVolume_SurvivesAKillAtEveryStep kills the node service at every step of the use of a volume. The next one goes on.
func TestNFSVolume_SurvivesAKillAtEveryStep(t *testing.T) {
	if dir := os.Getenv(killedClient); dir != "" {
		newClientIn(t, dir).live()
		return
	}
	_, dirs := nfsserver.Start(t, 2049, "v")
	for _, step := range []crashpoint.Step{crashpoint.StageMounted, crashpoint.PublishBound, crashpoint.UnpublishDone, crashpoint.UnstageMount, crashpoint.UnstageDone} {
		t.Run(string(step), func(t *testing.T) {
			c := newClient(t)
			crash.At(t, crash.Self, "TestNFSVolume_SurvivesAKillAtEveryStep", step, killedClient+"="+c.dir)
			c.live()
			if left := c.left(); len(left) > 0 {
				t.Errorf("still mounted: %v", left)
			}
			if got, err := os.ReadFile(filepath.Join(dirs[0], "file")); err != nil || string(got) != "content" {
				t.Errorf("the server has %q, %v", got, err)
			}
		})
	}
}

// live does all that a kubelet asks of a node, each twice, and writes.
func (c *client) live() {
	c.Helper()
	c.staged("v", nfsserver.Address, manyNodes(""))
	c.must(c.stage("v", manyNodes("")))
	for range 2 {
		c.must(c.publish("v", "a", manyNodes(""), false))
	}
	c.must(os.WriteFile(c.path("a", "file"), []byte("content"), 0o644))
	for range 2 {
		c.must(c.unpublish("v", "a"))
	}
	for range 2 {
		c.must(c.unstage("v"))
	}
}
