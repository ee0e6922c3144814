//go:build ceph

package cephfs

/*
#cgo LDFLAGS: -lcephfs
#cgo CPPFLAGS: -D_FILE_OFFSET_BITS=64
#include <stdlib.h>
#include <cephfs/libcephfs.h>
*/
import "C"

import (
	"fmt"
	"syscall"
	"unsafe"

	"github.com/ceph/go-ceph/cephfs"
)

// reclaim ends the client that has this id, alive or dead, and takes the id for m, which is initialised and not mounted.
// From then on the other client can write nothing any more. Without this, what a killed one held would block others for a
// minute. go-ceph has no call for it, and does not lend its handle: MountInfo has that one field.
func reclaim(m *cephfs.MountInfo, id string) error {
	handle := *(**C.struct_ceph_mount_info)(unsafe.Pointer(m))
	text := C.CString(id)
	defer C.free(unsafe.Pointer(text))
	r := syscall.Errno(-C.ceph_start_reclaim(handle, text, C.CEPH_RECLAIM_RESET))
	C.ceph_finish_reclaim(handle)
	if r != 0 && r != syscall.ENOENT && r != syscall.EOPNOTSUPP {
		return fmt.Errorf("taking the place of the client %s: %w", id, r)
	}
	C.ceph_set_uuid(handle, text)
	return nil
}
