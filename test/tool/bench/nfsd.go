package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/nodeops"
)

const nfsdPort = nfsPort + 1

// nfsd is the NFS server of the kernel, configured by its file system, as the programs of nfs-utils do it.
type nfsd struct{ files string }

// Flags of an export, as the kernel numbers them: any port of a client, no check of subtrees, and the number 0, which
// makes it the root.
const nfsdExport = 0x2 | 0x400 | 0x2000

// byKernel exports a directory by the server of the kernel, and mounts it at target.
func byKernel(ctx context.Context, scratch, dir, target string, use func() error) (err error) {
	s := nfsd{filepath.Join(scratch, "nfsd")}
	if err := os.Mkdir(s.files, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("nfsd", s.files, "nfsd", 0, ""); err != nil {
		return fmt.Errorf("the kernel has no NFS server: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Unmount(s.files, 0)) }()
	if err := s.start(dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.set("threads", "0")) }()
	mounting, cancel := context.WithTimeout(ctx, nfsStart)
	defer cancel()
	const address = "127.0.0.1"
	if err := nodeops.MountNFS(mounting, nodeops.NFS{Server: address, Address: address, Port: nfsdPort, Path: "/"}, target); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nodeops.Unmount(context.WithoutCancel(ctx), target)) }()
	return use()
}

// start writes what rpc.nfsd and rpc.mountd do: the listening socket, the threads, and the answers to all that the kernel
// would look up.
func (s nfsd) start(dir string) error {
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: nfsdPort})
	if err != nil {
		return err
	}
	defer listener.Close() // the kernel keeps it open
	socket, err := listener.File()
	if err != nil {
		return err
	}
	defer socket.Close()
	expiry := time.Now().Add(24 * time.Hour).Unix()
	return errors.Join(
		s.set("nfsv4gracetime", "10"), // the shortest; the client waits for its end
		s.set("versions", "-2 -3 +4 +4.1 +4.2"),
		s.set("portlist", fmt.Sprint(socket.Fd())),
		s.set("threads", "8"),
		answer("auth.unix.ip", "nfsd 127.0.0.1 %d bench", expiry),
		answer("nfsd.export", "bench %s %d %d 65534 65534 0", dir, expiry, nfsdExport),
		answer("nfsd.fh", `bench 1 \x00000000 %d %s`, expiry, dir),
	)
}

func (s nfsd) set(file, value string) error {
	return os.WriteFile(filepath.Join(s.files, file), []byte(value+"\n"), 0)
}

// answer fills a cache of the kernel. It takes one line at a time, in one write.
func answer(cache, format string, values ...any) error {
	return os.WriteFile(filepath.Join("/proc/net/rpc", cache, "channel"), fmt.Appendf(nil, format+"\n", values...), 0)
}
