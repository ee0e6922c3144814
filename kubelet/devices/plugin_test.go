package devices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

	"github.com/holdfast-storage/holdfast/agent/policy"
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
	dir := check.Got(os.MkdirTemp("", "holdfast-devices-"))(t) // socket paths are limited to 107 bytes
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &rig{T: t, guard: &guard{}}
	c := Config{Directory: dir, Sets: sets, PerSet: perSet, First: first, Guard: r.guard, Log: slog.New(slog.DiscardHandler)}
	r.plugin = check.Got(New(c))(t)
	t.Cleanup(func() { removeLoops(t, sets*perSet) })
	r.run()
	return r
}

// run starts the plugin and connects to it as a kubelet does.
func (r *rig) run() {
	r.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { check.Report(r, r.plugin.Run(ctx)) })
	r.stop = sync.OnceFunc(func() { cancel(); done.Wait() })
	r.Cleanup(r.stop)
	conn := r.dial(filepath.Join(r.plugin.Directory, "holdfast.dev-loop-set-reg.sock"))
	r.registry = registration.NewRegistrationClient(conn)
	r.info = check.Got(r.registry.GetInfo(r.Context(), &registration.InfoRequest{}, grpc.WaitForReady(true)))(r)
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
	says(t, r.plugin.Registered(t.Context()), "not registered the loop devices yet")
}

func TestPlugin_RunsOnceAndLeavesNoSocket(t *testing.T) {
	r := newRig(t, 1, 3)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // ends the test if the call is not refused
	defer cancel()
	says(t, r.plugin.Run(ctx), "already")
	r.stop()
	if _, err := os.Lstat(r.info.GetEndpoint()); !os.IsNotExist(err) {
		t.Errorf("its socket is left: %v", err)
	}
}

func TestPlugin_LendsASetWithItsNodesAndTheirNames(t *testing.T) {
	hostfs.RequireRoot(t)
	r := newRig(t, 2, 3)
	if got := Allocated(""); len(got) != 0 {
		t.Errorf("without the variable, lent is %q", got)
	}
	lent := check.Got(r.allocate("set-1"))(t)
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
	_, err := r.allocate("set-0")
	says(t, err, "in use by other programs")
	says(t, err, devices[0])
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
	expect := r.watch()
	for _, healthy := range []bool{was, !was, was} {
		r.plugin.health.set(healthy)
		expect(healthy)
	}
}

// watch follows the reports to the kubelet; the function expects the next one.
func (r *rig) watch() (expect func(healthy bool)) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	r.Cleanup(cancel)
	stream := check.Got(r.lender.ListAndWatch(ctx, &kubelet.Empty{}))(r)
	return func(healthy bool) {
		r.Helper()
		word := map[bool]string{true: kubelet.Healthy, false: kubelet.Unhealthy}[healthy]
		var want, got []string
		for i := range r.plugin.config.Sets {
			want = append(want, fmt.Sprintf("set-%d %s", i, word))
		}
		for _, d := range check.Got(stream.Recv())(r).GetDevices() {
			got = append(got, d.GetID()+" "+d.GetHealth())
		}
		if !slices.Equal(got, want) {
			r.Errorf("reported are %v, want %v", got, want)
		}
	}
}

func TestPlugin_HealthFollowsTheControlDevice(t *testing.T) {
	control := filepath.Join(t.TempDir(), "loop-control")
	h := newHealth(control)
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { check.Report(t, h.watch(ctx, slog.New(slog.DiscardHandler))) })
	defer done.Wait()
	defer cancel()
	late := time.After(time.Minute)
	for _, healthy := range []bool{true, false, true} {
		_, changed := h.now()
		check.OK(t, os.WriteFile(filepath.Join(filepath.Dir(control), "other"), nil, 0o600))
		if healthy {
			check.OK(t, os.WriteFile(control, nil, 0o600))
		} else {
			check.OK(t, os.Remove(control))
		}
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

// guard is a Guard that a test opens and closes.
type guard struct{ policy.Verdict }

func (g *guard) Refusal() (changed <-chan struct{}, why error) { return g.Now() }

func TestPlugin_LendsNothingThatTheGuardRefusesAndUpdatesTheKubelet(t *testing.T) {
	hostfs.RequireRoot(t)
	r := newRig(t, 1, 3)
	if healthy, _ := r.plugin.health.now(); !healthy {
		t.Fatal("no loop devices can be made here")
	}
	expect := r.watch()
	expect(true)
	r.guard.Set(errors.New("no policy"))
	expect(false)
	_, err := r.allocate("set-0")
	says(t, err, "no policy")
	r.guard.Set(nil)
	expect(true)
	check.Got(r.allocate("set-0"))(t)
}

func TestPlugin_WithoutAGuardLendsNothing(t *testing.T) {
	p := check.Got(New(Config{Directory: t.TempDir()}))(t)
	_, err := p.Allocate(t.Context(), &kubelet.AllocateRequest{ContainerRequests: []*kubelet.ContainerAllocateRequest{{DevicesIds: []string{"set-0"}}}})
	if !errors.Is(err, ErrNoGuard) {
		t.Errorf("it says %v", err)
	}
}

// says fails unless there is an error with that word in it.
func says(t testing.TB, err error, word string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), word) {
		t.Errorf("got %v, want %q in it", err, word)
	}
}
