package registration

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	kubelet "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

const testDriver = "csi.example.org"

type identity struct {
	csi.UnimplementedIdentityServer
	name string
}

func (i identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: i.name}, nil
}

// host is a directory for sockets, with a path of fewer than 108 bytes.
type host struct {
	*testing.T
	dir string
}

func newHost(t *testing.T) host {
	t.Helper()
	dir := check.Got(os.MkdirTemp("", "registration"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return host{t, dir}
}

func (h host) socket() string { return filepath.Join(h.dir, testDriver+"-reg.sock") }

func (h host) isSocketThere(want bool) {
	h.Helper()
	if _, err := os.Lstat(h.socket()); (err == nil) != want {
		h.Errorf("is the socket there? %v; want %t", err, want)
	}
}

func (h host) listen(path string) net.Listener {
	h.Helper()
	l := check.Got(new(net.ListenConfig).Listen(h.Context(), "unix", path))(h)
	h.Cleanup(func() { l.Close() })
	return l
}

// serveDriver starts a driver that serves only its name.
func (h host) serveDriver(name string) {
	h.Helper()
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, identity{name: name})
	l := h.listen(filepath.Join(h.dir, "csi.sock"))
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	h.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			h.Error(err)
		}
	})
}

func (h host) registration() *Registration {
	h.Helper()
	return check.Got(New(Config{Directory: h.dir, Endpoint: "unix://" + filepath.Join(h.dir, "csi.sock")}))(h)
}

// run starts a registration; stop ends it and returns its error.
func (h host) run() (r *Registration, stop func() error) {
	h.Helper()
	r = h.registration()
	ctx, cancel := context.WithCancel(h.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	h.Cleanup(cancel)
	return r, func() error {
		cancel()
		return <-ended
	}
}

// kubelet is a client of the socket, and waits for it to appear.
func (h host) kubelet() kubelet.RegistrationClient {
	h.Helper()
	conn := check.Got(grpc.NewClient("unix://"+h.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()), connectSoon,
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true))))(h)
	h.Cleanup(func() { conn.Close() })
	return kubelet.NewRegistrationClient(conn)
}

func (h host) info(k kubelet.RegistrationClient) *kubelet.PluginInfo {
	h.Helper()
	return check.Got(k.GetInfo(h.Context(), &kubelet.InfoRequest{}))(h)
}

func TestRegistration_DriverIsAnnouncedOnceItServesAndWithdrawnAtTheEnd(t *testing.T) {
	h := newHost(t)
	r, stop := h.run()
	h.isSocketThere(false)
	h.serveDriver(testDriver)
	info := h.info(h.kubelet())
	if info.GetType() != kubelet.CSIPlugin || info.GetName() != testDriver || info.GetEndpoint() != filepath.Join(h.dir, "csi.sock") || len(info.GetSupportedVersions()) != 1 {
		t.Errorf("the kubelet got %v", info)
	}
	check.Report(t, r.Announced(t.Context()))
	says(t, r.Registered(t.Context()), "not registered the driver yet") // before the kubelet said so
	check.Report(t, stop())
	h.isSocketThere(false)
}

func TestRegistration_RefusalIsReportedUntilTheKubeletAccepts(t *testing.T) {
	h := newHost(t)
	h.serveDriver(testDriver)
	r, _ := h.run()
	k := h.kubelet()
	notify := func(status *kubelet.RegistrationStatus) {
		t.Helper()
		check.Got(k.NotifyRegistrationStatus(t.Context(), status))(t)
	}
	notify(&kubelet.RegistrationStatus{Error: "too old"})
	says(t, r.Registered(t.Context()), "too old") // after a refusal
	check.Report(t, r.Announced(t.Context()))     // a restart does not help against a refusal
	notify(&kubelet.RegistrationStatus{PluginRegistered: true})
	check.Report(t, r.Registered(t.Context())) // after an acceptance
}

func TestSocket_RemovedIsReportedAndItsSuccessorLeftAlone(t *testing.T) {
	h := newHost(t)
	h.serveDriver(testDriver)
	r, stop := h.run()
	check.Got(h.kubelet().NotifyRegistrationStatus(t.Context(), &kubelet.RegistrationStatus{PluginRegistered: true}))(t)
	check.OK(t, os.Remove(h.socket()))
	says(t, r.Announced(t.Context()), h.socket())
	says(t, r.Registered(t.Context()), h.socket())
	h.listen(h.socket())
	check.Report(t, stop())
	h.isSocketThere(true)
}

func TestSocket_StaleIsReplaced(t *testing.T) {
	h := newHost(t)
	l := h.listen(h.socket())
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	h.serveDriver(testDriver)
	h.run()
	h.info(h.kubelet())
}

func TestSocket_OtherFileIsLeftAlone(t *testing.T) {
	for name, put := range map[string]func(host){
		"not a socket":    func(h host) { check.OK(h, os.WriteFile(h.socket(), nil, 0o600)) },
		"someone answers": func(h host) { h.listen(h.socket()) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.serveDriver(testDriver)
			put(h)
			says(t, h.registration().Run(t.Context()), name)
			h.isSocketThere(true)
		})
	}
}

func TestName_OfADriverCannotLeaveTheDirectory(t *testing.T) {
	for _, name := range []string{"", "../x", "a/b"} {
		h := newHost(t)
		h.serveDriver(name)
		says(t, h.registration().Run(t.Context()), "is not a valid driver name")
	}
}

func TestConfig_InvalidIsRefused(t *testing.T) {
	for _, c := range []Config{
		{Directory: "/r", Endpoint: "tcp://1.2.3.4:5"},
		{Directory: "/r", Endpoint: "unix:"},
		{Directory: "relative", Endpoint: "unix:///a/csi.sock"},
		{Endpoint: "unix:///a/csi.sock"},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}

// says fails unless there is an error with that word in it.
func says(t testing.TB, err error, word string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), word) {
		t.Errorf("got %v, want %q in it", err, word)
	}
}
