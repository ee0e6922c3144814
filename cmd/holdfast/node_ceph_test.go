package main

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/convert"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// cephNode is a node without pools of its own.
func cephNode(t *testing.T) (*nodeStorage, client.Interface, *miniapi.Server) {
	t.Helper()
	api := miniapi.New(t)
	ours := client.NewForConfigOrDie(api.Config())
	return &nodeStorage{
		Backend: local.OpenReachable(t.Context(), nil, slog.New(slog.DiscardHandler)), node: "here", driver: v1beta1.DriverName, api: ours.HoldfastV1beta1(),
		attachments: kubernetes.NewForConfigOrDie(api.Config()).StorageV1().VolumeAttachments(),
	}, ours, api
}

func putVolume(t *testing.T, c client.Interface, name, node string, status v1beta1.VolumeStatus) {
	t.Helper()
	wait.Put(t, &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.VolumeSpec{Name: name, Node: node}, Status: status}, c.HoldfastV1beta1().Volumes())
}

// rbdImage is a volume in a Ceph cluster.
func rbdImage(mode v1beta1.Mode, fsType string) v1beta1.VolumeStatus {
	cluster := v1beta1.VolumeCeph{FSID: "f", Monitors: []string{"v2:10.0.0.1:3300"}, User: "u"}
	return v1beta1.VolumeStatus{
		CreationTime: new(metav1.NowMicro()), Size: v1beta1.Quantity(1 << 30), Mode: mode, FSType: fsType,
		Access: &v1beta1.VolumeAccess{RBD: &v1beta1.VolumeRBD{Cluster: cluster, Pool: "p", Image: "image"}},
	}
}

func TestCephKeys_NodeWithAUserOfItsOwnReadsItsKeyAndNoOther(t *testing.T) {
	_, ours, _ := cephNode(t)
	key := check.Got(nodeops.LoadNodeKey(filepath.Join(t.TempDir(), "key")))(t)
	k := &cephKeys{pools: ours.HoldfastV1beta1().StorageNodes(), own: key}
	of := backend.Ceph{FSID: "f", User: "holdfast-node.block."}
	fails := func(node, says string) {
		t.Helper()
		if _, err := k.CephKey(t.Context(), of, node); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("the key of node %s: %v", node, err)
		}
	}
	fails("a", "not found")
	site := check.Got(k.pools.Create(t.Context(), &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: v1beta1.NodeOfCephPool("block")}}, metav1.CreateOptions{}))(t)
	fails("a", "pool block has none for it yet in status.nodeUsers")
	fence := &v1beta1.Fence{Reason: "NodeDown", RequestedAt: metav1.NowMicro()}
	check.Got(k.pools.Create(t.Context(), &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: "lost"}, Spec: v1beta1.StorageNodeSpec{Fence: fence}}, metav1.CreateOptions{}))(t)
	fails("lost", "node lost is shut out of all Ceph clusters since ")
	const secret = "AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA=="
	for node, user := range map[string]string{"a": "holdfast-node.block.a", "b": "holdfast-node.block.a"} {
		sealed := check.Got(nodeops.SealForNode(key.Public(), "f."+user, []byte(secret)))(t)
		site.Status.NodeUsers = append(site.Status.NodeUsers, v1beta1.NodeUser{Node: node, PublicKey: key.Public(), Key: sealed})
	}
	site.Status.NodeUsers = append(site.Status.NodeUsers, v1beta1.NodeUser{Node: "c", PublicKey: "of another", Key: site.Status.NodeUsers[0].Key})
	check.Got(k.pools.UpdateStatus(t.Context(), site, metav1.UpdateOptions{}))(t)
	if _, err := k.CephKey(t.Context(), of, "a"); err != nil {
		t.Error(err)
	}
	fails("b", "for another purpose")
	fails("c", "has none for it yet")
	k.lacks = errors.New("the disk is read-only")
	fails("a", "read-only")
	if k.public() != "" {
		t.Error("it reports a key that it does not have")
	}
}

func TestNodeStorage_FindsVolumesOfCephPools(t *testing.T) {
	s, ours, api := cephNode(t)
	image := rbdImage(v1beta1.ModeFilesystem, "ext4")
	putVolume(t, ours, "image", v1beta1.NodeOfCephPool("block"), image)
	putVolume(t, ours, "unmade", v1beta1.NodeOfCephPool("block"), v1beta1.VolumeStatus{})
	putVolume(t, ours, "local", "node-b", image)
	putVolume(t, ours, "exported", v1beta1.NodeOfServer("team/files"), image)

	v, err := s.Get(t.Context(), "image")
	if err != nil || v.Access.RBD == nil || v.Access.RBD.Image != "image" || v.Reach != backend.OneHost || v.FSType != "ext4" {
		t.Fatalf("got %+v, %v", v, err)
	}
	for _, id := range []backend.ID{"unmade", "local", "exported", "nothing"} {
		if _, err := s.Get(t.Context(), id); !errors.Is(err, backend.ErrNotFound) || errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("%s: %v", id, err)
		}
	}

	api.Close()
	if _, err := s.Get(t.Context(), "image"); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("without the API server: %v", err)
	}
	if v, err := s.Recall(t.Context(), "image"); err != nil || v.Access.RBD == nil {
		t.Errorf("recalled: %+v, %v", v, err)
	}
	s.forget("image")
	if _, err := s.Recall(t.Context(), "image"); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("after it was released: %v", err)
	}
}

func TestNodeStorage_ImageWhoseObjectDoesNotSayWhereItIsAttachedIsThatOfTheNodeThatHasIt(t *testing.T) {
	s, ours, _ := cephNode(t)
	putVolume(t, ours, "image", v1beta1.NodeOfCephPool("block"), rbdImage(v1beta1.ModeBlock, ""))
	attached := func(want string) {
		t.Helper()
		if v, err := s.Get(t.Context(), "image"); err != nil || v.AttachedTo != want {
			t.Errorf("it is attached to %q, want %q: %v", v.AttachedTo, want, err)
		}
	}
	nodes := ours.HoldfastV1beta1().StorageNodes()
	has := func(name string) *v1beta1.StorageNode {
		status := v1beta1.StorageNodeStatus{CephVolumes: []string{"image"}}
		return wait.Put(t, &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: status}, nodes)
	}
	has("here")
	attached("")
	detached := func(want bool, why string) {
		t.Helper()
		if v, err := s.Get(t.Context(), "image"); err != nil || v.Detached != want {
			t.Errorf("%s: it is detached: %t, %v", why, v.Detached, err)
		}
	}
	detached(true, "no VolumeAttachment")
	attachment := &storage.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: v1beta1.AttachmentName("image", v1beta1.DriverName, "here")}}
	attachment = check.Got(s.attachments.Create(t.Context(), attachment, metav1.CreateOptions{}))(t)
	detached(true, "a VolumeAttachment that waits")
	attachment.Status.Attached = true
	check.Got(s.attachments.UpdateStatus(t.Context(), attachment, metav1.UpdateOptions{}))(t)
	detached(false, "attached")
	other := has("other")
	attached("other")
	fence := func(f *v1beta1.Fence) {
		t.Helper()
		other.Spec.Fence = f
		other = check.Got(nodes.Update(t.Context(), other, metav1.UpdateOptions{}))(t)
	}
	f := &v1beta1.Fence{Reason: v1beta1.ReasonNodeDown, RequestedAt: metav1.NowMicro()}
	fence(f)
	attached("other")
	f.ShutOutAt = new(metav1.NowMicro())
	fence(f)
	attached("")
}

func TestCephVolumes_ConditionNamesTheModule(t *testing.T) {
	if len((&node{}).cephVolumes()) > 0 {
		t.Error("there is a condition without Ceph pools")
	}
	found := (&node{cephEngines: []string{"rbd", "cephfs"}}).cephVolumes()
	if len(found) != len(cephClients) {
		t.Errorf("there are %d conditions", len(found))
	}
	for engine, client := range cephClients {
		want := client.check()
		reason, err := found[client.condition]()
		switch {
		case want == nil && err != nil:
			t.Errorf("with the client of %s: %s, %v", engine, reason, err)
		case want != nil && (err == nil || !strings.Contains(err.Error(), want.Error()) || !strings.Contains(err.Error(), string(convert.FromEngine(engine)))):
			t.Errorf("%v does not say that engine %s needs: %v", err, engine, want)
		case want != nil && strings.Contains(want.Error(), "no module") && reason != v1beta1.ReasonNoCephClient:
			t.Errorf("the reason is %s", reason)
		}
	}
}
