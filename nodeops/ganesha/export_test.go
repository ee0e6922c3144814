package ganesha

import (
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// good returns a valid export, with a change.
func good(change func(*Export)) Export {
	e := Export{ID: 7, Path: "/srv/data", Pseudo: "/data", Filesystem: "7.1"}
	change(&e)
	return e
}

func TestExport_ValidIsAllowed(t *testing.T) {
	for _, change := range []func(*Export){
		func(*Export) {},
		func(e *Export) { e.ID = 1 },
		func(e *Export) { e.ID, e.Filesystem = 152, "152.152" },
		func(e *Export) { e.ID, e.Filesystem = 65535, "9223372036854775807.0" },
		func(e *Export) { e.Path = "/srv/a b;}{#=,%include $(x)`~*?[!]&|<>" },
	} {
		e := good(change)
		check.Report(t, e.Check())
	}
	for _, pseudo := range []string{"/" + strings.Repeat("a", 255), "/pvc-0a1B_2.x", "/...a"} {
		e := good(func(e *Export) { e.Pseudo = pseudo })
		check.Report(t, e.Check())
	}
	for _, squash := range []Squash{NoRootSquash, RootSquash, AllSquash} {
		e := good(func(e *Export) { e.Squash = squash })
		check.Report(t, e.Check())
	}
	for _, clients := range []string{
		"10.0.0.7", "10.0.0.7/8|fd00::/99|::/0|0.0.0.0/0", "fd00::1", "fd00::1/128|10.0.0.7/32",
		strings.Repeat("10.0.0.7|", mostClients-1) + "10.0.0.7",
	} {
		e := good(func(e *Export) { setClients(e, clients) })
		check.Report(t, e.Check())
	}
}

func TestExport_InvalidIsRefusedWithTheReason(t *testing.T) {
	for _, c := range []struct {
		want   string // part of the error, with what is allowed
		set    func(*Export, string)
		values []string
	}{
		{"1 to 65535", func(e *Export, _ string) { e.ID = 0 }, []string{""}},
		{"absolute, without . or ..", setPath, []string{"", "/", "srv/data", "/srv/../etc", "/srv/data/", "/srv//data"}},
		{"printable ASCII", setPath, []string{
			`/srv/"; } EXPORT { Path = "/x`, `/srv/\`, "/srv/'", "/srv/a\nb", "/srv/a\x00b", "/srv/a\x7fb", "/srv/ä",
		}},
		{"at most 4095", setPath, []string{"/" + strings.Repeat("a", 4095)}},
		{"pseudo path", func(e *Export, v string) { e.Pseudo = v }, []string{
			"", "/", "data", "/.", "/..", "/a/b", `/a"; Squash = None; X = "`, "/a b", "/" + strings.Repeat("a", 256),
		}},
		{"file system ID", func(e *Export, v string) { e.Filesystem = v }, []string{
			"", "1", rootFilesystem, "1.-1", "+1.1", "01.1", "1.1; Squash = None", "9223372036854775808.1",
		}},
		{"no_root_squash, root_squash and all_squash", func(e *Export, v string) { e.Squash = Squash(v) }, []string{"none; Path = /"}},
		{"without names", setClients, []string{
			"10.0.0.7|host.example.org", "*", "@group", "", "10.0.0.0/33", "fe80::1%eth0", "::ffff:10.0.0.7", "::ffff:10.0.0.0/104",
			"10.0.0.7; Access_Type = RW; } CLIENT { Clients = *",
		}},
		{"/0 to /99", setClients, []string{"fd00::/100"}},
		{"at most 8192", setClients, []string{strings.Repeat("10.0.0.7|", mostClients) + "10.0.0.7"}},
	} {
		for _, value := range c.values {
			e := good(func(e *Export) { c.set(e, value) })
			if err := e.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: got %v, want an error with %s", e, err, c.want)
			}
		}
	}
}

func setPath(e *Export, path string)       { e.Path = path }
func setClients(e *Export, clients string) { e.Clients = strings.Split(clients, "|") }

func FuzzExport_AllowedIsOneBlock(f *testing.F) {
	f.Add("/srv/data", "/data", "7.1", "root_squash", "10.0.0.0/8")
	f.Add("/srv/a b;}{#", "/..a", "7.0", "", "::/0")
	f.Fuzz(func(t *testing.T, path, pseudo, filesystem, squash, client string) {
		e := Export{ID: 7, Path: path, Pseudo: pseudo, Filesystem: filesystem, Squash: Squash(squash), Clients: []string{client}}
		if e.Check() != nil {
			return
		}
		block := exportBlock(e)
		outside, quoted := unquoted(t, block)
		if want := []string{path, pseudo}; len(quoted) != 2 || quoted[0] != want[0] || quoted[1] != want[1] {
			t.Errorf("%q: quoted is %q, want %q", block, quoted, want)
		}
		if n := strings.Count(outside, "{"); n != 3 || strings.Count(outside, "}") != 3 || strings.ContainsAny(outside, "%#'\\@*") {
			t.Errorf("%q: %d blocks, or more than it takes to say it", block, n)
		}
	})
}

// unquoted splits a text into what is inside double quotes, in which a backslash would be an escape, and what is
// outside.
func unquoted(t *testing.T, text string) (outside string, quoted []string) {
	t.Helper()
	for i, part := range strings.Split(text, `"`) {
		if i%2 == 0 {
			outside += part
			continue
		}
		if strings.ContainsAny(part, "\\\n") {
			t.Errorf("%q: %q needs to be escaped", text, part)
		}
		quoted = append(quoted, part)
	}
	return outside, quoted
}
