package provisioner

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
)

func TestParameters_AreReadWhateverTheCaseOfTheirKeys(t *testing.T) {
	all := choices{server: "storage/main", gid: "1000", squash: "root_squash", inodes: 5000, onDelete: ArchiveData}
	for given, want := range map[string]choices{
		"nfsServer=storage/main gid=1000 rootSquash=true inodes=5000 onDelete=archive":     all,
		"nfsserver=storage/main gid=1000 rootsquash=true inodes=5000 ondelete=archive":     all,
		"NFSSERVER=storage/main GID=01000 SQUASH=root_squash INODES=5000 ONDELETE=archive": all,
		"": {onDelete: DeleteData},
		"nfsServer= gid= rootSquash= squash= inodes= onDelete=": {onDelete: DeleteData},
		"gid=none": {onDelete: DeleteData},
	} {
		parameters := map[string]string{}
		for field := range strings.FieldsSeq(given) {
			key, value, _ := strings.Cut(field, "=")
			parameters[key] = value
		}
		if c, err := parseParameters(parameters); err != nil || c != want {
			t.Errorf("%q: %+v, %v", given, c, err)
		}
	}
}

// Package parameters tests the refusals of keys.
func TestParameters_WrongIsRefusedWithTheAllowedValues(t *testing.T) {
	for name, test := range map[string]struct {
		given map[string]string
		says  []string
	}{
		"mount options":   {map[string]string{"mountOptions": "vers=4"}, []string{"field of the StorageClass"}},
		"CSI file system": {map[string]string{"csi.storage.k8s.io/fstype": "xfs"}, []string{"the server chooses the file system", "onDelete"}},
		"group 0":         {map[string]string{"gid": "0"}, []string{`gid="0"`, "none", "4294967294"}},
		"group too high":  {map[string]string{"gid": "4294967295"}, []string{"4294967294"}},
		"group negative":  {map[string]string{"gid": "-1"}, []string{"4294967294"}},
		"group by name":   {map[string]string{"gid": "users"}, []string{"4294967294"}},
		"group signed":    {map[string]string{"gid": "+5"}, []string{"4294967294"}},
		"group in hex":    {map[string]string{"gid": "0x5"}, []string{"4294967294"}},
		"root squash":     {map[string]string{"rootSquash": "yes"}, []string{"true or false"}},
		"squash":          {map[string]string{"squash": "root_id_squash"}, []string{"no_root_squash, root_squash or all_squash"}},
		"squash twice":    {map[string]string{"rootSquash": "true", "squash": "root_squash"}, []string{"squash", "leave out one of them"}},
		"no inodes":       {map[string]string{"inodes": "0"}, []string{"from 1 to"}},
		"many inodes":     {map[string]string{"inodes": "9223372036854775808"}, []string{"from 1 to 9223372036854775807"}},
		"onDelete":        {map[string]string{"onDelete": "shred"}, []string{"Delete, Retain or Archive"}},
		"server path":     {map[string]string{"nfsServer": "../../etc"}, []string{"NAMESPACE/NAME"}},
		"server line":     {map[string]string{"nfsServer": "main\nEXPORT{}"}, []string{"NAMESPACE/NAME", `\n`}},
		"server deep":     {map[string]string{"nfsServer": "a/b/c"}, []string{"NAMESPACE/NAME"}},
	} {
		_, err := parseParameters(test.given)
		if !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: got %v", name, err)
			continue
		}
		for _, part := range test.says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", name, err, part)
			}
		}
	}
}

// FuzzParameters looks for a value that gets through and is not what it is taken for.
func FuzzParameters(f *testing.F) {
	for _, value := range []string{"", "1", "none", "true", "a/b", "..", "root_squash", "18446744073709551616", "\x00", "delete", "٣"} {
		f.Add("gid", value)
		f.Add("nfſServer", value) // folds to "nfsServer" in Unicode
		f.Add("onDelete", value)
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		p, err := parseParameters(map[string]string{key: value})
		if err != nil {
			if !errors.Is(err, backend.ErrInvalid) || strings.ContainsAny(err.Error(), "\n\x00") || len(err.Error()) > 1024 {
				t.Errorf("%q=%q: the message is %q", key, value, err)
			}
			return
		}
		safe := func(s string) bool {
			return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-_./") == "" && !strings.Contains(s, "..")
		}
		if !safe(p.gid) || !safe(p.squash) || !safe(string(p.onDelete)) || strings.Trim(p.gid, "0123456789") != "" {
			t.Errorf("%q=%q became %+v", key, value, p)
		}
		if p.server != "" && strings.Count(p.server, "/") > 1 {
			t.Errorf("server %q", p.server)
		}
	})
}
