// Package registration registers a CSI driver with the kubelet of its node.
package registration

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	kubelet "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/holdfast-storage/holdfast/driver"
	"github.com/holdfast-storage/holdfast/kubelet/plugin"
	"github.com/holdfast-storage/holdfast/listener"
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
	plugin.Plugin
	endpoint string // without the scheme, as the kubelet expects it
	driver   string
}

// New validates the configuration.
func New(c Config) (*Registration, error) {
	path, err := driver.SocketPath(c.Endpoint)
	if err != nil {
		return nil, err
	}
	r := &Registration{Plugin: plugin.Plugin{What: "the driver", Directory: c.Directory, Log: c.Log}, endpoint: path}
	if err := r.Check(); err != nil {
		return nil, err
	}
	return r, nil
}

// Run waits until the driver answers, registers it, and unregisters it when ctx ends.
func (r *Registration) Run(ctx context.Context) error {
	name, err := driverName(ctx, r.endpoint)
	switch {
	case ctx.Err() != nil:
		return nil //nolint:nilerr // the process ends
	case err != nil:
		return fmt.Errorf("reading the name of the driver at %s: %w", r.endpoint, err)
	}
	r.driver = name
	s, err := r.Listen(ctx, name)
	if err != nil {
		return err
	}
	server := listener.GRPC()
	kubelet.RegisterRegistrationServer(server, r)
	r.Log.Info("waiting for the kubelet", "driver", name, "socket", s.Path)
	return r.Serve(ctx, server)
}

// GetInfo is a call of the kubelet's plugin registration.
func (r *Registration) GetInfo(context.Context, *kubelet.InfoRequest) (*kubelet.PluginInfo, error) {
	return &kubelet.PluginInfo{Type: kubelet.CSIPlugin, Name: r.driver, Endpoint: r.endpoint, SupportedVersions: []string{csiVersion}}, nil
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
