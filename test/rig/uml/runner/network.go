package main

import (
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// nic is what the kernel calls the machine's network interface.
const nic = "vec0"

func loopbackUp() error { return onInterface("lo", up) }

// connect gives an address to the machine's network interface, if it has one.
func connect(address string) error {
	if address == "" {
		return nil
	}
	prefix, err := netip.ParsePrefix(address)
	if err != nil {
		return err
	}
	is, mask := prefix.Addr().As4(), net.CIDRMask(prefix.Bits(), 8*len(net.IPv4Mask(0, 0, 0, 0)))
	return onInterface(nic, func(s int, i *unix.Ifreq) error {
		for _, set := range []struct {
			request uint
			value   []byte
		}{{unix.SIOCSIFADDR, is[:]}, {unix.SIOCSIFNETMASK, mask}} {
			if err := i.SetInet4Addr(set.value); err != nil {
				return err
			}
			if err := unix.IoctlIfreq(s, set.request, i); err != nil {
				return err
			}
		}
		return up(s, i)
	})
}

func up(s int, i *unix.Ifreq) error {
	i.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, i)
}

func onInterface(name string, do func(socket int, i *unix.Ifreq) error) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	i, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	return do(s, i)
}
