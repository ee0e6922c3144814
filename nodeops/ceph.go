package nodeops

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Ceph is a cluster, and as whom to speak to it.
type Ceph struct {
	FSID     string   // the UUID of the cluster; what answers at the addresses may be another one, which is refused
	Monitors []string // v2:ADDRESS:PORT or v1:ADDRESS:PORT
	User     string   // without client.
	Key      CephKey
	Secure   bool // all that is sent is encrypted
	// Namespaces is a directory such as /proc/1/ns: the kernel's client speaks to the cluster from the network that is
	// there, as long as that lasts. Empty means that of this process.
	Namespaces string
}

// CephClient is a client of the kernel as its cluster knows it, and by which it can be fenced.
type CephClient struct {
	FSID    string // of the cluster
	ID      string // client.NUMBER
	Address string // ADDRESS:0/NONCE; empty if it is not known
}

// cephAnswer is how long the kernel waits for the monitors of a cluster when it begins to speak to it, in seconds. It is
// as good as endless by default, and the client of one cluster keeps those of all others waiting until then.
const cephAnswer = 8

// messengers returns the addresses that are given to the kernel, and its mode of messengers. The kernel speaks one
// version to all monitors of a cluster: v2, which a cluster has since 2019, where any is given.
func (c *Ceph) messengers() (addresses []string, mode string, err error) {
	var v1, v2 []string
	for _, m := range c.Monitors {
		version, address, _ := strings.Cut(m, ":")
		at, err := netip.ParseAddrPort(address)
		switch {
		case err != nil || at.Port() == 0 || version != "v1" && version != "v2":
			return nil, "", fmt.Errorf("monitor %q: it must be v2:ADDRESS:PORT or v1:ADDRESS:PORT, such as v2:10.0.0.1:3300", shorten(m))
		case version == "v1":
			v1 = append(v1, at.String())
		default:
			v2 = append(v2, at.String())
		}
	}
	switch {
	case c.Secure && len(v2) == 0:
		return nil, "", fmt.Errorf("monitors %q: only the messenger v2 can encrypt, and none has it; give v2:ADDRESS:PORT, or leave out secure", c.Monitors)
	case c.Secure:
		return v2, "secure", nil
	case len(v2) > 0:
		return v2, "prefer-crc", nil
	case len(v1) > 0:
		return v1, "legacy", nil
	}
	return nil, "", fmt.Errorf("no monitor of the Ceph cluster %s is given", c.FSID)
}

// options are those that both clients of the kernel know.
func (c *Ceph) options(mode string) []string {
	return []string{
		"fsid=" + c.FSID, "name=" + c.User, "key=" + keyDescription, "ms_mode=" + mode, "mount_timeout=" + strconv.Itoa(cephAnswer),
	}
}

func (c *Ceph) check() error {
	if !uuidForm.MatchString(c.FSID) {
		return fmt.Errorf("fsid %q: it must be the UUID of the Ceph cluster, in lowercase; ceph fsid prints it", shorten(c.FSID))
	}
	if err := cephWord("user", c.User); err != nil {
		return err
	}
	if c.Key.secret == nil {
		return fmt.Errorf("there is no key of user %s of the Ceph cluster %s", c.User, c.FSID)
	}
	_, _, err := c.messengers()
	return err
}

// cephWord refuses what would be several words, or options, to the kernel, or more than a name to Ceph.
func cephWord(what, name string) error {
	const most = 253
	odd := func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`,=/@\"'`, r) }
	if name == "" || len(name) > most || strings.HasPrefix(name, "-") || strings.ContainsFunc(name, odd) {
		return fmt.Errorf("%s %q: it must be 1 to %d printable characters without white space and any of , = / @ \\ \" ', and not begin with -", what, shorten(name), most)
	}
	return nil
}

// at is where a cluster should be, for messages.
func (c *Ceph) at() string {
	addresses, _, err := c.messengers()
	if err != nil {
		addresses = c.Monitors
	}
	return strings.Join(addresses, ", ")
}

// answers says whether anything listens where one of the monitors should be, as seen from the calling goroutine's thread.
func (c *Ceph) answers() bool {
	const patience = 2 * time.Second
	addresses, _, _ := c.messengers()
	for _, address := range addresses {
		if conn, err := (&net.Dialer{Timeout: patience}).Dial("tcp", address); err == nil {
			conn.Close()
			return true
		}
	}
	return false
}
