package ganesha

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// A client on the node that a server has left, or on the one to which it has moved, has another address for it
// afterwards.
func TestClients_KeepFilesAndLocksWhenTheyComeBackFromAnotherAddressOfTheirHost(t *testing.T) {
	requireClient(t)
	c, one := testConfig(t), newExport(t, 1)
	first, second := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	c.Neighbours = []netip.Addr{first, second}
	r := runWith(t, c, one)
	r.up()
	h := r.holder(one)
	for _, at := range []struct {
		source netip.Addr // of the client
		host   []netip.Addr
	}{
		{second, []netip.Addr{netip.MustParseAddr("192.0.2.1")}}, // on the node that the server has left
		{first, []netip.Addr{first, second}},                     // on the node to which it has moved
	} {
		r.stop()
		command(t, "ip", "route", "change", "local", "127.0.0.1", "dev", "lo", "table", "local", "src", at.source.String())
		c.Neighbours = at.host
		r = prepare(t, c, one)
		r.start()
		r.up()
		h.goesOn("from " + at.source.String())
		if clients, err := r.Clients(t.Context()); err != nil || !slices.Equal(clients, []string{at.source.String()}) {
			t.Errorf("the clients are %v, %v, want one at %s", clients, err, at.source)
		}
	}
	h.end()
}

func TestNeighbours_OnlyStateOfClientsOnHostsOfTheMoveIsKept(t *testing.T) {
	dir := t.TempDir()
	check.OK(t, duplicateRecovery(dir, parse("10.0.1.1 192.0.2.1 fd00::1")))
	long := strings.Repeat("n", 300)
	for _, held := range []string{
		"v4recov/::ffff:10.0.1.1-(1:a)", "v4recov/::ffff:192.0.2.2-(1:b)", "v4recov/::ffff:192.0.2.3-(1:c)", "v4old/fd00::1-(1:d)",
		"v4old/" + cut("::ffff:10.0.1.1-(300:"+long+")"),
	} {
		check.OK(t, os.MkdirAll(filepath.Join(dir, held), 0o700))
	}
	check.OK(t, duplicateRecovery(dir, parse("10.0.2.1 192.0.2.2")))
	var want []string
	for _, address := range []string{"::ffff:10.0.1.1", "::ffff:192.0.2.1", "fd00::1"} {
		want = append(want, "v4recov/"+address+"-(1:a)", "v4old/"+address+"-(1:d)", "v4old/"+cut(address+"-(300:"+long+")"))
	}
	want = append(want, "v4recov/::ffff:10.0.2.1-(1:b)", "v4recov/::ffff:192.0.2.2-(1:b)", "v4recov/::ffff:192.0.2.3-(1:c)")
	slices.Sort(want)
	var got []string
	for _, tree := range recoveryTrees {
		clients := check.Got(heldBy(filepath.Join(dir, tree)))(t)
		for _, c := range clients {
			got = append(got, tree+"/"+cut(c.address+"-("+c.name))
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("kept is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// cut is how Ganesha stores a client whose name is too long for a directory.
func cut(entry string) string {
	if len(entry) <= 255 {
		return entry
	}
	return entry[:255] + "/" + entry[255:]
}

func parse(addresses string) (all []netip.Addr) {
	for a := range strings.FieldsSeq(addresses) {
		all = append(all, netip.MustParseAddr(a))
	}
	return all
}

func TestNeighbours_AreTheHostAndTheFirstAddressesOfAPodsNetworks(t *testing.T) {
	var addresses []net.Addr
	for _, a := range []string{"127.0.0.1/8", "::1/128", "10.85.3.7/24", "169.254.0.7/16", "fe80::1/64", "fd00:85:3::7/64", "10.9.9.9/32"} {
		addresses = append(addresses, text(a))
	}
	got, err := neighbours(netip.MustParseAddr("192.0.2.1"), addresses)
	if want := parse("10.85.3.0 10.85.3.1 192.0.2.1 fd00:85:3:: fd00:85:3::1"); err != nil || !slices.Equal(got, want) {
		t.Errorf("they are %v, %v, want %v", got, err, want)
	}
}

// text is the address of an interface.
type text string

func (text) Network() string  { return "ip+net" }
func (t text) String() string { return string(t) }
