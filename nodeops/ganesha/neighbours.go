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

// The directories in which Ganesha keeps the clients with state, until and during the grace period.
var recoveryTrees = [...]string{"v4recov", "v4old"}

// longestEntry is the maximum length of a directory name; a longer client name is split over nested directories.
const longestEntry = 255

// Neighbours returns the addresses that clients on the host of this pod may have for it: that of the host, and those by
// which pod networks connect the host to its pods, the first address of the network and the network address.
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

// duplicateRecovery prepares the recovery directory for a server that has moved. Ganesha lets a client reclaim only if its
// address and name are unchanged. Clients on the node that the server has left, and on its new node, return with
// another address of their node, so their records are duplicated for all of these addresses.
func duplicateRecovery(dir string, here []netip.Addr) error {
	file := filepath.Join(dir, "neighbours")
	b, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	before, lines := strings.Fields(string(b)), []string(nil)
	for _, a := range here {
		lines = append(lines, formatClient(a))
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
				if err := c.duplicateFor(tree, host); err != nil {
					return err
				}
			}
		}
	}
	return nodeops.ReplaceFile(file, []byte(strings.Join(lines, "\n")+"\n"))
}

// formatClient formats a client address as Ganesha does, which listens on IPv6.
func formatClient(a netip.Addr) string { return netip.AddrFrom16(a.As16()).String() }

// client is a client with state: ADDRESS-(LENGTH:NAME).
type client struct{ address, name string }

// heldBy returns the clients in a recovery directory.
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

// duplicateFor duplicates the record of a client for all addresses of a host, if the client has one of them.
func (c client) duplicateFor(tree string, host []string) error {
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
