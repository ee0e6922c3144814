//go:build ceph

package ceph

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/driver"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/crash"
)

// killedNode makes the test below play the node service that is killed: it is the name of the life it leads, and the directory.
const killedNode, killedIn = "HOLDFAST_TEST_KILLED_NODE", "HOLDFAST_TEST_KILLED_IN"

// life is the use of one volume from its staging to its unstaging.
type life struct {
	id         string
	capability *csi.VolumeCapability
	add        func(n *node, w world, id backend.ID)
	steps      []crashpoint.Step
}

var lives = map[string]life{
	"file system on an image": {"killed-ext4", capability(backend.Filesystem, singleWriter), func(n *node, w world, id backend.ID) {
		n.addImage(w, id, backend.Filesystem, "ext4")
	}, []crashpoint.Step{crashpoint.ImageMapped, crashpoint.StageAttached, crashpoint.StageMounted, crashpoint.PublishBound, crashpoint.UnpublishDone, crashpoint.UnstageMount, crashpoint.UnstageDone}},
	"image": {"killed-raw", capability(backend.Block, singleWriter), func(n *node, w world, id backend.ID) {
		n.addImage(w, id, backend.Block, "")
	}, []crashpoint.Step{crashpoint.ImageMapped, crashpoint.StageAttached, crashpoint.PublishBound, crashpoint.UnpublishDone, crashpoint.UnstageMount, crashpoint.UnstageDone}},
	"directory": {"shared", capability(backend.Filesystem, manyWriters), func(n *node, w world, id backend.ID) {
		n.addDirectory(w, id)
	}, []crashpoint.Step{crashpoint.StageMounted, crashpoint.PublishBound, crashpoint.UnpublishDone, crashpoint.UnstageMount, crashpoint.UnstageDone}},
}

// TestGuestKill_NodeServiceGoesOnAndEveryClientIsRecorded kills the node service at every step of the use of a volume in Ceph.
// The next one goes on, and no client that the kernel has lacks its record: a fence would miss it. The client of an image that
// was just mapped writes nothing; the next staging records it, as the agent does when it starts.
func TestGuestKill_NodeServiceGoesOnAndEveryClientIsRecorded(t *testing.T) {
	ctx, w := onGuest(t)
	if name := os.Getenv(killedNode); name != "" {
		newKillable(ctx, t, w, lives[name], os.Getenv(killedIn)).live()
		return
	}
	for name, l := range lives {
		for _, step := range l.steps {
			t.Run(name+" at "+string(step), func(t *testing.T) {
				dir := t.TempDir()
				crash.At(t, crash.Self, "TestGuestKill_NodeServiceGoesOnAndEveryClientIsRecorded", step, killedNode+"="+name, killedIn+"="+dir)
				next := newKillable(ctx, t, w, l, dir)
				if step != crashpoint.ImageMapped {
					next.recorded("after the kill")
				}
				next.live()
				nothingMapped(t)
			})
		}
	}
}

// killable is a node service whose record of clients outlives it, as a StorageNode does.
type killable struct {
	*node
	life
	file string
}

func newKillable(ctx context.Context, t *testing.T, w world, l life, dir string) *killable {
	t.Helper()
	n := &node{T: t, ctx: ctx, dir: dir, volumes: &volumes{all: map[backend.ID]*backend.Volume{}}}
	k := &killable{node: n, life: l, file: filepath.Join(dir, "clients")}
	l.add(n, w, backend.ID(l.id))
	n.NodeClient = serve(ctx, t, w, driver.Config{Services: driver.NodeServices, Backend: n.volumes, CephClient: func(_ context.Context, _ backend.ID, c nodeops.CephClient) error {
		all, err := k.clients()
		if err != nil {
			return err
		}
		text, err := json.Marshal(append(all, c))
		if err != nil {
			return err
		}
		return nodeops.ReplaceFile(k.file, text)
	}}).NodeClient
	return k
}

func (k *killable) clients() (all []nodeops.CephClient, err error) {
	text, err := os.ReadFile(k.file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return all, json.Unmarshal(text, &all)
}

// live does all that a kubelet asks of a node, each twice.
func (k *killable) live() {
	k.Helper()
	k.twice("staging", func() error { return k.stage(k.id, k.capability) })
	if k.recorded("staged") == 0 {
		k.Error("staged, the kernel has no client")
	}
	k.twice("publishing", func() error { return k.publish(k.id, k.capability) })
	k.recorded("published")
	k.twice("unpublishing", func() error { return k.unpublish(k.id) })
	k.twice("unstaging", func() error { return k.unstage(k.id) })
	if has, _, err := driver.CephVolumesInUse(k.ctx, driver.DefaultName, nil); err != nil || len(has) > 0 {
		k.Errorf("unstaged, the kernel has %v, %v", has, err)
	}
}

// recorded fails unless each client that the kernel has is recorded, and returns their number.
func (k *killable) recorded(when string) int {
	k.Helper()
	known, errKnown := k.clients()
	_, has, err := driver.CephVolumesInUse(k.ctx, driver.DefaultName, nil)
	check.OK(k, errors.Join(err, errKnown))
	for _, c := range has {
		if !slices.ContainsFunc(known, func(r nodeops.CephClient) bool { return r.FSID == c.FSID && r.ID == c.ID }) {
			k.Errorf("%s: the kernel has client %s, and recorded are %+v", when, c.ID, known)
		}
	}
	return len(has)
}
