package nodeops

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

const someKey = "AQBbKwdrAAAAABAAxAbn+3mAp8tSc9MHYrGWdQ=="

func TestCephKey_IsReadAsCephPrintsIt(t *testing.T) {
	for name, text := range map[string]string{
		"alone":        someKey,
		"as a line":    someKey + "\n",
		"as a keyring": "[client.node]\n\tkey = " + someKey + "\n\tcaps mon = \"profile rbd\"\n",
	} {
		if key, err := ParseCephKey(text); err != nil || len(key.secret) != 28 {
			t.Errorf("%s: %d bytes, %v", name, len(key.secret), err)
		}
	}
	for name, text := range map[string]string{
		"empty": "", "too short": "AQBb", "no base64": "secret password!", "of two users": "[client.a]\nkey = " + someKey + "\n[client.b]\nkey = " + someKey,
		"too long": strings.Repeat("AAAA", 1000),
	} {
		if _, err := ParseCephKey(text); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCephKey_IsNeverPrinted(t *testing.T) {
	key := check.Got(ParseCephKey(someKey))(t)
	c := Ceph{User: "node", Key: key}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "key", key, "cluster", c)
	encoded := check.Got(json.Marshal(c))(t)
	for _, said := range []string{fmt.Sprint(key), fmt.Sprintf("%v %+v %#v %s %q", c, c, c, key, key), log.String(), string(encoded)} {
		for _, secret := range []string{someKey, fmt.Sprintf("%x", key.secret), fmt.Sprintf("%d", key.secret), string(key.secret), fmt.Sprintf("%#v", key.secret)} {
			if strings.Contains(said, secret) {
				t.Errorf("it is in %q", said)
			}
		}
	}
}

func TestCephKey_FileIsItsOwnersAlone(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "key"), someKey)
	for mode, good := range map[os.FileMode]bool{0o400: true, 0o600: false, 0o440: false, 0o404: false} {
		check.OK(t, os.Chmod(file, mode))
		if _, err := ReadCephKey(file); (err == nil) != good || err != nil && !strings.Contains(err.Error(), "chmod 0400") {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
}

func TestCephKey_IsReadFromAMountedSecret(t *testing.T) {
	mount := t.TempDir()
	link := func(to, from string) {
		t.Helper()
		name := filepath.Join(mount, from)
		check.OK(t, errors.Join(os.RemoveAll(name), os.Symlink(to, name)))
	}
	secret := func(version, key string) {
		t.Helper()
		check.OK(t, os.MkdirAll(filepath.Join(mount, version), 0o755))
		check.OK(t, os.Chmod(write(t, filepath.Join(mount, version, "key"), key), 0o400))
		link(version, "..data")
	}
	// As the kubelet does: a directory for each version, which a link names, and a link through that one for each key.
	secret("..2026_01_01", someKey)
	link("..data/key", "fsid.node")
	check.Same(t, len(check.Got(ReadCephKey(filepath.Join(mount, "fsid.node")))(t).secret), 28)
	other := "AQC" + someKey[3:]
	secret("..2026_01_02", other)
	rotated := check.Got(ReadCephKey(filepath.Join(mount, "fsid.node")))(t)
	if !slices.Equal(rotated.secret, check.Got(ParseCephKey(other))(t).secret) {
		t.Error("after a rotation the key is the same")
	}
	outside := write(t, filepath.Join(t.TempDir(), "key"), someKey)
	check.OK(t, os.Chmod(outside, 0o400))
	beside := check.Got(filepath.Rel(mount, outside))(t)
	for _, to := range []string{outside, beside, "..data/../../" + filepath.Base(mount) + "/..data/key", "..data", "fsid.node2"} {
		link(to, "fsid.node2")
		if _, err := ReadCephKey(filepath.Join(mount, "fsid.node2")); err == nil || strings.Contains(err.Error(), someKey) {
			t.Errorf("a link to %s: %v", to, err)
		}
	}
}

func TestCephMonitors_AreOfOneMessenger(t *testing.T) {
	for name, test := range map[string]struct {
		monitors  []string
		secure    bool
		addresses []string
		mode      string
	}{
		"new before old": {[]string{"v1:10.0.0.1:6789", "v2:10.0.0.1:3300", "v2:[fd00::1]:3300"}, false, []string{"10.0.0.1:3300", "[fd00::1]:3300"}, "prefer-crc"},
		"old alone":      {[]string{"v1:10.0.0.1:6789"}, false, []string{"10.0.0.1:6789"}, "legacy"},
		"secure":         {[]string{"v2:10.0.0.1:3300"}, true, []string{"10.0.0.1:3300"}, "secure"},
		"secure and old": {[]string{"v1:10.0.0.1:6789"}, true, nil, ""},
		"none":           {nil, false, nil, ""},
		"no version":     {[]string{"10.0.0.1:3300"}, false, nil, ""},
		"a name":         {[]string{"v2:mon.example:3300"}, false, nil, ""},
		"two in one":     {[]string{"v2:10.0.0.1:3300,v2:10.0.0.2:3300"}, false, nil, ""},
	} {
		c := Ceph{Monitors: test.monitors, Secure: test.secure}
		addresses, mode, err := c.messengers()
		if !slices.Equal(addresses, test.addresses) || mode != test.mode || (err == nil) != (test.mode != "") {
			t.Errorf("%s: %q, %q, %v", name, addresses, mode, err)
		}
	}
}

func TestCephFS_OptionsOfAMountCannotUndoAFence(t *testing.T) {
	for option, good := range map[string]bool{"rasize=4096": true, "noatime": true, "recover_session=clean": false, "recover_session=no": false, "name=admin": false} {
		if err := CheckCephFSOptions([]string{option}); (err == nil) != good {
			t.Errorf("%s: %v", option, err)
		}
	}
}

func TestRBD_NamesThatWouldBeMoreAreRefused(t *testing.T) {
	key := check.Got(ParseCephKey(someKey))(t)
	good := RBD{Cluster: Ceph{FSID: "01234567-89ab-cdef-0123-456789abcdef", Monitors: []string{"v2:10.0.0.1:3300"}, User: "node", Key: key}, Pool: "p.1", Image: "pvc-1"}
	check.OK(t, good.check())
	for _, odd := range []string{"", "a b", "a,secret=x", "a/b", "a@b", "a\nb", "a=b", "-", `a\b`, strings.Repeat("a", 300), "a\x00"} {
		for name, change := range map[string]func(*RBD){
			"pool": func(r *RBD) { r.Pool = odd }, "image": func(r *RBD) { r.Image = odd }, "user": func(r *RBD) { r.Cluster.User = odd },
			"namespace": func(r *RBD) { r.Namespace = odd + " " }, "snapshot": func(r *RBD) { r.Snapshot = odd + " " }, "fsid": func(r *RBD) { r.Cluster.FSID = odd },
		} {
			r := good
			if change(&r); r.check() == nil {
				t.Errorf("%s %q was accepted", name, odd)
			}
		}
	}
}

func TestCephClient_AddressIsReadFromWhatTheKernelShows(t *testing.T) {
	c := CephClient{ID: "client.4305"}
	for text, want := range map[string]string{
		"instance: client.4305 (1)10.0.0.5:0/1148\nblocklisted: false\n":        "10.0.0.5:0/1148",
		"instance: client.4305 (3)[fd00::5]:0/4294967295\nblocklisted: false\n": "[fd00::5]:0/4294967295",
	} {
		if got := addressInStatus([]byte(text), c); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{"", "instance: client.4306 (1)10.0.0.5:0/1148\n", "instance: client.4305\n", "instance: client.4305 10.0.0.5:0/1148\n"} {
		if got := addressInStatus([]byte(text), c); got != "" {
			t.Errorf("%q: %q is taken for an address", text, got)
		}
	}
}

func TestCephClient_ThatNeverWasIsGone(t *testing.T) {
	requireRoot(t)
	check.Same(t, check.Got(IsCephClientGone(CephClient{FSID: "11111111-2222-3333-4444-555555555555", ID: "client.1"}))(t), true)
	if _, err := openDebugFS("no-such-thing"); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
		t.Errorf("the reason is %v", err)
	}
}
