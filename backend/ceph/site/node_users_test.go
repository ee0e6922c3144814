//go:build ceph

package site

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ceph/go-ceph/cephfs"
	"github.com/ceph/go-ceph/rados"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
	"github.com/holdfast-storage/holdfast/nodeops"
	rig "github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// withNodeUsers is a pool whose user may make those of nodes, and no more than that.
func withNodeUsers(t *testing.T, engine string, change ...func(*Config)) Config {
	t.Helper()
	c := configOf(t, engine)
	c.NodeKeyFile, c.Ceph.NodeUser = "", c.Ceph.NodeUser+"."+c.Pool+"."
	for _, f := range change {
		f(&c)
	}
	limitTo(t, &c, "", "")
	return c
}

// nodeOf opens what a node was handed.
func nodeOf(t *testing.T, c Config, own nodeops.NodeKey, node, sealed string) ceph.Key {
	t.Helper()
	secret := check.Got(own.Open(sealed, c.Ceph.FSID+"."+c.Ceph.NodeUser+node))(t)
	return ceph.Key(secret)
}

func TestNodeUser_IsMadeForOneNodeAndRemoved(t *testing.T) {
	rig.Require(t)
	own := check.Got(nodeops.LoadNodeKey(filepath.Join(t.TempDir(), "key")))(t)
	for name, c := range map[string]Config{
		"images":                           withNodeUsers(t, RBD),
		"images in a namespace":            withNodeUsers(t, RBD, func(c *Config) { c.Ceph.Namespace = "team" }),
		"images with data in another pool": withNodeUsers(t, RBD, func(c *Config) { c.Ceph.DataPool = newPool(t) }),
	} {
		t.Run(name, func(t *testing.T) {
			p := open(t, c)
			p.look(t.Context())
			check.OK(t, p.Ready(t.Context()))
			if err := p.NodeWarning(); err != nil {
				t.Errorf("nodes cannot use it: %v", err)
			}
			keys := map[string]ceph.Key{}
			for _, node := range []string{"a", "b.example.com"} {
				sealed, err := p.NodeUser(t.Context(), node, own.Public(), nil, nil)
				check.OK(t, err)
				again, err := p.NodeUser(t.Context(), node, own.Public(), nil, nil)
				if err != nil || again != sealed {
					t.Errorf("handed again is another key: %v", err)
				}
				keys[node] = nodeOf(t, c, own, node, sealed)
				if strings.Contains(sealed, string(keys[node])) {
					t.Error("the key is not encrypted")
				}
				if err := p.checkNodeUser(t.Context(), p.ofNode(node), keys[node]); err != nil {
					t.Errorf("node %s cannot use volumes: %v", node, err)
				}
			}
			if keys["a"] == keys["b.example.com"] {
				t.Error("two nodes have one key")
			}
			for range 2 {
				check.OK(t, p.RemoveNodeUser(t.Context(), "a"))
			}
			if err := p.checkNodeUser(t.Context(), p.ofNode("a"), keys["a"]); err == nil || !strings.Contains(err.Error(), "refuses client.") {
				t.Errorf("once it is removed, its key connects: %v", err)
			}
			if err := p.checkNodeUser(t.Context(), p.ofNode("b.example.com"), keys["b.example.com"]); err != nil {
				t.Errorf("the other: %v", err)
			}
			sealed, err := p.NodeUser(t.Context(), "a", own.Public(), nil, nil)
			if err != nil || nodeOf(t, c, own, "a", sealed) == keys["a"] {
				t.Errorf("made again it has the key from before: %v", err)
			}
		})
	}
}

// asNode does something in the Ceph cluster as a node would.
func asNode[T any](t *testing.T, p *pool, node string, key ceph.Key, f func(*ceph.Cluster) (T, error)) (T, error) {
	t.Helper()
	c := p.Ceph
	c.User, c.Key = p.ofNode(node).user, key
	cluster := check.Got(ceph.New(c, slog.New(slog.DiscardHandler)))(t)
	defer func() {
		check.Report(t, cluster.Close(context.Background()))
	}()
	return f(cluster)
}

// writeAs writes a file into the directory of a volume, and reads it.
func writeAs(t *testing.T, p *pool, node string, key ceph.Key, v *backend.Volume) error {
	t.Helper()
	_, err := asNode(t, p, node, key, func(cluster *ceph.Cluster) (any, error) {
		return mounted(t.Context(), p, cluster, v.Access.CephFS.Path, func(m *cephfs.MountInfo) (any, error) {
			return nil, errors.Join(write(m, "file of "+node), read(m, "file of "+node))
		})
	})
	return err
}

func write(m *cephfs.MountInfo, name string) error {
	f, err := m.Open("/"+name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte("content"))
	return errors.Join(err, f.Fsync(cephfs.SyncAll), f.Close())
}

func read(m *cephfs.MountInfo, name string) error {
	f, err := m.Open("/"+name, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	b := make([]byte, 16)
	n, err := f.Read(b)
	if err == nil && string(b[:n]) != "content" {
		err = fmt.Errorf("it holds %q", b[:n])
	}
	return errors.Join(err, f.Close())
}

// objectsAs lists the objects of a volume in the data pool, past the metadata servers.
func objectsAs(t *testing.T, p *pool, node string, key ceph.Key, namespace string) (n int, err error) {
	t.Helper()
	pools, err := p.dataPools(t.Context(), p.serving().cluster)
	check.OK(t, err)
	return asNode(t, p, node, key, func(cluster *ceph.Cluster) (int, error) {
		return ceph.Call(t.Context(), cluster, "listing objects", func(conn *rados.Conn) (int, error) {
			io, err := conn.OpenIOContext(pools[0])
			if err != nil {
				return 0, err
			}
			defer io.Destroy()
			io.SetNamespace(namespace)
			n := 0
			return n, io.ListObjects(func(string) { n++ })
		})
	})
}

func TestNodeUser_OfDirectoriesReachesThoseThatAreAttachedAndNoOthers(t *testing.T) {
	rig.Require(t)
	own, err := nodeops.LoadNodeKey(filepath.Join(t.TempDir(), "key"))
	check.OK(t, err)
	c := withNodeUsers(t, CephFS)
	p := open(t, c)
	p.look(t.Context())
	check.OK(t, errors.Join(p.Ready(t.Context()), p.NodeWarning()))
	made := func(v *backend.Volume, err error) *backend.Volume {
		t.Helper()
		check.OK(t, err)
		return v
	}
	spec := func(name string) backend.VolumeSpec {
		return backend.VolumeSpec{Name: name, Size: backend.Size{Required: 1 << 20}}
	}
	v1, v2 := made(p.Create(t.Context(), spec("v1"))), made(p.Create(t.Context(), spec("v2")))
	give := func(node string, attached []backend.ID, inUse ...backend.ID) ceph.Key {
		t.Helper()
		sealed := check.Got(p.NodeUser(t.Context(), node, own.Public(), attached, inUse))(t)
		if sealed == "" {
			return ""
		}
		return nodeOf(t, c, own, node, sealed)
	}
	reaches := func(node string, key ceph.Key, v *backend.Volume, expected bool) {
		t.Helper()
		if err := writeAs(t, p, node, key, v); (err == nil) != expected {
			t.Errorf("node %s writes files of %s: %v", node, v.ID, err)
		}
		if _, err := objectsAs(t, p, node, key, "fsvolumens_"+string(v.ID)); (err == nil) != expected {
			t.Errorf("node %s lists objects of %s: %v", node, v.ID, err)
		}
	}
	if key := give("a", nil); key != "" {
		t.Error("without a volume a node has a user")
	}
	a, b := give("a", []backend.ID{"v1", "missing"}), give("b", []backend.ID{"v2"})
	reaches("a", a, v1, true)
	reaches("a", a, v2, false)
	reaches("b", b, v2, true)
	reaches("b", b, v1, false)
	for _, namespace := range []string{"", rados.AllNamespaces} {
		if _, err := objectsAs(t, p, "a", a, namespace); err == nil {
			t.Errorf("a node lists the objects of namespace %q", namespace)
		}
	}
	if again := give("a", []backend.ID{"v1", "v2"}); again != a {
		t.Error("for another volume it got another key, with which what is mounted does not go on")
	}
	reaches("a", a, v2, true)
	if again := give("a", []backend.ID{"v2"}, "v1"); again != a {
		t.Error("another key")
	}
	reaches("a", a, v1, true) // it is in use
	if again := give("a", []backend.ID{"v2"}); again != a {
		t.Error("another key")
	}
	reaches("a", a, v1, false)
	reaches("a", a, v2, true)
	if again := give("a", []backend.ID{"v2"}, "v1"); again != a {
		t.Error("another key")
	}
	reaches("a", a, v1, false) // what a node says is in use is given to no node

	copied := made(p.Clone(t.Context(), "v1", spec("copied")))
	b = give("b", []backend.ID{"copied"})
	if err := writeAs(t, p, "b", b, copied); err != nil {
		t.Errorf("a copy: %v", err)
	}
	_, err = asNode(t, p, "b", b, func(cluster *ceph.Cluster) (any, error) {
		return mounted(t.Context(), p, cluster, copied.Access.CephFS.Path, func(m *cephfs.MountInfo) (any, error) { return nil, read(m, "file of a") })
	})
	if err != nil {
		t.Errorf("what was copied: %v", err)
	}

	for range 2 {
		check.OK(t, p.RemoveNodeUser(t.Context(), "a"))
	}
	if err := writeAs(t, p, "a", a, v2); err == nil {
		t.Error("once it is removed, its key connects")
	}
	after := give("a", []backend.ID{"v1", "v2"})
	if after == a {
		t.Error("made again it has the key from before")
	}
	reaches("a", after, v1, true)
	reaches("a", after, v2, true)
	for _, id := range []backend.ID{"v1", "v2"} {
		check.OK(t, p.Delete(t.Context(), id))
	}
	if key := give("a", nil); key != "" {
		t.Error("without a volume a node has a user")
	}
	if text, err := small.Ceph(t.Context(), "auth", "get", "client."+c.Ceph.NodeUser+"a"); err == nil {
		t.Errorf("the user is left: %s", text)
	}
}

func TestNodeUser_GetsTheCapsThatThePoolNeedsByNow(t *testing.T) {
	c := withNodeUsers(t, RBD)
	own := check.Got(nodeops.LoadNodeKey(filepath.Join(t.TempDir(), "key")))(t)
	p := open(t, c)
	p.look(t.Context())
	before := check.Got(p.NodeUser(t.Context(), "a", own.Public(), nil, nil))(t)
	c.Ceph.DataPool = newPool(t)
	limitTo(t, &c, "", "")
	p = open(t, c)
	p.look(t.Context())
	after := check.Got(p.NodeUser(t.Context(), "a", own.Public(), nil, nil))(t)
	key := nodeOf(t, c, own, "a", after)
	if key != nodeOf(t, c, own, "a", before) {
		t.Error("for other caps it got another key, with which what is mounted does not go on")
	}
	check.Report(t, p.checkNodeUser(t.Context(), p.ofNode("a"), key))
}

// The key of a pool gives no more of the Ceph cluster than the pool.
func TestNodeUser_MakerOfThemMakesNoOthers(t *testing.T) {
	for _, engine := range []string{RBD, CephFS} {
		c := withNodeUsers(t, engine)
		p := open(t, c)
		p.look(t.Context())
		s := p.serving()
		if s == nil {
			t.Fatal(p.Ready(t.Context()))
		}
		try := func(what, name string, change map[string]string) {
			t.Helper()
			as := p.ofNode("a")
			if as.caps == nil { // the manager makes it; the monitors let its maker make none
				as.caps = p.mounter().caps
			}
			if name != "" {
				as.user = name
			}
			for of, cap := range change {
				as.caps[of] = cap
			}
			for _, verb := range []string{"get-or-create", "caps"} {
				_, err := p.auth(t.Context(), s.cluster, verb, as, as.caps)
				if _, refused := errors.AsType[refusal](err); !refused {
					t.Errorf("%s: auth %s of %s: %v", engine, verb, what, err)
				}
			}
		}
		for of, cap := range map[string]string{"mon": "allow *", "mgr": "allow *", "mds": "allow *", "osd": "allow *"} {
			try("a user that may all of "+of, "", map[string]string{of: cap})
		}
		try("another user", "other."+c.Pool, nil)
		try("that of another pool", strings.TrimSuffix(c.Ceph.NodeUser, ".")+"x.a", nil)
		for _, name := range []string{"admin", c.Ceph.User} {
			err := p.removeUser(t.Context(), s.cluster, account{user: name})
			if _, refused := errors.AsType[refusal](err); !refused {
				t.Errorf("%s: auth rm of client.%s: %v", engine, name, err)
			}
		}
	}
}

// Monitors refuse a user whose caps for them have a length that is a multiple of 256.
func TestNodeUser_CapsOfItsMakerHaveALengthThatMonitorsTake(t *testing.T) {
	c := configOf(t, RBD)
	c.NodeKeyFile, c.Ceph.NodeUser = "", c.Ceph.NodeUser+"."+c.Pool+"."
	const byteOfLength, gap = 256, ",  "
	for !strings.Contains((&pool{Config: c}).maker().caps["mon"], gap) {
		c.Ceph.NodeUser = "x" + c.Ceph.NodeUser
	}
	caps := (&pool{Config: c}).maker().caps
	if plain := strings.Replace(caps["mon"], gap, ", ", 1); len(plain)%byteOfLength != 0 {
		t.Fatalf("a cap of the length %d is changed", len(plain))
	} else {
		setCaps(t, account{user: c.Ceph.User, caps: caps}, "mon", plain)
		if err := preflight(t, c); err == nil || !strings.Contains(err.Error(), "refuses client."+c.Ceph.User) {
			t.Errorf("monitors take caps of the length %d by now, and nothing has to be changed for them: %v", len(plain), err)
		}
	}
	limitTo(t, &c, "", "")
	check.Report(t, preflight(t, c))
}

func TestNodeUser_MakerWithoutTheCapsIsNamed(t *testing.T) {
	for _, engine := range []string{RBD, CephFS} {
		c := withNodeUsers(t, engine)
		plain := c
		plain.Ceph.NodeUser = ""
		setCaps(t, account{user: c.Ceph.User, caps: (&pool{Config: plain}).maker().caps}, "", "")
		p := open(t, c)
		p.look(t.Context())
		if err := p.Ready(t.Context()); err != nil {
			t.Errorf("the pool cannot be used: %v", err)
		}
		err := p.NodeWarning()
		verb := map[string]string{RBD: "get-or-create", CephFS: "get"}[engine]
		if err == nil || !strings.Contains(err.Error(), "may not make and remove the users of nodes: ceph auth "+verb+" client."+c.Ceph.NodeUser+noNode) ||
			!strings.Contains(err.Error(), "`ceph auth caps client."+c.Ceph.User) {
			t.Errorf("%s: it says %v", engine, err)
		}
		limitTo(t, &c, "", "")
		p.look(t.Context())
		if err := p.NodeWarning(); err != nil {
			t.Errorf("%s: with the caps: %v", engine, err)
		}
		text, err := small.Ceph(t.Context(), "auth", "ls", "--format=json")
		check.OK(t, err)
		var listed struct {
			Dump []struct{ Entity string } `json:"auth_dump"`
		}
		if err := json.Unmarshal([]byte(text), &listed); err != nil || len(listed.Dump) == 0 {
			t.Fatalf("%v: %.200s", err, text)
		}
		for _, u := range listed.Dump {
			if strings.HasPrefix(u.Entity, "client."+c.Ceph.NodeUser) {
				t.Errorf("%s: %s is left", engine, u.Entity)
			}
		}
	}
}
