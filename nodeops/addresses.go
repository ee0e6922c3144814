package nodeops

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// HostAddresses returns the addresses of the network of a directory such as /proc/1/ns, of this process's if that is
// empty: those by which others may see this host, of its bridges and tunnels too. Interfaces that are down have none, and
// addresses that mean something on one link only are left out.
func HostAddresses(namespaces string) ([]netip.Addr, error) {
	type result struct {
		addresses []netip.Addr
		err       error
	}
	done := make(chan result, 1)
	go func() { // its thread ends with it
		err := enterNamespaces(namespaces, "net")
		if err != nil {
			done <- result{err: err}
			return
		}
		addresses, err := upAddresses()
		done <- result{addresses, err}
	}()
	r := <-done
	if r.err != nil {
		return nil, fmt.Errorf("the addresses of this host: %w", r.err)
	}
	return r.addresses, nil
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
			continue // it has just gone
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
