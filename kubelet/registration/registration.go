// Package registration registers a CSI driver with the kubelet of its node: the kubelet watches a directory, calls the
// server of each socket in it for its name and endpoint, and reports the result.
package registration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	kubelet "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/holdfast-storage/holdfast/driver"
	"github.com/holdfast-storage/holdfast/listener"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// csiVersion is the version of CSI that the kubelet gets; it accepts any 1.x.
const csiVersion = "1.0.0"

// Config configures a Registration.
type Config struct {
	Directory string // watched by the kubelet, such as /var/lib/kubelet/plugins_registry
	Endpoint  string // unix:///path of the driver; the kubelet must find the socket at the same path
	Log       *slog.Logger
}

// Registration registers one driver.
type Registration struct {
	kubelet.UnimplementedRegistrationServer
	Config
	endpoint string // without the scheme, as the kubelet expects it
	driver   string
	socket   atomic.Pointer[nodeops.Socket]
	status   atomic.Pointer[kubelet.RegistrationStatus] // last reported by the kubelet; nil before
}

// New validates the configuration.
func New(c Config) (*Registration, error) {
	path, err := driver.SocketPath(c.Endpoint)
	switch {
	case err != nil:
		return nil, err
	case !filepath.IsAbs(c.Directory):
		return nil, fmt.Errorf("registration directory %q: it must be absolute, such as /var/lib/kubelet/plugins_registry", c.Directory)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Registration{Config: c, endpoint: path}, nil
}

// Run waits until the driver answers, registers it, and unregisters it when ctx ends.
func (r *Registration) Run(ctx context.Context) error {
	name, err := driverName(ctx, r.endpoint)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("reading the name of the driver at %s: %w", r.endpoint, err)
	}
	r.driver = name
	s, err := nodeops.ListenUnix(ctx, filepath.Join(r.Directory, name+"-reg.sock"))
	if err != nil {
		return fmt.Errorf("registering driver %s with the kubelet: %w", name, err)
	}
	r.socket.Store(s)
	server := listener.GRPC()
	kubelet.RegisterRegistrationServer(server, r)
	stopped := context.AfterFunc(ctx, server.Stop)
	defer stopped()
	r.Log.Info("waiting for the kubelet", "driver", name, "socket", s.Path)
	if err = server.Serve(listener.Limit(s.Listener, listener.SocketConnections)); errors.Is(err, grpc.ErrServerStopped) {
		err = nil // ctx ended first
	}
	return errors.Join(err, s.Remove())
}

// Announced fails if the socket was removed, so that the kubelet has dropped the driver. A restart helps.
func (r *Registration) Announced(context.Context) error {
	if s := r.socket.Load(); s != nil && !s.Ours() {
		return fmt.Errorf("the socket %s was removed, so the kubelet has forgotten the driver; restart it", s.Path)
	}
	return nil
}

// Registered fails until the kubelet has registered the driver. The kubelet retries by itself.
func (r *Registration) Registered(ctx context.Context) error {
	switch status := r.status.Load(); {
	case status == nil:
		return fmt.Errorf("the kubelet has not registered the driver yet; it must watch %s", r.Directory)
	case !status.GetPluginRegistered():
		return fmt.Errorf("the kubelet refused the driver: %s", status.GetError())
	}
	return r.Announced(ctx)
}

// GetInfo is a call of the kubelet's plugin registration.
func (r *Registration) GetInfo(context.Context, *kubelet.InfoRequest) (*kubelet.PluginInfo, error) {
	return &kubelet.PluginInfo{Type: kubelet.CSIPlugin, Name: r.driver, Endpoint: r.endpoint, SupportedVersions: []string{csiVersion}}, nil
}

// NotifyRegistrationStatus is a call of the kubelet's plugin registration.
func (r *Registration) NotifyRegistrationStatus(_ context.Context, status *kubelet.RegistrationStatus) (*kubelet.RegistrationStatusResponse, error) {
	r.status.Store(status)
	if status.GetPluginRegistered() {
		r.Log.Info("registered with the kubelet", "driver", r.driver)
	} else {
		r.Log.Error("the kubelet refused the driver", "driver", r.driver, "reason", status.GetError())
	}
	return &kubelet.RegistrationStatusResponse{}, nil
}

// driverName waits until the driver serves, and returns its name.
func driverName(ctx context.Context, socket string) (string, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), connectSoon)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	info, err := csi.NewIdentityClient(conn).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return "", err
	}
	if name := info.GetName(); name != "" && name == filepath.Base(name) {
		return name, nil
	}
	return "", fmt.Errorf("%q is not a valid driver name", info.GetName())
}
