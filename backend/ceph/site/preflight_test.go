//go:build ceph

package site

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	rig "github.com/holdfast-storage/holdfast/test/rig/ceph"
)

// preflight returns what is said of a pool after the first look at it.
func preflight(t *testing.T, c Config) error {
	t.Helper()
	opened, err := Open(c, silent)
	if err != nil {
		t.Fatal(err)
	}
	p, is := opened.(*pool)
	if !is {
		p = opened.(*groupedPool).pool
	}
	p.look(t.Context())
	err = p.Ready(t.Context())
	if err := p.Close(context.Background()); err != nil {
		t.Error(err)
	}
	return err
}

// limitTo gives the user of a pool other caps for a part of Ceph; "" are none.
func limitTo(t *testing.T, c *Config, of, what string) {
	t.Helper()
	caps := maps.Clone((&pool{Config: *c}).caps())
	caps[of] = what
	args := []string{"auth", "caps", "client." + c.Ceph.User}
	for of, what := range caps {
		if what != "" {
			args = append(args, of, what)
		}
	}
	if _, err := small.Ceph(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
}

const (
	// nobodysKey has the form of a key.
	nobodysKey = "AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA=="
	otherFSID  = "00000000-0000-0000-0000-000000000000"
	deadA      = "v2:127.0.0.1:1"
	deadB      = "v1:127.0.0.1:2"
)

// mishaps are what can be wrong, and what is said of it; nothing is, where the pool can be used nevertheless.
var mishaps = map[string]struct {
	engine string
	change func(*testing.T, *Config)
	says   []string
}{
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
		RBD, func(t *testing.T, c *Config) { writeKey(t, *c, nobodysKey) },
		[]string{"refuses client.", "it has another key", "`ceph auth get client."},
	},
	"what the file of the key holds": {RBD, func(t *testing.T, c *Config) { writeKey(t, *c, nobodysKey[:30]) }, []string{"does not hold a key", "`ceph auth get-key client."}},
	"an empty file of the key":       {RBD, func(t *testing.T, c *Config) { writeKey(t, *c, "") }, []string{"it is empty"}},
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
		if _, err := small.Command(t.Context(), "rbd", "namespace", "create", c.Ceph.Pool+"/team"); err != nil {
			t.Fatal(err)
		}
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
	"a cap that leaves out limits":   {CephFS, func(t *testing.T, c *Config) { limitTo(t, c, "mds", "allow rw fsname="+rig.FileSystem) }, []string{"limit the files of /volumes/", "mds 'allow rwp fsname="}},
}

func TestPreflight_SaysWhatIsWrongAndWhatToDo(t *testing.T) {
	rig.Require(t)
	for name, test := range mishaps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := configOf(t, test.engine)
			test.change(t, &c)
			err := preflight(t, c)
			if len(test.says) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, backend.ErrUnavailable) {
				t.Errorf("got %v", err)
				return
			}
			for _, part := range append(test.says, c.Pool) {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in %v", part, err)
				}
			}
			if strings.Contains(err.Error(), nobodysKey[:20]) {
				t.Errorf("the key is in %v", err)
			}
		})
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
	if err := small.Pause(rig.Monitor); err != nil {
		t.Fatal(err)
	}
	err := preflight(t, c)
	if resumed := errors.Join(small.Resume(rig.Monitor), small.AwaitHealthy(t.Context())); resumed != nil {
		t.Fatal(resumed)
	}
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
		if _, err := small.Ceph(t.Context(), "config", "set", "global", "ms_mon_service_mode", mode); err != nil {
			t.Fatal(err)
		}
		small.Kill(rig.Monitor)
		if err := errors.Join(small.Start(rig.Monitor), small.AwaitHealthy(t.Context())); err != nil {
			t.Fatal(err)
		}
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
