package ganesha

import (
	"strings"
	"testing"
)

// good returns a valid export, with a change.
func good(change func(*Export)) Export {
	e := Export{ID: 7, Path: "/srv/data", Pseudo: "/data", Filesystem: "7.1"}
	change(&e)
	return e
}

func TestExport_ValidIsAllowed(t *testing.T) {
	for name, change := range map[string]func(*Export){
		"the least":            func(*Export) {},
		"the first ID":         func(e *Export) { e.ID = 1 },
		"ID 152":               func(e *Export) { e.ID, e.Filesystem = 152, "152.152" },
		"the last ID":          func(e *Export) { e.ID, e.Filesystem = 65535, "9223372036854775807.0" },
		"a path of oddities":   func(e *Export) { e.Path = "/srv/a b;}{#=,%include $(x)`~*?[!]&|<>" },
		"the longest pseudo":   func(e *Export) { e.Pseudo = "/" + strings.Repeat("a", 255) },
		"all of a name":        func(e *Export) { e.Pseudo = "/pvc-0a1B_2.x" },
		"points and more":      func(e *Export) { e.Pseudo = "/...a" },
		"no squash":            func(e *Export) { e.Squash = NoRootSquash },
		"root squash":          func(e *Export) { e.Squash = RootSquash },
		"all squash":           func(e *Export) { e.Squash = AllSquash },
		"an address":           func(e *Export) { e.Clients = []string{"10.0.0.7"} },
		"networks":             func(e *Export) { e.Clients = []string{"10.0.0.7/8", "fd00::/99", "::/0", "0.0.0.0/0"} },
		"an address of IPv6":   func(e *Export) { e.Clients = []string{"fd00::1"} },
		"a network of one":     func(e *Export) { e.Clients = []string{"fd00::1/128", "10.0.0.7/32"} },
		"as many as there are": func(e *Export) { e.Clients = strings.Fields(strings.Repeat("10.0.0.7 ", mostClients)) },
	} {
		e := good(change)
		if err := e.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestExport_InvalidIsRefusedWithTheReason(t *testing.T) {
	for _, c := range []struct {
		want   string // part of the error, with what is allowed
		change func(*Export)
	}{
		{"1 to 65535", func(e *Export) { e.ID = 0 }},
		{`path ""`, func(e *Export) { e.Path = "" }},
		{`path "/"`, func(e *Export) { e.Path = "/" }},
		{`"srv/data"`, func(e *Export) { e.Path = "srv/data" }},
		{"without . or ..", func(e *Export) { e.Path = "/srv/../etc" }},
		{"without . or ..", func(e *Export) { e.Path = "/srv/data/" }},
		{"without . or ..", func(e *Export) { e.Path = "/srv//data" }},
		{"printable ASCII", func(e *Export) { e.Path = `/srv/"; } EXPORT { Path = "/x` }},
		{"printable ASCII", func(e *Export) { e.Path = `/srv/\` }},
		{"printable ASCII", func(e *Export) { e.Path = "/srv/'" }},
		{"printable ASCII", func(e *Export) { e.Path = "/srv/a\nb" }},
		{"printable ASCII", func(e *Export) { e.Path = "/srv/a\x00b" }},
		{"printable ASCII", func(e *Export) { e.Path = "/srv/a\x7fb" }},
		{"printable ASCII", func(e *Export) { e.Path = "/srv/ä" }},
		{"at most 4095", func(e *Export) { e.Path = "/" + strings.Repeat("a", 4095) }},
		{"pseudo path", func(e *Export) { e.Pseudo = "" }},
		{"pseudo path", func(e *Export) { e.Pseudo = "/" }},
		{"pseudo path", func(e *Export) { e.Pseudo = "data" }},
		{"pseudo path", func(e *Export) { e.Pseudo = "/." }},
		{"pseudo path", func(e *Export) { e.Pseudo = "/.." }},
		{"pseudo path", func(e *Export) { e.Pseudo = "/a/b" }},
		{"pseudo path", func(e *Export) { e.Pseudo = `/a"; Squash = None; X = "` }},
		{"pseudo path", func(e *Export) { e.Pseudo = "/a b" }},
		{"pseudo path", func(e *Export) { e.Pseudo = "/" + strings.Repeat("a", 256) }},
		{"file system ID", func(e *Export) { e.Filesystem = "" }},
		{"file system ID", func(e *Export) { e.Filesystem = "1" }},
		{"file system ID", func(e *Export) { e.Filesystem = rootFilesystem }},
		{"file system ID", func(e *Export) { e.Filesystem = "1.-1" }},
		{"file system ID", func(e *Export) { e.Filesystem = "+1.1" }},
		{"file system ID", func(e *Export) { e.Filesystem = "01.1" }},
		{"file system ID", func(e *Export) { e.Filesystem = "1.1; Squash = None" }},
		{"file system ID", func(e *Export) { e.Filesystem = "9223372036854775808.1" }},
		{"no_root_squash, root_squash and all_squash", func(e *Export) { e.Squash = "none; Path = /" }},
		{"without names", func(e *Export) { e.Clients = []string{"10.0.0.7", "host.example.org"} }},
		{"without names", func(e *Export) { e.Clients = []string{"*"} }},
		{"without names", func(e *Export) { e.Clients = []string{"@group"} }},
		{"without names", func(e *Export) { e.Clients = []string{""} }},
		{"without names", func(e *Export) { e.Clients = []string{"10.0.0.0/33"} }},
		{"without names", func(e *Export) { e.Clients = []string{"fe80::1%eth0"} }},
		{"without names", func(e *Export) { e.Clients = []string{"::ffff:10.0.0.7"} }},
		{"without names", func(e *Export) { e.Clients = []string{"::ffff:10.0.0.0/104"} }},
		{"without names", func(e *Export) { e.Clients = []string{"10.0.0.7; Access_Type = RW; } CLIENT { Clients = *"} }},
		{"/0 to /99", func(e *Export) { e.Clients = []string{"fd00::/100"} }},
		{"at most 8192", func(e *Export) { e.Clients = strings.Fields(strings.Repeat("10.0.0.7 ", mostClients+1)) }},
	} {
		e := good(c.change)
		if err := e.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want an error with %s", e, err, c.want)
		}
	}
}

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
