package cluster

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

const (
	cephAccount = "holdfast-ceph-account"
	cephFSID    = "11111111-2222-3333-4444-555555555555"
	blockSite   = "block.ceph.holdfast.dev"
)

// cephPools are a pool on the nodes and two in a Ceph cluster.
func cephPools(s *v1beta1.StorageClusterSpec) {
	ceph := v1beta1.CephSpec{
		FSID: cephFSID, Monitors: []string{"v2:10.0.0.1:3300"},
		SecretRef: v1beta1.CephSecretReference{Name: "ceph"}, NodeSecretRef: v1beta1.CephSecretReference{Name: "ceph-node"},
	}
	block, files := ceph, ceph
	block.Pool, files.Filesystem = "rbd", "cephfs"
	s.Pools = []v1beta1.PoolSpec{
		{Name: "disk", Path: "/srv/disk"},
		{Name: "block", Engine: v1beta1.EngineRBD, Ceph: &block},
		{Name: "files", Engine: v1beta1.EngineCephFS, Ceph: &files},
	}
}

func cephKey(fill byte) map[string][]byte {
	return map[string][]byte{"key": []byte(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, 28)))}
}

// cephKeys are the secrets that cephPools name.
func (r *rig) cephKeys() {
	r.Helper()
	for name, fill := range map[string]byte{"ceph": 1, "ceph-node": 2} {
		r.putSecret(name, cephKey(fill))
		r.Cleanup(func() { _ = r.theirs.CoreV1().Secrets(namespace).Delete(background, name, metav1.DeleteOptions{}) })
	}
}

// withCeph is a rig whose controller has applied cephPools.
func withCeph(t *testing.T) *rig {
	t.Helper()
	r := newRig(t).start()
	r.cephKeys()
	r.create("holdfast", cephPools)
	r.reconciled("holdfast")
	return r
}

// hasSite says whether the Deployment and the account of a pool are there.
func (r *rig) hasSite(pool string) (deployment, account bool) {
	r.Helper()
	name := "holdfast-ceph-" + pool
	made, served := r.theirs.AppsV1().Deployments(namespace), r.theirs.CoreV1().ServiceAccounts(namespace)
	return wait.Get(r, made.Get, name) != nil, wait.Get(r, served.Get, name) != nil
}

func TestCeph_NothingIsChangedUntilTheKeysAreThere(t *testing.T) {
	r := newRig(t).start()
	r.create("holdfast", cephPools)
	r.condition("holdfast", v1beta1.DegradedCondition, reasonInvalid, "spec.pools[1].ceph.secretRef", "no secret "+namespace+"/ceph")
	if made, _ := r.hasSite("block"); made {
		t.Error("a pool is served without a key")
	}
	r.putSecret("ceph-node", map[string][]byte{"key": []byte("top-secret-but-no-key")})
	r.putSecret("ceph", cephKey(1))
	message := r.condition("holdfast", v1beta1.DegradedCondition, reasonInvalid, "nodeSecretRef", "no key of Ceph")
	if strings.Contains(message, "top-secret") {
		t.Errorf("what it reads is in %s", message)
	}
	r.cephKeys()
	wait.Until(r, "both pools", func() bool {
		block, _ := r.hasSite("block")
		files, _ := r.hasSite("files")
		return block && files
	})
	r.reconciled("holdfast")
	// A key that goes again takes nothing with it.
	check.OK(t, r.theirs.CoreV1().Secrets(namespace).Delete(t.Context(), "ceph", metav1.DeleteOptions{}))
	r.condition("holdfast", v1beta1.DegradedCondition, reasonInvalid)
	if made, account := r.hasSite("block"); !made || !account {
		t.Error("the pool is not served any more")
	}
}

func TestCeph_PoolStaysWhileItHasVolumesAndThenGoesWithAllThatItHad(t *testing.T) {
	r := withCeph(t)
	wait.Until(r, "both pools", func() bool {
		_, block := r.hasSite("block")
		_, files := r.hasSite("files")
		return block && files
	})
	r.keptTo("files.ceph.holdfast.dev") // of the other pool
	check.Got(r.ours.HoldfastV1beta1().StorageNodes().Create(t.Context(), &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: blockSite}}, metav1.CreateOptions{}))(t)
	r.volumeIn("v1", blockSite, "block", v1beta1.PhaseReady)
	wait.Until(r, "the pool in the status", func() bool {
		for _, p := range r.cluster("holdfast").Status.Pools {
			if p.Name == "block" && p.Path == "ceph:"+cephFSID+"/pool/rbd/" && p.Volumes == 1 {
				return true
			}
		}
		return false
	})
	a := r.asker()
	without := func(s *v1beta1.StorageClusterSpec) { s.Pools = append(s.Pools[:1:1], s.Pools[2]) }
	wait.Until(r, "the rules being held", func() bool { return a.try(without) != nil })
	if err := a.try(without); !strings.Contains(err.Error(), "pool block holds 1 volumes") || !strings.Contains(err.Error(), blockSite) {
		t.Errorf("it is refused for %v", err)
	}
	if err := a.try(func(s *v1beta1.StorageClusterSpec) { s.Pools[1].Ceph.Monitors = []string{"v2:10.0.0.2:3300"} }); err != nil {
		t.Errorf("monitors may change, and yet: %v", err)
	}
	twice := func(namespace string) func(*v1beta1.StorageClusterSpec) {
		return func(s *v1beta1.StorageClusterSpec) {
			again := s.Pools[1].DeepCopy()
			again.Name, again.Ceph.Namespace = "again", namespace
			s.Pools = append(s.Pools, *again)
		}
	}
	wait.Until(r, "two pools of one place being refused", func() bool {
		err := a.try(twice(""))
		return err != nil && strings.Contains(err.Error(), "two pools have pool rbd of Ceph cluster "+cephFSID)
	})
	if err := a.try(twice("apart")); err != nil {
		t.Errorf("a namespace keeps them apart, and yet: %v", err)
	}
	r.noVolume("v1")
	wait.Until(r, "the pool being empty", func() bool { return a.try(without) == nil })
	r.change("holdfast", without)
	wait.Until(r, "the end of all that the pool had", func() bool {
		made, account := r.hasSite("block")
		return !made && !account && wait.Get(r, r.ours.HoldfastV1beta1().StorageNodes().Get, blockSite) == nil
	})
	if made, account := r.hasSite("files"); !made || !account {
		t.Error("the other pool is gone, too")
	}
	check.Got(r.ours.HoldfastV1beta1().StorageNodes().Get(t.Context(), "files.ceph.holdfast.dev", metav1.GetOptions{}))(t)
}

func TestToken_OfACephPoolWritesOnlyObjectsOfItsPool(t *testing.T) {
	r := withCeph(t)
	wait.Until(r, "the pool", func() bool { _, account := r.hasSite("block"); return account })
	r.keptTo(blockSite, "files.ceph.holdfast.dev", "agents-one")
	const account = "holdfast-ceph-block"
	agent := realapi.WithToken(t, r.config, namespace, account, "")
	wait.Until(r, "its rights", func() bool {
		return (realapi.Attempt{Verb: "patch", What: theStorageNodes + "/status", Name: blockSite, Body: asVersion}).Try(t.Context(), agent) == nil
	})
	realapi.AllRights(t, r.config, namespace, account)
	r.refusedSoon(cephAccount, agent, realapi.Attempt{Verb: "delete", What: theVolumes, Name: "agents-one"})
	id := strings.ReplaceAll(blockSite, ".", "-")
	access := func(body string) realapi.Attempt {
		return realapi.Attempt{Verb: "patch", What: theVolumes + "/status", Name: id, Body: `{"status":{"access":` + body + `}}`}
	}
	rbd := func(fsid, pool, user string) realapi.Attempt {
		return access(`{"rbd":{"cluster":{"fsid":"` + fsid + `","monitors":["v2:10.0.0.1:3300"],"user":"` + user + `"},"pool":"` + pool + `","image":"a"}}`)
	}
	own := []realapi.Attempt{rbd(cephFSID, "rbd", "holdfast-node")}
	for _, a := range ofNode(blockSite) {
		if !strings.Contains(a.Body, `"access"`) {
			own = append(own, a)
		}
	}
	serving := func(pool, in string) realapi.Attempt {
		return realapi.Attempt{Verb: "create", What: theLeases, In: in, Name: v1beta1.LeaseOfCephPool(pool), Body: aLease}
	}
	own = append(own, serving("block", namespace))
	r.takes("its own", agent, own...)
	others := append(ofNode("files.ceph.holdfast.dev"), neverOfAgents(blockSite)...)
	others = append(others, ofNode("agents-one")...)
	others = append(others,
		serving("files", namespace), serving("block", "default"),
		realapi.Attempt{Verb: "create", What: theLeases, In: namespace, Name: v1beta1.LeaseOfCephPool("block"), Body: `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","spec":{"leaseDurationSeconds":61}}`},
		rbd("99999999-2222-3333-4444-555555555555", "rbd", "holdfast-node"), rbd(cephFSID, "other", "holdfast-node"), rbd(cephFSID, "rbd", "admin"),
		access(`{"image":"/etc/shadow"}`), access(`{"directory":"/etc"}`),
		access(`{"rbd":{"cluster":{"fsid":"`+cephFSID+`","monitors":["v2:10.0.0.1:3300","v2:192.0.2.1:3300"],"user":"holdfast-node"},"pool":"rbd","image":"a"}}`),
		access(`{"rbd":{"cluster":{"fsid":"`+cephFSID+`","monitors":["v2:10.0.0.1:3300"],"user":"holdfast-node","secure":true},"pool":"rbd","image":"a"}}`),
		access(`{"cephfs":{"cluster":{"fsid":"`+cephFSID+`","monitors":["v2:10.0.0.1:3300"],"user":"holdfast-node"},"filesystem":"cephfs","path":"/"}}`),
	)
	r.refusedAlone(cephAccount, agent, "", append(others, realapi.Forged(id, id, blockSite)...))
	r.leavesToControllers(cephAccount, agent, blockSite)

	files, cephfs := realapi.WithToken(t, r.config, namespace, "holdfast-ceph-files", ""), func(filesystem, path string) realapi.Attempt {
		return realapi.Attempt{Verb: "patch", What: theVolumes + "/status", Name: "files-ceph-holdfast-dev", Body: `{"status":{"access":{"cephfs":{"cluster":{"fsid":"` + cephFSID +
			`","monitors":["v2:10.0.0.1:3300"],"user":"holdfast-node"},"filesystem":"` + filesystem + `","path":"` + path + `"}}}}`}
	}
	realapi.AllRights(t, r.config, namespace, "holdfast-ceph-files")
	wait.For(r, "the rights of a pool of directories", func() error { return cephfs("cephfs", "/volumes/holdfast/a/1").Try(t.Context(), files) })
	r.refusedSoon(cephAccount, files, realapi.Attempt{Verb: "delete", What: theVolumes, Name: "agents-one"})
	r.refusedAlone(cephAccount, files, "", []realapi.Attempt{
		cephfs("other", "/volumes/holdfast/b/1"), cephfs("cephfs", "/"), cephfs("cephfs", "/volumes/other/b/1"), cephfs("cephfs", "/volumes/holdfast-2/b/1"), cephfs("cephfs", "/home/b"),
	})
}

func TestToken_OfANodePodNamesNoCephCluster(t *testing.T) {
	r := running(t, nil)
	r.keptTo("agents-one")
	agent := r.agentOn("agents-one")
	realapi.AllRights(t, r.config, namespace, agents)
	for _, body := range []string{
		`{"rbd":{"cluster":{"fsid":"` + cephFSID + `","monitors":["v2:10.0.0.1:3300"],"user":"u"},"pool":"p","image":"a"}}`,
		`{"cephfs":{"cluster":{"fsid":"` + cephFSID + `","monitors":["v2:10.0.0.1:3300"],"user":"u"},"filesystem":"f","path":"/a"}}`,
	} {
		r.refusedSoon(nodeAccount, agent, realapi.Attempt{Verb: "patch", What: theVolumes + "/status", Name: "agents-one", Body: `{"status":{"access":` + body + `}}`})
	}
}

func TestUninstall_WaitsForThePodsOfCephPools(t *testing.T) {
	r := withCeph(t)
	pods := r.theirs.CoreV1().Pods(namespace)
	of := labels.Set{v1beta1.ComponentLabel: v1beta1.CephComponent}.String()
	wait.Until(r, "the pods", func() bool {
		all, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: of})
		return err == nil && len(all.Items) == 2
	})
	// One that does not end, as one does not that waits for a cluster.
	all := check.Got(pods.List(t.Context(), metav1.ListOptions{LabelSelector: of}))(t)
	name := all.Items[0].Name
	check.Got(pods.Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":["holdfast.test/slow"]}}`), metav1.PatchOptions{}))(t)
	free := func() {
		_, _ = pods.Patch(background, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	}
	t.Cleanup(free)
	r.delete("holdfast")
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonTerminating, "node pods")
	free()
	r.gone("holdfast")
	for _, pool := range []string{"block", "files"} {
		if made, account := r.hasSite(pool); made || account {
			t.Errorf("of pool %s there is left: Deployment %t, account %t", pool, made, account)
		}
	}
}
