package export

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops/ganesha"
)

func TestLabels_OverrideTheDefaults(t *testing.T) {
	c := &Config{Defaults: Settings{Squash: ganesha.RootSquash, Clients: []string{"10.0.0.0/8"}, AnonUID: new(uint32(7))}}
	for name, x := range map[string]struct {
		labels map[string]string
		want   Settings
		top    top
	}{
		"none":           {nil, c.Defaults, top{}},
		"others' labels": {map[string]string{"csi.storage.k8s.io/pvc/name": "a", "squash": "odd"}, c.Defaults, top{}},
		"squash": {
			map[string]string{LabelSquash: "all_squash", LabelAnonGID: "100"},
			Settings{Squash: ganesha.AllSquash, Clients: c.Defaults.Clients, AnonUID: c.Defaults.AnonUID, AnonGID: new(uint32(100))},
			top{},
		},
		"clients": {
			map[string]string{LabelClients: "192.0.2.1, fd00::/8,"},
			Settings{Squash: ganesha.RootSquash, Clients: []string{"192.0.2.1", "fd00::/8"}, AnonUID: c.Defaults.AnonUID},
			top{},
		},
		"everybody": {map[string]string{LabelClients: ""}, Settings{Squash: ganesha.RootSquash, AnonUID: c.Defaults.AnonUID}, top{}},
		"read-only": {
			map[string]string{LabelReadOnly: "true"},
			Settings{Squash: ganesha.RootSquash, ReadOnly: true, Clients: c.Defaults.Clients, AnonUID: c.Defaults.AnonUID},
			top{},
		},
		"group":          {map[string]string{LabelGID: "2000"}, c.Defaults, top{gid: new(uint32(2000)), mode: new(uint32(0o2770))}},
		"group and mode": {map[string]string{LabelGID: "0", LabelMode: "2775"}, c.Defaults, top{gid: new(uint32(0)), mode: new(uint32(0o2775))}},
		"mode alone":     {map[string]string{LabelMode: "777"}, c.Defaults, top{mode: new(uint32(0o777))}},
	} {
		s, top, err := c.settings(x.labels)
		if err != nil || !reflect.DeepEqual(s, x.want) || !reflect.DeepEqual(top, x.top) {
			t.Errorf("%s: got %+v %+v, %v", name, s, top, err)
		}
	}
}

// hostile are labels that must be refused, with a part of the error.
var hostile = []struct{ key, value, word string }{
	{LabelSquash, "", "leave the label out"},
	{LabelSquash, "none", "no_root_squash"},
	{LabelSquash, "no_root_squash; Access_Type = RW", "no_root_squash"},
	{LabelReadOnly, "", "true or false"},
	{LabelReadOnly, "True", "true or false"},
	{LabelReadOnly, "1", "true or false"},
	{LabelClients, " , ,", "no client"},
	{LabelClients, "*", "addresses"},
	{LabelClients, "10.0.0.0/33", "addresses"},
	{LabelClients, "host.example", "addresses"},
	{LabelClients, "10.0.0.1\n}\nEXPORT { Path = /; }", "addresses"},
	{LabelClients, "10.0.0.1;", "addresses"},
	{LabelClients, "fe80::1%eth0", "zones"},
	{LabelClients, strings.Repeat("1", 100_000), "bytes"},
	{LabelClients, strings.Repeat("10.0.0.1,", 10_000), "at most"},
	{LabelAnonUID, "-1", "number"},
	{LabelAnonUID, "4294967295", "number"},
	{LabelAnonGID, "4294967296", "number"},
	{LabelAnonGID, "0x10", "number"},
	{LabelAnonGID, "+1", "number"},
	{LabelGID, "007", "number"},
	{LabelGID, "", "number"},
	{LabelGID, "users", "number"},
	{LabelMode, "6777", "set-user-ID"},
	{LabelMode, "77", "octal"},
	{LabelMode, "00777", "octal"},
	{LabelMode, "rwx", "octal"},
	{LabelMode, "-755", "octal"},
	{labelPrefix + "path", "/etc", LabelSquash},
	{labelPrefix, "x", LabelSquash},
	{labelPrefix + "Squash", "all_squash", LabelSquash},
	{labelPrefix + strings.Repeat("x", 100_000), "", "bytes"},
}

func TestLabels_HostileAreRefusedWithTheAllowedValues(t *testing.T) {
	for _, h := range hostile {
		_, _, err := (&Config{}).settings(map[string]string{h.key: h.value})
		if !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), h.word) || len(err.Error()) > 1000 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.50q=%.50q: got %v", h.key, h.value, err)
		}
	}
}

func TestSettings_EveryLabelIsRead(t *testing.T) {
	known := slices.Sorted(maps.Keys(readers))
	want := []string{LabelSquash, LabelReadOnly, LabelClients, LabelAnonUID, LabelAnonGID, LabelGID, LabelMode}
	slices.Sort(want)
	if !slices.Equal(known, want) {
		t.Errorf("read are %v, want %v", known, want)
	}
}

func TestDefaults_BadPreventTheStart(t *testing.T) {
	for _, s := range []Settings{{Squash: "none"}, {Clients: []string{"everybody"}}} {
		c := Config{Defaults: s}
		if err := c.Defaults.check(); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
