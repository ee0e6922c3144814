package parameters

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

var classes = map[string]*Class{"CSI": &CSI, "Plain": &Plain, "Inline": &Inline, "Snapshot": &Snapshot, "GroupSnapshot": &GroupSnapshot}

func TestTable_EveryEntryIsComplete(t *testing.T) {
	for name, c := range classes {
		if c.Name == "" || len(slices.Compact(c.Keys())) != len(c.Parameters) {
			t.Errorf("%s: a name or a key is missing or twice: %q, %v", name, c.Name, c.Keys())
		}
		for _, p := range c.Parameters {
			if p.Key == "" || p.Allowed == "" || p.Default == "" || p.Meaning == "" {
				t.Errorf("%s: %+v is incomplete", name, p)
			}
			if key, _, _ := strings.Cut(p.Needs, "="); p.Needs != "" && !slices.Contains(c.Keys(), key) {
				t.Errorf("%s: %s needs %s, which is not in the table", name, p.Key, p.Needs)
			}
			for _, never := range p.Never {
				if key, _, _ := strings.Cut(never, "="); !slices.Contains(c.Keys(), key) {
					t.Errorf("%s: %s excludes %s, which is not in the table", name, p.Key, never)
				}
			}
		}
		for key, hint := range c.Hints {
			if p, known := c.find(key); known && p.Key == key || key != strings.ToLower(key) || hint == "" {
				if key != FSType { // known, and the hint is for its spellings in another case
					t.Errorf("%s: the hint for %q is never given: %q", name, key, hint)
				}
			}
		}
	}
}

func TestTable_NoKeyIsOneOfKubernetesBesideTheFileSystem(t *testing.T) {
	for name, c := range classes {
		for _, key := range c.Keys() {
			if strings.HasPrefix(key, Reserved) && key != FSType {
				t.Errorf("%s: %s", name, key)
			}
		}
	}
}

func TestRead_ReturnsWhatIsGivenAndKnown(t *testing.T) {
	given := map[string]string{Pool: "fast", Inodes: "", FSType: "xfs", Reserved + "pv/name": "pvc-1", MkfsOptions: " -m crc=1"}
	read, err := CSI.Read(given)
	if want := map[string]string{Pool: "fast", FSType: "xfs", MkfsOptions: " -m crc=1"}; err != nil || !maps.Equal(read, want) {
		t.Errorf("got %v, %v", read, err)
	}
	// The value of the API, and that of older classes and volumes.
	for given, want := range map[string]string{"Thick": "thick", "thick": "thick"} {
		if read, err := CSI.Read(map[string]string{Provisioning: given}); err != nil || read[Provisioning] != want {
			t.Errorf("%s: got %v, %v", given, read, err)
		}
	}
	if read, err := Plain.Read(map[string]string{"NFSSERVER": "a/b", "GID": "007"}); err != nil || !maps.Equal(read, map[string]string{NFSServer: "a/b", GID: "007"}) {
		t.Errorf("got %v, %v", read, err)
	}
}

func TestRead_RefusalNamesKeyValueAndWhatIsAllowed(t *testing.T) {
	for name, test := range map[string]struct {
		class *Class
		given map[string]string
		says  []string
	}{
		"unknown":                 {&CSI, map[string]string{"speed": "x"}, []string{`"speed"`, "csi.holdfast.dev", "case matters", "provisioning", Reserved}},
		"misspelled":              {&CSI, map[string]string{"provisoning": "x"}, []string{"provisioning"}},
		"in another case":         {&CSI, map[string]string{"INODES": "x"}, []string{"did you mean inodes?"}},
		"a short file system":     {&CSI, map[string]string{"fsType": "x"}, []string{"use " + FSType}},
		"a file system for NFS":   {&Plain, map[string]string{"fsType": "x"}, []string{"the server chooses"}},
		"of the other driver":     {&CSI, map[string]string{"gid": "5"}, []string{"nfs.holdfast.dev"}},
		"of the other one":        {&Plain, map[string]string{"onNodeLoss": "delete"}, []string{"csi.holdfast.dev"}},
		"Kubernetes', misspelled": {&CSI, map[string]string{Reserved + "FSType": "xfs"}, []string{"did you mean " + FSType}},
		"Kubernetes', plain":      {&Plain, map[string]string{Reserved + "x": ""}, []string{"does not have it"}},
		"for a snapshot":          {&Snapshot, map[string]string{"pool": "x"}, []string{"VolumeSnapshotClass", Reserved}},
		"for a group":             {&GroupSnapshot, map[string]string{"pool": "x"}, []string{"VolumeGroupSnapshotClass"}},
		"empty key":               {&CSI, map[string]string{"": "x"}, []string{`""`}},
		"a long key":              {&CSI, map[string]string{strings.Repeat("k", 5000): "x"}, []string{"5000 bytes"}},
		"a long value":            {&CSI, map[string]string{Inodes: strings.Repeat("1", 5000)}, []string{"5000 bytes", "from 1 to"}},
		"a line":                  {&CSI, map[string]string{Provisioning: "thin\n"}, []string{`"thin\n"`, "Thin or Thick"}},
		"a value of others":       {&CSI, map[string]string{FSType: "XFS"}, []string{`"XFS"`}},
		"needs":                   {&CSI, map[string]string{NFSServer: "a/b", Shared: "false"}, []string{NFSServer, `shared: "true"`}},
		"never":                   {&CSI, map[string]string{OnNodeLoss: "retain", Shared: "true"}, []string{OnNodeLoss, `shared: "true"`}},
		"twice":                   {&Plain, map[string]string{"gid": "1", "Gid": ""}, []string{`"gid"`, `"Gid"`, "the same key"}},
	} {
		_, err := test.class.Read(test.given)
		if err == nil {
			t.Errorf("%s is taken", name)
			continue
		}
		for _, part := range test.says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", name, err, part)
			}
		}
		if len(err.Error()) > 1000 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: the message is %q", name, err)
		}
	}
}

func TestRead_KeysOfANewerSidecarAreIgnored(t *testing.T) {
	for name, c := range classes {
		read, err := c.Read(map[string]string{Reserved + "of-next-year": "x"})
		if taken := err == nil; taken != c.AllowsReserved || len(read) > 0 {
			t.Errorf("%s: %v, %v", name, read, err)
		}
	}
}

func TestRead_OptionsOfMkfsAreThoseOfTheFileSystem(t *testing.T) {
	for _, c := range []struct {
		given map[string]string
		want  string // in the error; empty: there is none
	}{
		{map[string]string{MkfsOptions: "-m 1 -i 8192"}, ""}, // ext4, if nothing is said
		{map[string]string{MkfsOptions: "-m crc=1", FSType: "xfs"}, ""},
		{map[string]string{MkfsOptions: "-i 8192", FSType: "xfs"}, "mkfs option -i of xfs"},
		{map[string]string{MkfsOptions: "-m 1 -b 1024"}, "mkfs option -b of ext4 is not allowed: blocks have 4096 bytes"},
		{map[string]string{MkfsOptions: "-J device=/dev/vda"}, "mkfs option -J of ext4"},
	} {
		_, err := CSI.Read(c.given)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "parameter mkfsOptions=")) {
			t.Errorf("%v: %v, want %q", c.given, err, c.want)
		}
	}
}
