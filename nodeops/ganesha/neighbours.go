package ganesha

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-storage/holdfast/nodeops"
)

// Where Ganesha keeps who held what, until and during the grace after a start.
var recoveryTrees = [...]string{"v4recov", "v4old"}

// longestEntry is that of one directory. A longer client is a directory in a directory.
const longestEntry = 255

// Neighbours returns the addresses from which clients on the host of this pod may be seen in it: that of the host, and
// those by which networks of pods reach their own, the first of the network and that of the network itself.
func Neighbours(host netip.Addr) ([]netip.Addr, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("the networks of this pod: %w", err)
	}
	all, err := neighbours(host, addresses)
	if err != nil {
		return nil, fmt.Errorf("the networks of this pod: %w", err)
	}
	return all, nil
}

func neighbours(host netip.Addr, addresses []net.Addr) ([]netip.Addr, error) {
	all := []netip.Addr{host.Unmap()}
	for _, a := range addresses {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			return nil, err
		}
		if p.Addr().IsGlobalUnicast() && !p.IsSingleIP() {
			network := p.Masked().Addr()
			all = append(all, network, network.Next())
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all), nil
}

// welcome prepares for the clients of a server that has moved. Ganesha gives files and locks back to those that have the
// address and the name of before. Clients on the host that the server has left, and on that where it is now, come back
// with another of the addresses of their host; so what they held is kept for each of them.
func welcome(dir string, here []netip.Addr) error {
	file := filepath.Join(dir, "neighbours")
	b, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	before, lines := strings.Fields(string(b)), []string(nil)
	for _, a := range here {
		lines = append(lines, recorded(a))
	}
	if slices.Equal(before, lines) {
		return nil
	}
	for _, tree := range recoveryTrees {
		tree := filepath.Join(dir, tree)
		clients, err := heldBy(tree)
		if err != nil {
			return err
		}
		for _, c := range clients {
			for _, host := range [][]string{before, lines} {
				if err := c.alsoFrom(tree, host); err != nil {
					return err
				}
			}
		}
	}
	return nodeops.ReplaceFile(file, []byte(strings.Join(lines, "\n")+"\n"))
}

// recorded is how Ganesha, which listens with IPv6, writes the address of a client.
func recorded(a netip.Addr) string { return netip.AddrFrom16(a.As16()).String() }

// client is one that held something: ADDRESS-(LENGTH:NAME).
type client struct{ address, name string }

// heldBy lists the clients of a tree.
func heldBy(tree string) (clients []client, err error) {
	err = filepath.WalkDir(tree, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		below, err := os.ReadDir(path)
		if err != nil || slices.ContainsFunc(below, fs.DirEntry.IsDir) {
			return err
		}
		whole := strings.ReplaceAll(strings.TrimPrefix(path, tree), "/", "")
		if address, name, ok := strings.Cut(whole, "-("); ok {
			clients = append(clients, client{address, name})
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) { // before the first start
		err = nil
	}
	return clients, err
}

// alsoFrom keeps what a client held for all addresses of a host, if it is on this one.
func (c client) alsoFrom(tree string, host []string) error {
	if !slices.Contains(host, c.address) {
		return nil
	}
	for _, address := range host {
		path, rest := tree, address+"-("+c.name
		for len(rest) > longestEntry {
			path, rest = filepath.Join(path, rest[:longestEntry]), rest[longestEntry:]
		}
		if err := os.MkdirAll(filepath.Join(path, rest), 0o700); err != nil {
			return err
		}
	}
	return nil
}
