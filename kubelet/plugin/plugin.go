// Package plugin registers a plugin with the kubelet of its node: the kubelet watches a directory, calls the server of
// each socket in it for what it is, and reports the result.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"

	"google.golang.org/grpc"
	kubelet "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/holdfast-storage/holdfast/listener"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// Plugin is the part of a plugin's server that all plugins share. The rest is GetInfo, which the kubelet calls first.
type Plugin struct {
	kubelet.UnimplementedRegistrationServer
	What      string // the plugin, in messages
	Directory string // watched by the kubelet, such as /var/lib/kubelet/plugins_registry
	Log       *slog.Logger
	socket    atomic.Pointer[nodeops.Socket]
	status    atomic.Pointer[kubelet.RegistrationStatus] // last reported by the kubelet; nil before
}

// Check validates the directory, and sets a logger if there is none.
func (p *Plugin) Check() error {
	if !filepath.IsAbs(p.Directory) {
		return fmt.Errorf("registration directory %q: it must be absolute, such as /var/lib/kubelet/plugins_registry", p.Directory)
	}
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Listen creates the socket NAME-reg.sock.
func (p *Plugin) Listen(ctx context.Context, name string) (*nodeops.Socket, error) {
	s, err := nodeops.ListenUnix(ctx, filepath.Join(p.Directory, name+"-reg.sock"))
	if err != nil {
		return nil, fmt.Errorf("registering %s with the kubelet: %w", p.What, err)
	}
	p.socket.Store(s)
	return s, nil
}

// Path is that of the socket.
func (p *Plugin) Path() string { return p.socket.Load().Path }

// Serve serves the socket until ctx ends, and removes it.
func (p *Plugin) Serve(ctx context.Context, server *grpc.Server) error {
	stopped := context.AfterFunc(ctx, server.Stop)
	defer stopped()
	s := p.socket.Load()
	err := server.Serve(listener.Limit(s.Listener, listener.SocketConnections))
	if errors.Is(err, grpc.ErrServerStopped) {
		err = nil // ctx ended first
	}
	return errors.Join(err, s.Remove())
}

// Announced fails if the socket was removed, so that the kubelet has dropped the plugin. A restart helps.
func (p *Plugin) Announced(context.Context) error {
	if s := p.socket.Load(); s != nil && !s.Ours() {
		return fmt.Errorf("the socket %s was removed, so the kubelet has forgotten %s; restart the process", s.Path, p.What)
	}
	return nil
}

// Registered fails until the kubelet has registered the plugin. The kubelet retries by itself.
func (p *Plugin) Registered(ctx context.Context) error {
	switch status := p.status.Load(); {
	case status == nil:
		return fmt.Errorf("the kubelet has not registered %s yet; it must watch %s", p.What, p.Directory)
	case !status.GetPluginRegistered():
		return fmt.Errorf("the kubelet refused %s: %s", p.What, status.GetError())
	}
	return p.Announced(ctx)
}

// NotifyRegistrationStatus is a call of the kubelet's plugin registration.
func (p *Plugin) NotifyRegistrationStatus(_ context.Context, status *kubelet.RegistrationStatus) (*kubelet.RegistrationStatusResponse, error) {
	p.status.Store(status)
	if status.GetPluginRegistered() {
		p.Log.Info("registered with the kubelet", "plugin", p.What)
	} else {
		p.Log.Error("the kubelet refused the plugin", "plugin", p.What, "reason", status.GetError())
	}
	return &kubelet.RegistrationStatusResponse{}, nil
}
