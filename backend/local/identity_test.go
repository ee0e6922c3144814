package local

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

const patch = "kubectl patch it"

func expecting(id string, generation int64) backend.PoolExpectation {
	return backend.PoolExpectation{PoolIdentity: backend.PoolIdentity{ID: id, Generation: generation}, Remedy: patch}
}

// begun creates a pool with one volume, opens it a number of times, and returns its identity.
func begun(t *testing.T, c PoolConfig, times int) backend.PoolIdentity {
	t.Helper()
	for i := range times {
		b := open(t, c)
		if i == 0 {
			made(t, b, block("a"))
		}
		check.OK(t, b.Close(t.Context()))
	}
	return headOf(t, c.Path).identity()
}

func headOf(t *testing.T, path string) (head poolHead) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path, poolFile))
	if err == nil {
		err = json.Unmarshal(data, &head)
	}
	check.OK(t, err)
	return head
}

// isPool fails unless the pool at a path is that one, and was opened so often.
func isPool(t *testing.T, path string, want backend.PoolIdentity) {
	t.Helper()
	if is := headOf(t, path).identity(); is != want {
		t.Errorf("it is %+v, want %+v", is, want)
	}
}

// refuses expects that a pool is out of reach for a reason, and its directory unchanged.
func refuses(t *testing.T, c PoolConfig, reason backend.PoolReason, words ...string) {
	t.Helper()
	before := tree(t, c.Path)
	b := reachable(t, Site{c, nil})
	_, err := b.Capacity(t.Context(), c.Name)
	if err == nil || backend.PoolReasonOf(err) != reason || backend.CodeOf(err) != backend.CodeUnavailable {
		t.Fatalf("got %v for %q, want %q", err, backend.PoolReasonOf(err), reason)
	}
	says(t, err, backend.ErrUnavailable, append(words, c.Name, c.Path)...)
	fails(b.Create(t.Context(), block("new")))(t, backend.ErrUnavailable, words...)
	says(t, b.Delete(t.Context(), "a"), backend.ErrUnavailable, words...)
	says(t, b.DeleteSnapshot(t.Context(), "s"), backend.ErrUnavailable, words...)
	says(t, b.DeleteGroup(t.Context(), "g"), backend.ErrUnavailable, words...)
	if after := tree(t, c.Path); after != before {
		t.Errorf("the directory held\n%s\nand holds\n%s", before, after)
	}
}

// tree lists the content of a directory, with the content of small files.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		all.WriteString(path + "\n")
		if filepath.Ext(path) != ".json" {
			return nil
		}
		data, err := os.ReadFile(path)
		all.Write(data)
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return all.String()
}

func TestKnownPool_EmptyDirectoryIsNotMountedAndLeftAsItIs(t *testing.T) {
	knownAsEmpty := expecting("p1", 7)
	knownAsEmpty.Empty = true
	for what, test := range map[string]struct {
		spoil  func(dir string) error
		expect backend.PoolExpectation
		words  []string
	}{
		"empty":              {nil, expecting("p1", 1), []string{"the directory is empty", "pool p1", "mount its disk", patch}},
		"known as empty":     {nil, knownAsEmpty, []string{"p1"}},
		"not there":          {os.Remove, expecting("p1", 1), []string{"no such directory", "pool p1", patch}},
		"with other things":  {func(dir string) error { return os.Mkdir(filepath.Join(dir, "photos"), 0o700) }, expecting("p1", 1), []string{"photos", "pool p1"}},
		"known by volumes":   {nil, backend.PoolExpectation{Existed: true, Remedy: patch}, []string{"ID is not known", patch}},
		"begun and then cut": {func(dir string) error { return os.WriteFile(filepath.Join(dir, poolFile+".new"), nil, 0o600) }, expecting("p1", 1), []string{"empty"}},
	} {
		t.Run(what, func(t *testing.T) {
			c := emptyPool(t)
			c.Expect = test.expect
			if test.spoil != nil {
				check.OK(t, test.spoil(c.Path))
			}
			refuses(t, c, backend.NotMounted, test.words...)
		})
	}
}

func TestKnownPool_AnotherPoolInItsPlaceIsWrongAndLeftAsItIs(t *testing.T) {
	c := emptyPool(t)
	is := begun(t, c, 3)
	if is.ID == "" || is.Generation != 3 {
		t.Fatalf("opened three times it is %+v", is)
	}
	c.Expect = expecting("p1", 1)
	refuses(t, c, backend.WrongPool, is.ID, "p1", patch)
	c.Engine, c.Expect = "directory", expecting("p1", 1)
	refuses(t, c, backend.WrongPool, is.ID, "p1")
	c.Engine, c.Expect = "image", expecting(is.ID, 4)
	refuses(t, c, backend.WrongPool, "older copy", "3 times", "4 times", patch)
	for _, known := range []int64{0, 2, 3} {
		c.Expect = expecting(is.ID, known)
		b := reachable(t, Site{c, nil})
		if room, err := b.Capacity(t.Context(), ""); err != nil || room.Identity.ID != is.ID || room.Identity.Generation <= is.Generation {
			t.Errorf("known with generation %d: %+v, %v", known, room.Identity, err)
		}
		if v, err := b.Get(t.Context(), "a"); err != nil || v.PoolID != is.ID {
			t.Errorf("known with generation %d: %+v, %v", known, v, err)
		}
		check.OK(t, b.Close(t.Context()))
	}
}

func TestPool_OfAnOlderReleaseHasGenerationZeroOrGetsAnID(t *testing.T) {
	c := emptyPool(t)
	is := begun(t, c, 1)
	file := filepath.Join(c.Path, poolFile)
	check.OK(t, os.WriteFile(file, []byte(`{"version": 1, "uuid": "`+is.ID+`", "engine": "image"}`), 0o600))
	c.Expect = expecting(is.ID, 0)
	b := open(t, c)
	if identity := capacityOf(t, b).Identity; identity != (backend.PoolIdentity{ID: is.ID, Generation: 1}) {
		t.Errorf("it is %+v", identity)
	}
	check.OK(t, b.Close(t.Context()))
	check.OK(t, os.WriteFile(file, []byte(`{"version": 1, "engine": "image"}`), 0o600))
	c.Expect = backend.PoolExpectation{}
	if id := capacityOf(t, served(t, c)).Identity.ID; id == "" || headOf(t, c.Path).UUID != id {
		t.Errorf("without an ID it gets %q", id)
	}
}

func TestPoolFile_DamagedIsRewrittenWithTheKnownID(t *testing.T) {
	c := emptyPool(t)
	is := begun(t, c, 2)
	check.OK(t, os.Truncate(filepath.Join(c.Path, poolFile), 5))
	c.Expect = expecting(is.ID, is.Generation)
	refuses(t, c, "", "damaged", `{"version":1,"uuid":"`+is.ID+`","engine":"image","generation":2}`)
}

func TestPeek_BeginsNoPoolAndCountsNone(t *testing.T) {
	c := emptyPool(t)
	fails(Peek(t.Context(), []PoolConfig{c}, silent))(t, backend.ErrUnavailable, "empty", "no pool", c.Path)
	if left := tree(t, c.Path); left != c.Path+"\n" {
		t.Errorf("it made %s", left)
	}
	is := begun(t, c, 1)
	b, err := Peek(t.Context(), []PoolConfig{c}, silent)
	check.OK(t, err)
	check.OK(t, b.Close(context.Background()))
	isPool(t, c.Path, is)
}

func TestNewPool_ThatRequiresAMountIsNotBegunOnTheRootFileSystem(t *testing.T) {
	c := emptyPool(t)
	c.RequireMount = true
	c.HostProc = fakeHost(t, c.Path, "")
	refuses(t, c, backend.NotMounted, "requireMount", "root file system")
	c.HostProc = fakeHost(t, c.Path, "UUID=1 "+filepath.Dir(c.Path)+" xfs defaults 0 0\n")
	c.RequireMount = false
	refuses(t, c, backend.NotMounted, "/etc/fstab", filepath.Dir(c.Path))
	c.HostProc = ""
	begun(t, c, 1)
	c.HostProc = fakeHost(t, c.Path, "UUID=1 "+filepath.Dir(c.Path)+" xfs defaults 0 0\n")
	served(t, c) // an existing pool is opened, regardless of the host's mounts
}

// fakeHost is the /proc of a host that has only its root mounted, which contains dir, and this fstab.
func fakeHost(t *testing.T, dir, fstab string) (proc string) {
	t.Helper()
	proc = t.TempDir()
	etc := filepath.Join(proc, "root", "etc")
	check.OK(t, os.MkdirAll(etc, 0o755))
	mounts := check.Got(nodeops.Mounts())(t)
	root, longest := nodeops.Mount{}, 0
	for _, m := range mounts {
		if strings.HasPrefix(dir+"/", strings.TrimSuffix(m.Target, "/")+"/") && len(m.Target) >= longest {
			root, longest = m, len(m.Target)
		}
	}
	table := "1 0 " + root.Device + " / / rw - ext4 /dev/root rw\n"
	check.OK(t, errors.Join(os.WriteFile(filepath.Join(proc, "mountinfo"), []byte(table), 0o600), os.WriteFile(filepath.Join(etc, "fstab"), []byte(fstab), 0o600)))
	return proc
}
