package export

import (
	"net"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/nfsclient"
)

// stranger is a client whose requests are not those of an honest one.
type stranger struct {
	*nfsclient.Client
	t    *testing.T
	from net.Addr // nil: any address of this host
}

func newStranger(t *testing.T, address string) *stranger {
	t.Helper()
	return newStrangerFrom(t, address, nil)
}

// newStrangerFrom connects from an address.
func newStrangerFrom(t *testing.T, address string, from net.Addr) *stranger {
	t.Helper()
	return &stranger{nfsclient.NewFrom(t, address, from), t, from}
}
