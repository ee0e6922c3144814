package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// users are those of a Ceph cluster. A key has the number of the user that it is of.
type users struct {
	mu    sync.Mutex
	made  int
	has   map[string]int
	fails error
	// Of users that are confined: what each reaches, what its node has in use, and how often one was looked at.
	confined     bool
	reach, inUse map[string][]backend.ID
	asked        int
}

func (u *users) NodeUser(_ context.Context, node, publicKey string, attached, inUse []backend.ID) (string, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.fails != nil {
		return "", u.fails
	}
	if u.asked++; u.confined {
		u.inUse[node] = inUse
		reach := slices.Clone(attached)
		for _, id := range u.reach[node] {
			if slices.Contains(inUse, id) && !slices.Contains(reach, id) {
				reach = append(reach, id)
			}
		}
		if u.reach[node] = reach; len(reach) == 0 {
			delete(u.has, node)
			return "", nil
		}
	}
	if u.has[node] == 0 {
		u.made++
		u.has[node] = u.made
	}
	return fmt.Sprintf("%d for %s", u.has[node], publicKey), nil
}

func (u *users) Confined() bool { return u.confined }

func (u *users) RemoveNodeUser(_ context.Context, node string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.fails != nil {
		return u.fails
	}
	delete(u.has, node)
	return nil
}

func (u *users) set(fails error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.fails = fails
}

func (u *users) is(node string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.has[node] > 0
}

func (u *users) reaches(node string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return fmt.Sprint(u.reach[node])
}

func (u *users) uses(node string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return fmt.Sprint(u.inUse[node])
}

func (u *users) times() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.asked
}

// withUsers runs a test with the agent of a pool in a Ceph cluster with a user for each node.
func withUsers(t *testing.T, confined bool, test func(*rig, *users)) {
	inBubble(t, func(r *rig) {
		u := &users{has: map[string]int{}, confined: confined, reach: map[string][]backend.ID{}, inUse: map[string][]backend.ID{}}
		r.change = func(c *Config) { c.Backend, c.NodeUsers = &fencing{host: r.host, blocked: map[string]bool{}}, u }
		test(r.begin(), u)
	})
}

func (r *rig) patchOther(name, patch string, part ...string) {
	r.Helper()
	check.Got(r.nodes.Patch(r.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, part...))(r)
}

// join makes the StorageNode of a node with a public key.
func (r *rig) join(name, publicKey string) {
	r.Helper()
	check.Got(r.nodes.Create(r.Context(), &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(r)
	r.patchOther(name, `{"status":{"publicKey":"`+publicKey+`"}}`, "status")
}

// handed is what a node has in the pool's StorageNode.
func (r *rig) handed(name string) string {
	all := r.status().NodeUsers
	if i := slices.IndexFunc(all, func(u v1beta1.NodeUser) bool { return u.Node == name }); i >= 0 {
		return all[i].Key
	}
	return ""
}

const (
	askedFence = `{"spec":{"fence":{"reason":"NodeDown","requestedAt":"2026-11-25T12:00:00.000000Z"}}}`
	usedFence  = `{"spec":{"fence":{"reason":"NodeDown","requestedAt":"2026-11-25T12:00:00.000000Z","shutOutAt":"2026-11-25T12:01:00.000000Z"}}}`
)

func TestNodeUsers_EachNodeIsHandedTheKeyOfItsOwn(t *testing.T) {
	withUsers(t, false, func(r *rig, u *users) {
		r.join("a", "A")
		wait.Until(r, "the key of a", func() bool { return r.handed("a") == "1 for A" })
		u.set(errors.New("client.holdfast may not do this"))
		r.join("b", "B")
		r.patchOther("a", `{"status":{"publicKey":"A2"}}`, "status")
		wait.Never(r, "what was handed is taken away, or made up", time.Second, func() bool { return r.handed("a") != "1 for A" || r.handed("b") != "" })
		u.set(nil)
		wait.Until(r, "both keys", func() bool { return r.handed("a") == "1 for A2" && r.handed("b") == "2 for B" })
		r.restart()
		check.OK(r, u.RemoveNodeUser(r.Context(), "b")) // by an administrator, who wants another key
		wait.Until(r, "another key", func() bool { return r.handed("b") == "3 for B" })
		if r.handed("a") != "1 for A2" {
			r.Errorf("the other has %s", r.handed("a"))
		}
	})
}

// The accounts of NFS servers and of other pools write the StorageNodes of these, and use no volume of the pool.
func TestNodeUsers_WhatIsNoNodeGetsNone(t *testing.T) {
	withUsers(t, false, func(r *rig, u *users) {
		sites := []string{v1beta1.NodeOfServer("team/files"), v1beta1.NodeOfCephPool("other")}
		for _, site := range sites {
			r.join(site, "S")
		}
		r.join("a", "A")
		wait.Until(r, "the key of the node", func() bool { return r.handed("a") != "" })
		for _, site := range sites {
			if u.is(site) || r.handed(site) != "" {
				r.Errorf("%s has a user, and the key %q", site, r.handed(site))
			}
		}
	})
}

func TestNodeUsers_AreRemovedOnceTheirNodesAreShutOutForGood(t *testing.T) {
	withUsers(t, false, func(r *rig, u *users) {
		r.join("a", "A")
		wait.Until(r, "the key", func() bool { return r.handed("a") == "1 for A" })
		r.patchOther("a", askedFence)
		wait.Never(r, "the user goes before the clients of the node", time.Second, func() bool { return !u.is("a") || r.handed("a") == "" })
		u.set(errors.New("no quorum"))
		r.patchOther("a", usedFence)
		wait.Never(r, "the report goes before the user", time.Second, func() bool { return r.handed("a") == "" })
		u.set(nil)
		wait.Until(r, "the end of the user", func() bool { return !u.is("a") && r.handed("a") == "" })
		r.restart()
		wait.Never(r, "it is made again", time.Second, func() bool { return u.is("a") || r.handed("a") != "" })
		r.patchOther("a", `{"spec":{"fence":null}}`)
		wait.Until(r, "another key once it is let in", func() bool { return r.handed("a") == "2 for A" })
	})
}

func TestNodeUsers_MoreNodesThanThereCanBeTakeNoneAway(t *testing.T) {
	withUsers(t, false, func(r *rig, u *users) {
		all := make([]v1beta1.NodeUser, mostNodeUsers)
		for i := range all {
			all[i] = v1beta1.NodeUser{Node: fmt.Sprintf("n%04d", i), PublicKey: "N", Key: "N"}
		}
		status := check.Got(json.Marshal(map[string]any{"status": map[string]any{"nodeUsers": all}}))(r)
		r.stop()
		r.patchNode(string(status), "status")
		r.begin()
		r.join("a", "A") // before all of them in the list
		wait.Never(r, "another list", nodeUserStays/4*r.agent.SurveyEvery, func() bool { return u.is("a") || !slices.Equal(r.status().NodeUsers, all) })
		wait.Until(r, "the key, once there is room", func() bool { return r.handed("a") == "1 for A" })
	})
}

func TestNodeUsers_OutliveAStorageNodeThatIsDeletedByMistake(t *testing.T) {
	withUsers(t, false, func(r *rig, u *users) {
		r.join("a", "A")
		r.join("gone", "G")
		wait.Until(r, "the keys", func() bool { return r.handed("a") != "" && r.handed("gone") != "" })
		was := r.handed("a")
		for _, name := range []string{"a", "gone"} {
			check.OK(r, r.nodes.Delete(r.Context(), name, metav1.DeleteOptions{}))
		}
		wait.Never(r, "a user goes", nodeUserStays/2*r.agent.SurveyEvery, func() bool { return !u.is("a") || !u.is("gone") })
		r.join("a", "A")
		wait.Until(r, "the end of the user of the other", func() bool { return !u.is("gone") && r.handed("gone") == "" })
		if r.handed("a") != was {
			r.Errorf("the node that came back has %s, and had %s", r.handed("a"), was)
		}
	})
}

// attach makes the VolumeAttachment of a PersistentVolume, which has the name of its volume but for one that an administrator wrote.
func (r *rig) attach(volume, pv, node, driver string) (detach func()) {
	r.Helper()
	all, name := r.leases.StorageV1().VolumeAttachments(), v1beta1.AttachmentName(volume, driver, node)
	check.Got(all.Create(r.Context(), &storage.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       storage.VolumeAttachmentSpec{Attacher: driver, NodeName: node, Source: storage.VolumeAttachmentSource{PersistentVolumeName: &pv}},
	}, metav1.CreateOptions{}))(r)
	return func() {
		r.Helper()
		check.OK(r, all.Delete(r.Context(), name, metav1.DeleteOptions{}))
	}
}

func TestNodeUsers_ThatAreConfinedReachWhatIsAttachedOrInUse(t *testing.T) {
	withUsers(t, true, func(r *rig, u *users) {
		r.withVolumes("v1", "v2")
		r.join("a", "A")
		r.join("b", "B")
		wait.Never(r, "the key of a node that uses nothing", time.Second, func() bool { return r.handed("a") != "" })
		detach := r.attach("v1", "v1", "a", v1beta1.DriverName)
		r.attach("elsewhere", "elsewhere", "a", v1beta1.DriverName)
		r.attach("v2", "v2", "a", "another.example.com")
		wait.Until(r, "the key of a", func() bool { return r.handed("a") == "1 for A" && u.reaches("a") == "[v1]" })
		r.attach("v1", "v1", "b", v1beta1.DriverName)
		r.attach("v2", "by-hand", "b", v1beta1.DriverName)
		wait.Until(r, "both volumes of b", func() bool { return r.handed("b") == "2 for B" && u.reaches("b") == "[v1 v2]" })
		if is := u.reaches("a"); is != "[v1]" {
			r.Errorf("a reaches %s", is)
		}
		r.patchOther("a", `{"status":{"cephVolumes":["v1","v2"]}}`, "status")
		wait.Until(r, "the agent to see what is in use", func() bool { return u.uses("a") == "[v1 v2]" })
		detach()
		wait.Never(r, "what the kernel has is taken away, or what a node says given", time.Minute, func() bool { return u.reaches("a") != "[v1]" || r.handed("a") != "1 for A" })
		r.restart()
		wait.Never(r, "the same of another process", time.Minute, func() bool { return u.reaches("a") != "[v1]" || r.handed("a") != "1 for A" })
		unmounted := time.Now()
		r.patchOther("a", `{"status":{"cephVolumes":["v2"]}}`, "status")
		wait.Until(r, "the end of the user", func() bool { return u.reaches("a") == "[]" && r.handed("a") == "" })
		if took := time.Since(unmounted); took >= r.agent.SurveyEvery {
			r.Errorf("it took %s", took)
		}
	})
}

func TestNodeUsers_ThatAreNotConfinedAreNotAskedForWhenSomethingIsAttached(t *testing.T) {
	withUsers(t, false, func(r *rig, u *users) {
		r.withVolumes("v1")
		r.join("a", "A")
		wait.Until(r, "the key of a", func() bool { return r.handed("a") != "" })
		asked := u.times()
		r.attach("v1", "v1", "a", v1beta1.DriverName)
		r.patchOther("a", `{"status":{"cephVolumes":["v1"]}}`, "status")
		synctest.Wait()
		if now := u.times(); now != asked {
			r.Errorf("asked %d times", now-asked)
		}
	})
}
