package ganesha

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestClients_AreRenderedAsGaneshaReadsThem(t *testing.T) {
	for client, want := range map[string]string{
		"10.1.2.3":    "10.1.2.3/32",
		"10.1.2.3/8":  "10.0.0.0/8",
		"0.0.0.0":     "0.0.0.0/32",
		"0.0.0.0/0":   "0.0.0.0/1 128.0.0.0/1",
		"::/0":        "::/1 8000::/1",
		"fd00::1":     "fd00::1",
		"fd00::1/128": "fd00::1",
		"fd00::1/64":  "fd00::/64",
	} {
		if got := networks([]string{client}); !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: %v, want %s", client, got, want)
		}
	}
}

func TestRender_ClientThatIsNotNamedHasNoAccess(t *testing.T) {
	e := good(func(e *Export) { e.Clients, e.ReadOnly, e.Squash = []string{"10.0.0.0/8"}, true, AllSquash })
	all, named, found := strings.Cut(exportBlock(e), "CLIENT {")
	if !found || !strings.Contains(all, "Access_Type = None;") || !strings.Contains(named, "Access_Type = RO;") {
		t.Errorf("access of all and of the named:\n%s\n%s", all, named)
	}
	for _, part := range []string{all, named} {
		if !strings.Contains(part, "Squash = all_squash;") {
			t.Errorf("not squashed:\n%s", part)
		}
	}
}

func TestRender_ConfigurationFollowsTheRequest(t *testing.T) {
	uid, gid := uint32(0), uint32(4294967295)
	c := Config{RunDir: "/run/x", RecoveryDir: "/data/recovery", Name: "nfs.one", Port: 2050, Grace: 30 * time.Second, Lease: 20 * time.Second}
	exports := map[uint16]Export{
		9:   good(func(e *Export) { e.ID, e.AnonUID, e.AnonGID = 9, &uid, &gid }),
		152: good(func(e *Export) { e.ID = 152 }),
	}
	text := configuration(&c, exports)
	for _, want := range []string{
		"NFS_Port = 2050;", `RecoveryRoot = "/data/recovery";`, `Server_Owner = "nfs.one";`, `Server_Scope = "nfs.one";`,
		"Grace_Period = 30;", "Lease_Lifetime = 20;", "Minor_Versions = 1, 2;", "Enable_UDP = false;", "fsid_device = false;",
		"Anonymous_uid = 0;", "Anonymous_gid = 4294967295;", "Anonymous_uid = 65534;", "Anonymous_gid = 65534;",
		"Export_Id = 9;", "Export_Id = 152;", "Filesystem_Id = 0.1;",
	} {
		if strings.Count(text, want) != 1 {
			t.Errorf("it says %s %d times, want once:\n%s", want, strings.Count(text, want), text)
		}
	}
}
