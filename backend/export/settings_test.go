package export

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops/ganesha"
	"github.com/holdfast-storage/holdfast/test/rig/check"
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

func TestLabels_HostileAreRefusedWithTheAllowedValues(t *testing.T) {
	for _, h := range []struct {
		key, says string // part of the error
		values    []string
	}{
		{LabelSquash, "leave the label out", []string{""}},
		{LabelSquash, "no_root_squash", []string{"none", "no_root_squash; Access_Type = RW"}},
		{LabelReadOnly, "true or false", []string{"", "True", "1"}},
		{LabelClients, "no client", []string{" , ,"}},
		{LabelClients, "addresses", []string{"*", "10.0.0.0/33", "host.example", "10.0.0.1\n}\nEXPORT { Path = /; }", "10.0.0.1;"}},
		{LabelClients, "zones", []string{"fe80::1%eth0"}},
		{LabelClients, "bytes", []string{strings.Repeat("1", 100_000)}},
		{LabelClients, "at most", []string{strings.Repeat("10.0.0.1,", 10_000)}},
		{LabelAnonUID, "number", []string{"-1", "4294967295"}},
		{LabelAnonGID, "number", []string{"4294967296", "0x10", "+1"}},
		{LabelGID, "number", []string{"007", "", "users"}},
		{LabelMode, "set-user-ID", []string{"6777"}},
		{LabelMode, "octal", []string{"77", "00777", "rwx", "-755"}},
		{labelPrefix + "path", LabelSquash, []string{"/etc"}},
		{labelPrefix, LabelSquash, []string{"x"}},
		{labelPrefix + "Squash", LabelSquash, []string{"all_squash"}},
		{labelPrefix + strings.Repeat("x", 100_000), "bytes", []string{""}},
	} {
		for _, value := range h.values {
			_, _, err := (&Config{}).settings(map[string]string{h.key: value})
			check.Fails(t, err, backend.ErrInvalid, h.says)
			if len(fmt.Sprint(err)) > 1000 || strings.Contains(fmt.Sprint(err), "\n") {
				t.Errorf("%.50q=%.50q: got %v", h.key, value, err)
			}
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
