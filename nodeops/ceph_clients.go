package nodeops

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// IsCephClientGone says whether the kernel has a client of a cluster no more: nothing can be written through it then. In
// doubt it is there. One whose address is known without debugfs is of RBD, which shows it in sysfs.
func IsCephClientGone(c CephClient) (bool, error) {
	devices, err := RBDDevices()
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(devices, func(d RBDDevice) bool { return d.Client.FSID == c.FSID && d.Client.ID == c.ID }) {
		return false, nil
	}
	dir, err := openDebugFS("ceph")
	switch {
	case err == nil:
		defer dir.Close()
		names, err := dir.Readdirnames(-1)
		return err == nil && !slices.Contains(names, debugName(c)), err
	case errors.Is(err, fs.ErrNotExist): // no module has made it
		return true, nil
	case !errors.Is(err, unix.ENODEV):
		return false, err
	case c.Address != "":
		return true, nil
	}
	users, err := os.ReadFile("/sys/module/ceph/refcnt") // each mount is one; it has none where the client is part of the kernel
	_, missing := os.Stat("/sys/module/ceph")
	return err == nil && strings.TrimSpace(string(users)) == "0" || errors.Is(missing, fs.ErrNotExist), nil
}

// debugName is the directory of a client in debugfs.
func debugName(c CephClient) string { return c.FSID + "." + strings.Replace(c.ID, ".", "", 1) }

// cephFSAddress finds the address of a client of CephFS, which the kernel shows in debugfs only. It is empty where the kernel
// has none, shows it to no process, or is older than Linux 5.11: the volume can be used even so, and its node not be shut out.
func cephFSAddress(c CephClient) string {
	f, err := openDebugFS("ceph/" + debugName(c) + "/status")
	if err != nil {
		return ""
	}
	defer f.Close()
	const most = 4 << 10
	text, _ := io.ReadAll(io.LimitReader(f, most)) // what is missing is not found below
	return addressInStatus(text, c)
}

// addressInStatus reads a line such as "instance: client.4305 (1)10.0.0.5:0/1148", where (1) is the type of the address.
func addressInStatus(text []byte, c CephClient) string {
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 3 && words[0] == "instance:" && words[1] == c.ID {
			_, address, _ := strings.Cut(words[2], ")")
			return address
		}
	}
	return ""
}

// openDebugFS opens a file of debugfs, wherever that is mounted, or not. It fails with ENODEV where the kernel has none.
func openDebugFS(path string) (*os.File, error) {
	context, err := unix.Fsopen("debugfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(context)
	if err := unix.FsconfigCreate(context); err != nil {
		return nil, os.NewSyscallError("fsconfig", err)
	}
	mount, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fsmount", err)
	}
	defer unix.Close(mount)
	fd, err := unix.Openat(mount, path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "debugfs:" + path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// ReleaseCephClient unmaps the devices of a client that its cluster has shut out, so that the kernel forgets the client.
// Whatever has one open gets errors already. A device with a mounted file system is left to who unmounts that, and one whose
// node is bound for a pod to who takes it from the pod: the next device gets its number, and would be reached by that node.
func ReleaseCephClient(ctx context.Context, c CephClient) error {
	devices, err := RBDDevices()
	if err != nil {
		return err
	}
	mounts, err := Mounts()
	if err != nil {
		return err
	}
	var errs []error
	for i := range devices {
		d := &devices[i]
		isIts := d.Client.FSID == c.FSID && d.Client.ID == c.ID
		if isIts && !slices.ContainsFunc(mounts, MayUse(d.Path)) {
			errs = append(errs, forceUnmapRBD(ctx, d))
		}
	}
	return errors.Join(errs...)
}
