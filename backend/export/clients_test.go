package export

import (
	"fmt"
	"net"
	"os"
	"slices"
	"testing"

	"github.com/holdfast-storage/holdfast/nodeops/ganesha"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/nfsclient"
)

// stranger is a client whose requests are not those of an honest one.
type stranger struct {
	*nfsclient.Client
	t    *testing.T
	from net.Addr // nil: any address of this host
}

func newStranger(t *testing.T, address string, from net.Addr) *stranger {
	t.Helper()
	return &stranger{nfsclient.NewFrom(t, address, from), t, from}
}

// The status codes of a refused request.
var refusals = []uint32{
	nfsclient.StatusNotPermitted, nfsclient.StatusNoEntry, nfsclient.StatusAccess, nfsclient.StatusStale, nfsclient.StatusWrongSecurity,
}

// may returns whether a client can access a volume: by name, in a listing, or by a file handle that it has.
func (s *stranger) may(name string, handle []byte) bool {
	s.t.Helper()
	var id uint64
	var names []string
	var seen []string
	status := s.Ask(nfsclient.PutRoot(), nfsclient.LookUp(name), nfsclient.GetAttr(&id), nfsclient.ReadDir(&names))
	s.Must(s.Ask(nfsclient.PutRoot(), nfsclient.ReadDir(&seen)))
	byHandle := s.Ask(nfsclient.PutHandle(handle), nfsclient.ReadDir(&names))
	listed := slices.Contains(seen, name)
	if status == nfsclient.StatusOK && byHandle == nfsclient.StatusOK && listed {
		return true
	}
	if !slices.Contains(refusals, status) || !slices.Contains(refusals, byHandle) || listed || len(names) > 0 {
		s.t.Errorf("%v sees %s by name: %d, by handle: %d, in the list: %v, and in it %v", s.from, name, status, byHandle, listed, names)
	}
	return false
}

func TestAccess_PodThatIsNoNodeIsRefusedAndANewNodeAdmittedWithoutARestart(t *testing.T) {
	requireGanesha(t)
	server, address := serve(t)
	check.OK(t, server.SetClients(t.Context(), []string{"127.0.0.2"}))
	export := func(id uint16, name string, clients ...string) {
		t.Helper()
		dir := t.TempDir()
		check.OK(t, os.WriteFile(dir+"/file", []byte("a tenant's"), 0o600))
		e := ganesha.Export{ID: id, Path: dir, Pseudo: "/" + name, Filesystem: fmt.Sprintf("%d.1", id), Clients: clients}
		check.OK(t, server.Put(t.Context(), e))
	}
	export(1, "volume")
	export(2, "named", "127.0.0.2")
	from := func(a string) *stranger { return newStranger(t, address, &net.TCPAddr{IP: net.ParseIP(a)}) }
	node, other := from("127.0.0.2"), from("127.0.0.3")
	handles := map[string][]byte{}
	for _, name := range []string{"volume", "named"} {
		var h []byte
		node.Must(node.Ask(nfsclient.PutRoot(), nfsclient.LookUp(name), nfsclient.GetHandle(&h)))
		handles[name] = h
	}
	expect := func(when string, want ...bool) {
		t.Helper()
		got := []bool{node.may("volume", handles["volume"]), other.may("volume", handles["volume"]), node.may("named", handles["named"]), other.may("named", handles["named"])}
		if !slices.Equal(got, want) {
			t.Errorf("%s: the first, the second, and the same of what names its clients: %v, not %v", when, got, want)
		}
	}
	expect("with one node", true, false, true, false)
	// A restart of the server would end the sessions of its clients, and fail the next request.
	check.OK(t, server.SetClients(t.Context(), []string{"127.0.0.2", "127.0.0.3", "fd00::/64"}))
	expect("with a second", true, true, true, false)
	many := []string{"127.0.0.3"}
	for i := range 4000 {
		many = append(many, fmt.Sprintf("10.1.%d.%d", i/250, i%250))
	}
	check.OK(t, server.SetClients(t.Context(), many))
	export(3, "later")
	expect("with many, and without the first", false, true, true, false)
	var h []byte
	other.Must(other.Ask(nfsclient.PutRoot(), nfsclient.LookUp("later"), nfsclient.GetHandle(&h)))
	if node.may("later", h) || !other.may("later", h) {
		t.Error("what is exported later is for others")
	}
	for _, bad := range [][]string{nil, {"node-a"}, {"fd00::/120"}} {
		if err := server.SetClients(t.Context(), bad); err == nil {
			t.Errorf("%v are taken", bad)
		}
	}
	expect("after what is none", false, true, true, false)
}
