package nodeops

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// NFSClientError says what a host lacks to mount shared volumes, and what to do.
type NFSClientError struct {
	NoKernel bool // the kernel has no NFS client; otherwise this process may not use it
	lacks    []string
}

func (e *NFSClientError) Error() string { return strings.Join(e.lacks, "; and ") }

// CheckNFSClient returns what this host lacks to mount shared volumes with the namespaces in a directory such as
// /proc/1/ns; nil if nothing. Like a mount, it makes the kernel load its module. No helper program is needed.
func CheckNFSClient(namespaces string) error {
	var thread errgroup.Group // it ends with the goroutine
	thread.Go(func() error { return nfsClient(knowsNFS(), enterNFS(namespaces)) })
	return thread.Wait()
}

// nfsClient combines what is missing.
func nfsClient(kernel, namespaces error) error {
	var lacks []string
	for _, err := range []error{kernel, namespaces} {
		if err != nil {
			lacks = append(lacks, err.Error())
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	return &NFSClientError{NoKernel: errors.Is(kernel, unix.ENODEV), lacks: lacks}
}

// knowsNFS returns whether the kernel has an NFS client.
func knowsNFS() error {
	fd, err := fsopenNFS()
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func fsopenNFS() (int, error) {
	fd, err := unix.Fsopen("nfs4", unix.FSOPEN_CLOEXEC)
	switch {
	case errors.Is(err, unix.ENODEV):
		err = fmt.Errorf("the kernel has no client of NFS 4 and loads none (%w): run modprobe nfsv4 on the host, install the package that has the modules nfs and nfsv4 of its kernel, or use a kernel with CONFIG_NFS_V4_2", err)
	case errors.Is(err, unix.EPERM):
		err = fmt.Errorf("this process may not mount (fsopen: %w): it needs the capability SYS_ADMIN, which a privileged container has", err)
	case errors.Is(err, unix.ENOSYS):
		err = fmt.Errorf("the kernel has no fsopen, or a seccomp profile forbids it (%w): Linux 5.12 or later is needed, and no profile, as in a privileged container", err)
	case err != nil:
		err = fmt.Errorf("fsopen: %w", err)
	}
	return fd, err
}

// enterNFS moves the thread of the calling goroutine, which ends with it, into the namespaces for NFS mounts.
func enterNFS(namespaces string) error { return enterNamespaces(namespaces, "net", "uts") }

// hostForbidden explains why a process may not enter the namespaces of another one.
func hostForbidden(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("this process may not use the network of the host (%w): it needs the capabilities SYS_PTRACE and SYS_ADMIN, and all capabilities of the process in that network; a privileged container has them, unless a security module such as AppArmor, SELinux or Landlock is in between", err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the network of the host is not there (%w): /proc of the host must be mounted where --namespaces says", err)
	}
	return err
}
