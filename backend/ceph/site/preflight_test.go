//go:build ceph

package site

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/backend"
	rig "github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// preflight returns what is said of a pool after the first look at it.
func preflight(t *testing.T, c Config) error {
	t.Helper()
	p := open(t, c)
	p.look(t.Context())
	return p.Ready(t.Context())
}

// open returns a pool that the test looks at.
func open(t *testing.T, c Config) *pool {
	t.Helper()
	opened := check.Got(Open(c, silent))(t)
	p := opened.(*pool)
	t.Cleanup(func() {
		check.Report(t, p.Close(context.Background()))
	})
	return p
}

// limitTo gives the user of a pool other caps for a part of Ceph; "" are none.
func limitTo(t *testing.T, c *Config, of, what string) {
	t.Helper()
	setCaps(t, (&pool{Config: *c}).maker(), of, what)
}

func setCaps(t *testing.T, a account, of, what string) {
	t.Helper()
	caps := maps.Clone(a.caps)
	caps[of] = what
	args := []string{"auth", "caps", "client." + a.user}
	for of, what := range caps {
		if what != "" {
			args = append(args, of, what)
		}
	}
	check.Got(small.Ceph(t.Context(), args...))(t)
}

const (
	// nobodysKey has the form of a key.
	nobodysKey = "AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA=="
	otherFSID  = "00000000-0000-0000-0000-000000000000"
	deadA      = "v2:127.0.0.1:1"
	deadB      = "v1:127.0.0.1:2"
)

// mishap is what can be wrong, and what is said of it; nothing is, where all can be used nevertheless.
type mishap struct {
	engine string
	change func(*testing.T, *Config)
	says   []string
}

// judge compares what is said. Each error names the pool, and more where all do.
func (m mishap) judge(t *testing.T, does string, err error, all ...string) {
	t.Helper()
	if len(m.says) == 0 {
		if err != nil {
			t.Errorf("%s: %v", does, err)
		}
		return
	}
	if !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("%s: got %v", does, err)
		return
	}
	for _, part := range slices.Concat(m.says, all) {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %q is not in %v", does, part, err)
		}
	}
	if strings.Contains(err.Error(), nobodysKey[:20]) {
		t.Errorf("%s: the key is in %v", does, err)
	}
}

var mishaps = map[string]mishap{
	"nothing, of images":        {RBD, func(*testing.T, *Config) {}, nil},
	"nothing, of a file system": {CephFS, func(*testing.T, *Config) {}, nil},
	"one monitor of two":        {RBD, func(_ *testing.T, c *Config) { c.Ceph.Monitors = append([]string{deadA}, c.Ceph.Monitors...) }, nil},
	"only the messenger v1":     {RBD, func(_ *testing.T, c *Config) { c.Ceph.Monitors = []string{"v1:" + small.MonitorV1} }, nil},
	"encryption":                {CephFS, func(_ *testing.T, c *Config) { c.Ceph.Secure = true }, nil},
	"all monitors": {
		RBD, func(_ *testing.T, c *Config) { c.Ceph.Monitors = []string{deadA, deadB} },
		[]string{deadA + " (connect: connection refused)", deadB, "`ceph mon dump`"},
	},
	"encryption with the messenger v1": {
		RBD, func(_ *testing.T, c *Config) {
			c.Ceph.Secure, c.Ceph.Monitors = true, []string{"v2:" + small.MonitorV1}
		},
		[]string{"the messenger there is v1 and not v2", "which only the messenger v2 has"},
	},
	"an address of the messenger v2 as one of v1": {
		RBD, func(_ *testing.T, c *Config) { c.Ceph.Monitors = []string{"v1:" + small.Monitor} },
		[]string{"the messenger there is v2 and not v1"},
	},
	"the key": {
		RBD, func(t *testing.T, c *Config) { writeKey(t, c.KeyFile, nobodysKey) },
		[]string{"refuses client.", "it has another key", "`ceph auth get client."},
	},
	"what the file of the key holds": {RBD, func(t *testing.T, c *Config) { writeKey(t, c.KeyFile, nobodysKey[:30]) }, []string{"does not hold a key", "`ceph auth get-key client."}},
	"an empty file of the key":       {RBD, func(t *testing.T, c *Config) { writeKey(t, c.KeyFile, "") }, []string{"it is empty"}},
	"a missing file of the key":      {RBD, func(_ *testing.T, c *Config) { c.KeyFile += ".none" }, []string{"no such file"}},
	"the user": {
		CephFS, func(_ *testing.T, c *Config) { c.Ceph.User = "nosuchuser" },
		[]string{"refuses client.nosuchuser", "does not exist", "`ceph auth get-or-create client.nosuchuser mon 'allow r, allow command \"osd blocklist\"' mgr 'allow rw' mds 'allow rwp fsname=" + rig.FileSystem + "' osd 'allow r tag cephfs data=" + rig.FileSystem + "'`"},
	},
	"the fsid":        {RBD, func(_ *testing.T, c *Config) { c.Ceph.FSID = otherFSID }, []string{otherFSID, "correct the monitors or the fsid"}},
	"the pool":        {RBD, func(_ *testing.T, c *Config) { c.Ceph.Pool = "absent" }, []string{`no pool "absent"`, "`ceph osd pool create absent && rbd pool init absent`"}},
	"the data pool":   {RBD, func(_ *testing.T, c *Config) { c.Ceph.DataPool = "absent" }, []string{`no pool "absent"`}},
	"the file system": {CephFS, func(_ *testing.T, c *Config) { c.Ceph.FileSystem = "absent" }, []string{`no file system "absent"`, "it sees: " + rig.FileSystem}},
	"the data pool of a file system": {
		CephFS, func(_ *testing.T, c *Config) { c.Ceph.DataPool = "absent" },
		[]string{`has no data pool "absent", but: `, "`ceph fs add_data_pool " + rig.FileSystem + " absent`"},
	},
	"a namespace that is made": {RBD, func(_ *testing.T, c *Config) { c.Ceph.Namespace = "team" }, nil},
	"a namespace to which the user is limited": {RBD, func(t *testing.T, c *Config) {
		c.Ceph.Namespace = "team"
		check.Got(small.Command(t.Context(), "rbd", "namespace", "create", c.Ceph.Pool+"/team"))(t)
		limitTo(t, c, "osd", "profile rbd pool="+c.Ceph.Pool+" namespace=team")
	}, nil},
	"no cap for the monitors":        {RBD, func(t *testing.T, c *Config) { limitTo(t, c, "mon", "") }, []string{"has no caps for mon"}},
	"a small cap for the monitors":   {RBD, func(t *testing.T, c *Config) { limitTo(t, c, "mon", "allow r") }, []string{"may not shut out clients", "ceph osd blocklist add", "mon 'profile rbd, allow command", "`ceph auth caps client."}},
	"no cap for images":              {RBD, func(t *testing.T, c *Config) { limitTo(t, c, "osd", "") }, []string{"may not list images in pool images", "osd 'profile rbd pool=images"}},
	"a small cap for images":         {RBD, func(t *testing.T, c *Config) { limitTo(t, c, "osd", "allow rw pool="+c.Ceph.Pool) }, []string{"in pool images", "osd 'profile rbd pool=images"}},
	"a cap that leaves out the data": {RBD, func(t *testing.T, c *Config) { c.Ceph.DataPool = newPool(t) }, []string{"osd 'profile rbd pool=images", ", profile rbd pool=images"}},
	"no cap for the manager":         {CephFS, func(t *testing.T, c *Config) { limitTo(t, c, "mgr", "") }, []string{"may not make subvolumes", "mgr 'allow rw'"}},
	"a small cap for the manager":    {CephFS, func(t *testing.T, c *Config) { limitTo(t, c, "mgr", "allow r") }, []string{"may not make subvolumes", "mgr 'allow rw'"}},
	"no cap for the file system":     {CephFS, func(t *testing.T, c *Config) { limitTo(t, c, "mds", "") }, []string{"may not mount the file system", "mds 'allow rwp fsname="}},
	"no cap for the data":            {CephFS, func(t *testing.T, c *Config) { limitTo(t, c, "osd", "") }, []string{"may not look for an object in data pool ", "osd 'allow r tag cephfs data="}},
	"a cap for other data":           {CephFS, func(t *testing.T, c *Config) { limitTo(t, c, "osd", "allow r tag cephfs data=other") }, []string{"may not look for an object in data pool ", "osd 'allow r tag cephfs data="}},
	"a cap that leaves out limits":   {CephFS, func(t *testing.T, c *Config) { limitTo(t, c, "mds", "allow rw fsname="+rig.FileSystem) }, []string{"limit the files of /volumes/", "mds 'allow rwp fsname="}},
}

func TestPreflight_SaysWhatIsWrongAndWhatToDo(t *testing.T) {
	rig.Require(t)
	for name, test := range mishaps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := configOf(t, test.engine)
			test.change(t, &c)
			// A process that waits for its turn finds the same before it begins.
			test.judge(t, "serving", preflight(t, c), c.Pool)
			test.judge(t, "trying", open(t, c).Try(t.Context()), c.Pool)
		})
	}
}

func TestTry_OfAPoolThatWasNeverServedFindsNothing(t *testing.T) {
	for _, engine := range []string{RBD, CephFS} {
		if err := open(t, configOf(t, engine)).Try(t.Context()); err != nil {
			t.Errorf("%s: %v", engine, err)
		}
	}
}

// nodeMishaps are what can be wrong with the user of nodes, and what is said of it. The pool can be used all the same.
var nodeMishaps = map[string]mishap{
	"nothing, of images":        {RBD, func(*testing.T, *Config) {}, nil},
	"nothing, of a file system": {CephFS, func(*testing.T, *Config) {}, nil},
	"no key to look at":         {RBD, func(_ *testing.T, c *Config) { c.NodeKeyFile = "" }, nil},
	"a namespace": {RBD, func(t *testing.T, c *Config) {
		c.Ceph.Namespace = "team"
		limitNodes(t, c, "", "")
	}, nil},
	"data of images": {RBD, func(t *testing.T, c *Config) {
		c.Ceph.DataPool = newPool(t)
		limitTo(t, c, "", "")
		limitNodes(t, c, "", "")
	}, nil},
	"the key":                  {RBD, func(t *testing.T, c *Config) { writeKey(t, c.NodeKeyFile, nobodysKey) }, []string{"refuses client.", "-node with the key in ", "it has another key", "the secret of nodeSecretRef"}},
	"the key of a file system": {CephFS, func(t *testing.T, c *Config) { writeKey(t, c.NodeKeyFile, nobodysKey) }, []string{"refuses client.", "-node with the key in ", "the secret of nodeSecretRef"}},
	"what is no key":           {RBD, func(t *testing.T, c *Config) { writeKey(t, c.NodeKeyFile, nobodysKey[:30]) }, []string{"does not hold a key", "`ceph auth get-key client.", "the secret of nodeSecretRef"}},
	"a missing secret":         {CephFS, func(_ *testing.T, c *Config) { c.NodeKeyFile += ".none" }, []string{"no such file", "the secret of nodeSecretRef"}},
	"the user": {
		RBD, func(_ *testing.T, c *Config) { c.Ceph.NodeUser = "nosuchnode" },
		[]string{"refuses client.nosuchnode", "does not exist", "`ceph auth get-or-create client.nosuchnode mon 'profile rbd' osd 'profile rbd pool=images"},
	},
	"no cap for the monitors":      {RBD, func(t *testing.T, c *Config) { limitNodes(t, c, "mon", "") }, []string{"refuses client.", "has no caps for mon"}},
	"a small cap for the monitors": {RBD, func(t *testing.T, c *Config) { limitNodes(t, c, "mon", "allow r") }, []string{"may not shut out clients: ceph osd blocklist add", "mon 'profile rbd'", "`ceph auth caps client."}},
	"no cap for images":            {RBD, func(t *testing.T, c *Config) { limitNodes(t, c, "osd", "") }, []string{"may not list images in pool images", "osd 'profile rbd pool=images"}},
	"a small cap for images":       {RBD, func(t *testing.T, c *Config) { limitNodes(t, c, "osd", "profile rbd-read-only pool="+c.Ceph.Pool) }, []string{"may not lock an object in pool images", "osd 'profile rbd pool=images"}},
	"a cap for another namespace": {RBD, func(t *testing.T, c *Config) {
		c.Ceph.Namespace = "team"
		limitNodes(t, c, "osd", "profile rbd pool="+c.Ceph.Pool+" namespace=other")
	}, []string{"may not list images in pool images", " namespace=team'"}},
	"a cap that leaves out the data": {RBD, func(t *testing.T, c *Config) {
		c.Ceph.DataPool = newPool(t)
		limitTo(t, c, "", "")
		limitNodes(t, c, "osd", "profile rbd pool="+c.Ceph.Pool)
	}, []string{"in data pool images", ", profile rbd pool=images"}},
	"a cap to read the data": {RBD, func(t *testing.T, c *Config) {
		c.Ceph.DataPool = newPool(t)
		limitTo(t, c, "", "")
		limitNodes(t, c, "osd", "profile rbd pool="+c.Ceph.Pool+", allow r pool="+c.Ceph.DataPool)
	}, []string{"may not write in data pool images", ", profile rbd pool=images"}},
	"no cap for the file system": {CephFS, func(t *testing.T, c *Config) { limitNodes(t, c, "mds", "") }, []string{"may not mount and change /volumes/", "mds 'allow rw fsname="}},
	"a cap for another group": {CephFS, func(t *testing.T, c *Config) {
		limitNodes(t, c, "mds", "allow rw fsname="+rig.FileSystem+" path=/volumes/other")
	}, []string{"may not mount and change /volumes/", " path=/volumes/"}},
	"a cap to read the group": {CephFS, func(t *testing.T, c *Config) {
		limitNodes(t, c, "mds", "allow r fsname="+rig.FileSystem+" path=/volumes/"+c.Ceph.Namespace)
	}, []string{"may not mount and change /volumes/", "mds 'allow rw fsname="}},
	"no cap for the data":               {CephFS, func(t *testing.T, c *Config) { limitNodes(t, c, "osd", "") }, []string{"may not look for an object in data pool ", "osd 'allow rw tag cephfs data="}},
	"a cap to read the data of a group": {CephFS, func(t *testing.T, c *Config) { limitNodes(t, c, "osd", "allow r tag cephfs data="+rig.FileSystem) }, []string{"may not write in data pool ", "osd 'allow rw tag cephfs data="}},
}

// limitNodes is limitTo for the user of nodes. An empty part gives it all that the pool needs.
func limitNodes(t *testing.T, c *Config, of, what string) {
	t.Helper()
	setCaps(t, (&pool{Config: *c}).mounter(), of, what)
}

func TestPreflight_SaysWhatNodesCannotUse(t *testing.T) {
	rig.Require(t)
	for name, test := range nodeMishaps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := configOf(t, test.engine)
			test.change(t, &c)
			p := open(t, c)
			p.look(t.Context())
			if err := p.Ready(t.Context()); err != nil {
				t.Errorf("the pool cannot be used: %v", err)
			}
			test.judge(t, "looking", p.NodeWarning(), c.Pool, "client."+c.Ceph.NodeUser)
		})
	}
}

func TestNodeUser_IsLookedAtAgainWhenItsKeyChangesOrItWasRefused(t *testing.T) {
	for _, engine := range []string{RBD, CephFS} {
		c := configOf(t, engine)
		key := check.Got(os.ReadFile(c.NodeKeyFile))(t)
		p := open(t, c)
		reports := 0
		p.NotifyPools(func() { reports++ })
		expect := func(when string, refused bool, news int) {
			t.Helper()
			p.look(t.Context())
			if warned := p.NodeWarning() != nil; warned != refused || reports != news || p.Ready(t.Context()) != nil {
				t.Errorf("%s, %s: %v; %d reports, want %d; the pool: %v", engine, when, p.NodeWarning(), reports, news, p.Ready(t.Context()))
			}
		}
		expect("at first", false, 1)
		writeKey(t, c.NodeKeyFile, nobodysKey)
		expect("with another key", true, 2)
		expect("still", true, 2)
		writeKey(t, c.NodeKeyFile, string(key))
		expect("with its key", false, 3)
		limitNodes(t, &c, "osd", "")
		p.nodesLooked.again = time.Time{}
		expect("when it is looked at again", true, 4)
		limitNodes(t, &c, "", "")
		expect("with its caps", false, 5)
	}
}

func TestPreflight_ReleaseThatIsTooOldIsNamed(t *testing.T) {
	for version, says := range map[string]string{
		"ceph version 16.2.15 (abc) pacific (stable)":  "",
		"ceph version 20.1.0 (abc) tentacle (stable)":  "",
		"ceph version Development":                     "",
		"ceph version 15.2.17 (abc) octopus (stable)":  `"ceph version 15.2.17 (abc) octopus (stable)", which is too old: release 16`,
		"ceph version 9.2.1 (abc) infernalis (stable)": "upgrade the Ceph cluster",
	} {
		err := judgeRelease(version, oldest)
		if says == "" && err != nil || says != "" && (!errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v", version, err)
		}
	}
}

func TestPreflight_MonitorThatDoesNotAnswerIsNamed(t *testing.T) {
	c := configOf(t, RBD)
	check.OK(t, small.Pause(rig.Monitor))
	err := preflight(t, c)
	check.OK(t, errors.Join(small.Resume(rig.Monitor), small.AwaitHealthy(t.Context())))
	if err == nil || !strings.Contains(err.Error(), c.Ceph.Monitors[0]+" (it accepts connections and does not answer as a monitor") {
		t.Errorf("got %v", err)
	}
	if err := preflight(t, c); err != nil {
		t.Errorf("once it answers again: %v", err)
	}
}

func TestPreflight_MonitorsThatDoNotEncryptAreNamed(t *testing.T) {
	c := configOf(t, RBD)
	set := func(mode string) {
		check.Got(small.Ceph(t.Context(), "config", "set", "global", "ms_mon_service_mode", mode))(t)
		small.Kill(rig.Monitor)
		check.OK(t, errors.Join(small.Start(rig.Monitor), small.AwaitHealthy(t.Context())))
	}
	set("crc")
	plain := preflight(t, c)
	c.Ceph.Secure = true
	err := preflight(t, c)
	set("secure crc")
	if plain != nil {
		t.Errorf("without encryption: %v", plain)
	}
	if err == nil || !strings.Contains(err.Error(), "the monitors "+c.Ceph.Monitors[0]+" do not offer it") {
		t.Errorf("got %v", err)
	}
}
