package nodeops

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sync/errgroup"
)

// HostAddresses returns the addresses of the network namespace in a directory such as /proc/1/ns, or of this process's
// if that is empty, including those of bridges and tunnels: addresses by which others may see this host. It omits
// interfaces that are down, and link-local addresses.
func HostAddresses(namespaces string) (addresses []netip.Addr, err error) {
	var thread errgroup.Group // it ends with the goroutine
	thread.Go(func() (err error) {
		if err := enterNamespaces(namespaces, "net"); err != nil {
			return err
		}
		addresses, err = upAddresses()
		return err
	})
	if err := thread.Wait(); err != nil {
		return nil, fmt.Errorf("the addresses of this host: %w", err)
	}
	return addresses, nil
}

func upAddresses() (all []netip.Addr, err error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		addresses, err := i.Addrs()
		if err != nil {
			continue // the interface has just been removed
		}
		for _, a := range addresses {
			p, err := netip.ParsePrefix(a.String())
			if err == nil && p.Addr().IsGlobalUnicast() {
				all = append(all, p.Addr().Unmap().WithZone(""))
			}
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all), nil
}
