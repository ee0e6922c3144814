//go:build ceph

// Package ceph tests the node side of volumes in a Ceph cluster: the kernel's clients of RBD and CephFS, without any Ceph
// program on the node. The cluster is a real one on this machine, and the node a second kernel, which has the clients.
package ceph

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/csisanity"
)

// guestVariable says to this program that it runs on the second kernel.
const guestVariable = "HOLDFAST_CEPH_GUEST"

const apartVariable = "HOLDFAST_CEPH_APART"

// The tests run in a network of their own, which the cluster and the second kernel share: its addresses meet no others,
// and it ends with the last process in it, whatever becomes of that.
func TestMain(m *testing.M) {
	if code, requested := csisanity.Requested(); requested {
		os.Exit(code)
	}
	if os.Getenv(guestVariable) != "" || os.Getenv(apartVariable) != "" || os.Geteuid() != 0 {
		os.Exit(m.Run())
	}
	runtime.LockOSThread() // the signal comes when the thread ends that has started the process
	again := exec.Command("/proc/self/exe", os.Args[1:]...)
	again.Env = append(os.Environ(), apartVariable+"=1")
	again.Stdin, again.Stdout, again.Stderr = os.Stdin, os.Stdout, os.Stderr
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err := again.Run()
	if ended, is := errors.AsType[*exec.ExitError](err); is {
		os.Exit(ended.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
