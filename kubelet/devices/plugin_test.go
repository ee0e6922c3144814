package devices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// first is the number of the first device that the tests allocate: nothing else on a host uses such high numbers.
const first = nodeops.FirstReservedLoop + nodeops.ReservedLoops - 256

// rig is a plugin with the connections of a kubelet.
type rig struct {
	*testing.T
	plugin   *Plugin
	guard    *guard
	stop     func()
	info     *registration.PluginInfo
	registry registration.RegistrationClient
	lender   kubelet.DevicePluginClient
}

func newRig(t *testing.T, sets, perSet int) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "holdfast-devices-") // socket paths are limited to 107 bytes
	check.OK(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &rig{T: t, guard: &guard{}}
	if r.plugin, err = New(Config{Directory: dir, Sets: sets, PerSet: perSet, First: first, Guard: r.guard, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeLoops(t, sets*perSet) })
	r.run()
	return r
}

// run starts the plugin and connects to it as a kubelet does.
func (r *rig) run() {
	r.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		check.Report(r, r.plugin.Run(ctx))
	})
	r.stop = sync.OnceFunc(func() { cancel(); done.Wait() })
	r.Cleanup(r.stop)
	conn := r.dial(filepath.Join(r.plugin.Directory, "holdfast.dev-loop-set-reg.sock"))
	r.registry = registration.NewRegistrationClient(conn)
	var err error
	if r.info, err = r.registry.GetInfo(r.Context(), &registration.InfoRequest{}, grpc.WaitForReady(true)); err != nil {
		r.Fatal(err)
	}
	r.lender = kubelet.NewDevicePluginClient(r.dial(r.info.GetEndpoint()))
}

func (r *rig) dial(path string) *grpc.ClientConn {
	r.Helper()
	conn := check.Got(grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials())))(r)
	r.Cleanup(func() { conn.Close() })
	return conn
}

func (r *rig) allocate(sets ...string) (*kubelet.ContainerAllocateResponse, error) {
	r.Helper()
	answer, err := r.lender.Allocate(r.Context(), &kubelet.AllocateRequest{ContainerRequests: []*kubelet.ContainerAllocateRequest{{DevicesIds: sets}}})
	if err != nil {
		return nil, err
	}
	if len(answer.GetContainerResponses()) != 1 {
		r.Fatalf("%d answers for one container", len(answer.GetContainerResponses()))
	}
	return answer.GetContainerResponses()[0], nil
}

func removeLoops(t *testing.T, count int) {
	if os.Geteuid() != 0 {
		return
	}
	control := check.Got(os.OpenFile("/dev/loop-control", os.O_RDWR, 0))(t)
	defer control.Close()
	for i := range count {
		if err := unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_REMOVE, first+i); err != nil && !errors.Is(err, unix.ENODEV) {
			t.Errorf("removing loop%d: %v", first+i, err)
		}
	}
}

func paths(from, count int) (all []string) {
	for i := range count {
		all = append(all, fmt.Sprintf("/dev/loop%d", first+from+i))
	}
	return all
}

func TestPlugin_IsFoundByTheKubeletUnderThatName(t *testing.T) {
	r := newRig(t, 2, 3)
	if r.info.GetType() != registration.DevicePlugin || r.info.GetName() != Resource || !slices.Equal(r.info.GetSupportedVersions(), []string{"v1beta1"}) {
		t.Errorf("it is %+v", r.info)
	}
	check.Report(t, r.plugin.Announced(t.Context()))
	if err := r.plugin.Registered(t.Context()); err == nil || !strings.Contains(err.Error(), "not registered the loop devices yet") {
		t.Errorf("before the kubelet said so: %v", err)
	}
	for _, refusal := range []string{"name is taken", ""} {
		_, err := r.registry.NotifyRegistrationStatus(t.Context(), &registration.RegistrationStatus{PluginRegistered: refusal == "", Error: refusal})
		check.OK(t, err)
		if err := r.plugin.Announced(t.Context()); err != nil {
			t.Errorf("a restart does not help against a refusal: %v", err)
		}
		err = r.plugin.Registered(t.Context())
		if refused := err != nil && strings.Contains(err.Error(), refusal); refused != (refusal != "") {
			t.Errorf("refused with %q: %v", refusal, err)
		}
	}
	check.OK(t, os.Remove(r.info.GetEndpoint()))
	for name, awaits := range map[string]func(context.Context) error{"announced": r.plugin.Announced, "registered": r.plugin.Registered} {
		if err := awaits(t.Context()); err == nil || !strings.Contains(err.Error(), "removed") {
			t.Errorf("%s without its socket: %v", name, err)
		}
	}
}

func TestPlugin_LendsASetWithItsNodesAndTheirNames(t *testing.T) {
	hostfs.RequireRoot(t)
	r := newRig(t, 2, 3)
	lent, err := r.allocate("set-1")
	check.OK(t, err)
	want := paths(3, 3)
	if got := Allocated(lent.GetEnvs()[Variable]); !slices.Equal(got, want) {
		t.Errorf("lent are %v, want %v", got, want)
	}
	for i, d := range lent.GetDevices() {
		if d.GetHostPath() != want[i] || d.GetContainerPath() != want[i] || d.GetPermissions() != "rw" {
			t.Errorf("device %d is %+v", i, d)
		}
		if info, err := os.Stat(d.GetHostPath()); err != nil || info.Mode()&os.ModeDevice == 0 {
			t.Errorf("%s is %v, %v", d.GetHostPath(), info, err)
		}
	}
	both, err := r.allocate("set-0", "set-1")
	if err != nil || len(both.GetDevices()) != 6 || len(Allocated(both.GetEnvs()[Variable])) != 6 {
		t.Errorf("two sets are %+v, %v", both, err)
	}
}

func TestEnvironment_WithoutTheVariableNothingWasLent(t *testing.T) {
	if got := Allocated(""); len(got) != 0 {
		t.Errorf("lent was %q", got)
	}
}

func TestAllocate_WhatAPodLeftIsReclaimedAndWhatIsOpenIsNotLent(t *testing.T) {
	hostfs.RequireRoot(t)
	r := newRig(t, 1, 3)
	check.Got(r.allocate("set-0"))(t)
	devices := paths(0, 3)
	left, theirs := image(t), image(t)
	l := check.Got(nodeops.AttachLoop(t.Context(), left, nodeops.LoopOptions{Among: devices[:1]}))(t)
	l.Close()
	attachByHand(t, devices[1], theirs)
	holdOpen(t, devices[1])
	lent := check.Got(r.allocate("set-0"))(t)
	if got, want := Allocated(lent.GetEnvs()[Variable]), []string{devices[0], devices[2]}; !slices.Equal(got, want) || len(lent.GetDevices()) != 2 {
		t.Errorf("lent are %v with %d nodes, want %v", got, len(lent.GetDevices()), want)
	}
	if file, err := nodeops.BackingFile(devices[1]); err != nil || file != theirs {
		t.Errorf("what another program attached is at %s, %v", file, err)
	}
	for _, device := range []string{devices[0], devices[2]} {
		attachByHand(t, device, image(t))
		holdOpen(t, device)
	}
	if _, err := r.allocate("set-0"); err == nil || !strings.Contains(err.Error(), "in use by other programs") || !strings.Contains(err.Error(), devices[0]) {
		t.Errorf("a set that others took: %v", err)
	}
}

// holdOpen keeps a device open until the test ends, as a process that was not allocated it.
func holdOpen(t *testing.T, device string) {
	t.Helper()
	f := check.Got(os.Open(device))(t)
	t.Cleanup(func() { f.Close() })
}

func image(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image")
	check.OK(t, os.WriteFile(path, make([]byte, 1<<20), 0o600))
	t.Cleanup(func() {
		devices, err := nodeops.LoopsOf(path)
		check.Report(t, err)
		hostfs.DetachAll(t, devices)
	})
	return path
}

// attachByHand attaches a file to a device that the process was not allocated, as another program does.
func attachByHand(t *testing.T, device, image string) {
	t.Helper()
	file := check.Got(os.OpenFile(image, os.O_RDWR, 0))(t)
	defer file.Close()
	loop := check.Got(os.OpenFile(device, os.O_RDWR, 0))(t)
	defer loop.Close()
	check.OK(t, unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_SET_FD, int(file.Fd())))
}

func TestPlugin_MissingSetIsNotLent(t *testing.T) {
	r := newRig(t, 2, 3)
	for _, name := range []string{"", "set-", "set-2", "set--1", "set-01", "set-1 ", "1", "../set-1", "set-99999999999999999999"} {
		if _, err := r.allocate(name); err == nil || !strings.Contains(err.Error(), "set-0 to set-1") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestPlugin_ReportsSetsAndTheirHealthToTheKubelet(t *testing.T) {
	r := newRig(t, 2, 3)
	was, _ := r.plugin.health.now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream := check.Got(r.lender.ListAndWatch(ctx, &kubelet.Empty{}))(t)
	for _, healthy := range []bool{was, !was, was} {
		r.plugin.health.set(healthy)
		answer := check.Got(stream.Recv())(t)
		word := map[bool]string{true: kubelet.Healthy, false: kubelet.Unhealthy}[healthy]
		var got []string
		for _, d := range answer.GetDevices() {
			got = append(got, d.GetID()+" "+d.GetHealth())
		}
		if want := []string{"set-0 " + word, "set-1 " + word}; !slices.Equal(got, want) {
			t.Errorf("reported are %v, want %v", got, want)
		}
	}
}

func TestPlugin_HealthFollowsTheControlDevice(t *testing.T) {
	control := filepath.Join(t.TempDir(), "loop-control")
	h := newHealth(control)
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		check.Report(t, h.watch(ctx, slog.New(slog.DiscardHandler)))
	})
	defer done.Wait()
	defer cancel()
	late := time.After(time.Minute)
	for _, healthy := range []bool{true, false, true} {
		_, changed := h.now()
		check.OK(t, os.WriteFile(filepath.Join(filepath.Dir(control), "other"), nil, 0o600))
		var err error
		if healthy {
			err = os.WriteFile(control, nil, 0o600)
		} else {
			err = os.Remove(control)
		}
		check.OK(t, err)
		select {
		case <-changed:
		case <-late:
			t.Fatalf("no report says that it is healthy: %t", healthy)
		}
		if now, _ := h.now(); now != healthy {
			t.Errorf("it is healthy: %t, want %t", now, healthy)
		}
	}
}

func TestPlugin_ReplacesAStaleSocketAndNothingElse(t *testing.T) {
	r := newRig(t, 1, 3)
	path := r.info.GetEndpoint()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // ends the test if the call is not refused
	defer cancel()
	if err := r.plugin.Run(ctx); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("beside one that runs: %v", err)
	}
	r.stop()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("its socket is left: %v", err)
	}
	l := check.Got(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))(t)
	l.SetUnlinkOnClose(false)
	l.Close()
	r.run()
	r.stop()
	check.OK(t, os.WriteFile(path, []byte("data"), 0o600))
	if err := r.plugin.Run(ctx); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("over a file: %v", err)
	}
}

func TestConfig_InvalidIsRefused(t *testing.T) {
	for name, c := range map[string]Config{
		"no directory":       {},
		"relative directory": {Directory: "plugins"},
		"negative":           {Directory: "/a", Sets: -1},
		"too many":           {Directory: "/a", Sets: 17, PerSet: 256},
		"huge":               {Directory: "/a", Sets: 1 << 40, PerSet: 1 << 40},
		"others' devices":    {Directory: "/a", First: 8},
		"beyond the end":     {Directory: "/a", First: nodeops.FirstReservedLoop + nodeops.ReservedLoops - 1},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: it was accepted", name)
		}
	}
	if p, err := New(Config{Directory: "/a"}); err != nil || p.config.Sets != 8 || p.config.PerSet != 256 || p.config.First != nodeops.FirstReservedLoop {
		t.Errorf("the defaults are %+v, %v", p, err)
	}
}
