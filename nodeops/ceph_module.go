package nodeops

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// CephClientError says that the kernel of this host lacks a client of Ceph.
type CephClientError struct {
	Module string // of the kernel that is missing: rbd, ceph or libceph
	err    error
}

func (e *CephClientError) Error() string {
	return fmt.Sprintf("the kernel has no module %s and loads none (%v): run modprobe %[1]s on the host, install the package that has it for its kernel, or use a kernel with %[3]s",
		e.Module, e.err, map[string]string{"rbd": "CONFIG_BLK_DEV_RBD", "ceph": "CONFIG_CEPH_FS", "libceph": "CONFIG_CEPH_LIB"}[e.Module])
}

func (e *CephClientError) Unwrap() error { return e.err }

// CheckRBDClient says what this host lacks to use images of Ceph clusters, nil if nothing. As the use of one does, it has
// the kernel load its module.
func CheckRBDClient() error {
	if _, err := os.Stat(rbdBus); err == nil {
		return nil
	}
	failed := loadModule("rbd")
	if _, err := os.Stat(rbdBus); err != nil {
		return &CephClientError{Module: "rbd", err: errors.Join(failed, err)}
	}
	return nil
}

// loadModule has the kernel run its modprobe, which finds the modules of the host wherever this process is: requested to show a
// network interface that it does not know, it looks for a module of that name. What a mount needs it loads by itself, but
// no caller asks for a bus.
func loadModule(name string) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(s)
	ask, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	err = unix.IoctlIfreq(s, unix.SIOCGIFFLAGS, ask)
	if errors.Is(err, unix.ENODEV) { // there is no such interface, as there should not be
		return nil
	}
	return err
}

// CheckCephFSClient says what this host lacks to mount file systems of Ceph clusters, nil if nothing. As a mount does, it
// has the kernel load its module.
func CheckCephFSClient() error {
	fd, err := fsopenCeph()
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func fsopenCeph() (int, error) {
	fd, err := unix.Fsopen("ceph", unix.FSOPEN_CLOEXEC)
	switch {
	case errors.Is(err, unix.ENODEV):
		return -1, &CephClientError{Module: "ceph", err: err}
	case errors.Is(err, unix.EPERM):
		return -1, fmt.Errorf("this process may not mount (fsopen: %w): it needs the capability SYS_ADMIN, which a privileged container has", err)
	case err != nil:
		return -1, fmt.Errorf("fsopen of a ceph: %w; Linux 5.12 or later is needed", err)
	}
	return fd, nil
}
