package backend

import (
	"errors"
	"strings"
	"testing"
)

func TestIDs_FromOutsideAreChecked(t *testing.T) {
	for _, good := range []string{"a", "0", "pvc-8f14e45f-ceea-467f-9c2d-1a2b3c4d5e6f", strings.Repeat("a", 63)} {
		if id, err := ParseID(good); err != nil || string(id) != good {
			t.Errorf("%q: %q, %v", good, id, err)
		}
	}
	for _, bad := range []string{"", "-a", "A", "../x", "a/../../b", "/etc/passwd", "a\n", "a\x00", "größe", ".", "..", "a.b", "a_b", strings.Repeat("a", 64), strings.Repeat("a", 10_000)} {
		_, err := ParseID(bad)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), Quote(bad)) {
			t.Errorf("%q: got %v, want an error that is %q and names it", bad, err, ErrInvalid)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("a name of %d bytes makes an error of %d bytes", len(bad), len(err.Error()))
		}
	}
}

func TestNames_ThatAreIDsKeepThem(t *testing.T) {
	if id, err := IDFor("pvc-1"); id != "pvc-1" || err != nil {
		t.Errorf("got %q, %v", id, err)
	}
}

func TestNames_ThatLookAlikeGetDifferentIDs(t *testing.T) {
	seen := map[ID]string{}
	for _, name := range []string{"A", "a ", "a/", "a\n", "a.", "ä", "ö", "-", ".", strings.Repeat("x", 64), strings.Repeat("x", 65), "CSI Volume", "csi volume"} {
		id, err := IDFor(name)
		if err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if other, taken := seen[id]; taken {
			t.Errorf("%q and %q both have the ID %s", name, other, id)
		}
		seen[id] = name
	}
}

func FuzzIDFor(f *testing.F) {
	for _, s := range []string{"a", "../x", "CSI Volume", "größe", strings.Repeat("-", 70), "a\x00b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		id, err := IDFor(name)
		if err != nil {
			return
		}
		if _, err := ParseID(string(id)); err != nil {
			t.Errorf("%q has the ID %q: %v", name, id, err)
		}
		if again, _ := IDFor(name); again != id {
			t.Errorf("%q has the IDs %q and %q", name, id, again)
		}
	})
}

func FuzzParseID(f *testing.F) {
	f.Add("../x")
	f.Add("pvc-1")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseID(s)
		if err == nil && (string(id) != s || strings.ContainsAny(s, "/.\x00\n") || s[0] == '-' || len(s) > 63) {
			t.Errorf("%q was accepted", s)
		}
	})
}
