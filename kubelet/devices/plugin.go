// Package devices allocates loop devices to unprivileged pods, as a device plugin of the kubelet: a pod that requests
// the resource gets the device nodes of a set that no other pod has, and access to these only.
package devices

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/grpc"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/holdfast-storage/holdfast/kubelet/plugin"
	"github.com/holdfast-storage/holdfast/listener"
	"github.com/holdfast-storage/holdfast/nodeops"
)

const (
	// Resource is the resource in the limits of a container: the number of sets that it needs.
	Resource = "holdfast.dev/loop-set"
	// Variable is the environment variable with the devices that were allocated to a container; Allocated parses it.
	Variable = "HOLDFAST_LOOPS"
)

// Allocated parses the value of Variable. The result is empty if nothing was allocated.
func Allocated(value string) []string {
	return slices.DeleteFunc(strings.Split(value, ","), func(device string) bool { return device == "" })
}

// Config configures a Plugin.
type Config struct {
	Directory string // watched by the kubelet, such as /var/lib/kubelet/plugins_registry
	Sets      int    // how many there are; 0: 8
	PerSet    int    // devices of a set; 0: 256
	First     int    // number of the first device; 0: nodeops.FirstReservedLoop
	Guard     Guard  // nil: nothing is allocated
	Log       *slog.Logger
}

// Plugin allocates sets of loop devices.
type Plugin struct {
	kubelet.UnimplementedDevicePluginServer
	plugin.Plugin
	config Config
	health *health

	allocating sync.Mutex
}

// New validates the configuration.
func New(c Config) (*Plugin, error) {
	if c.Guard == nil {
		c.Guard = noGuard{}
	}
	c.Sets, c.PerSet, c.First = or(c.Sets, 8), or(c.PerSet, 256), or(c.First, nodeops.FirstReservedLoop)
	const end = nodeops.FirstReservedLoop + nodeops.ReservedLoops
	switch {
	case c.Sets < 0 || c.PerSet < 0 || c.Sets > nodeops.ReservedLoops || c.PerSet > nodeops.ReservedLoops:
		return nil, fmt.Errorf("%d sets of %d loop devices: both must be 1 to %d", c.Sets, c.PerSet, nodeops.ReservedLoops)
	case c.First < nodeops.FirstReservedLoop || c.First+c.Sets*c.PerSet > end:
		return nil, fmt.Errorf("%d sets of %d loop devices from loop%d on: they must be between loop%d and loop%d, which are used for nothing else", c.Sets, c.PerSet, c.First, nodeops.FirstReservedLoop, end-1)
	}
	p := &Plugin{
		Plugin: plugin.Plugin{What: "the loop devices", Directory: c.Directory, Log: c.Log},
		config: c, health: newHealth("/dev/loop-control"),
	}
	if err := p.Check(); err != nil {
		return nil, err
	}
	return p, nil
}

func or(given, otherwise int) int {
	if given == 0 {
		return otherwise
	}
	return given
}

// Run registers with the kubelet and allocates sets until ctx ends. A kubelet that restarts finds the socket again, and
// one that sees it removed allocates nothing more.
func (p *Plugin) Run(ctx context.Context) error {
	s, err := p.Listen(ctx, strings.ReplaceAll(Resource, "/", "-"))
	if err != nil {
		return err
	}
	server := listener.GRPC()
	registration.RegisterRegistrationServer(server, p)
	kubelet.RegisterDevicePluginServer(server, p)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var watch sync.WaitGroup
	watch.Go(func() {
		if err := p.health.watch(watching, p.Log); err != nil {
			p.Log.Error("the health of loop devices is no longer watched", "error", err)
		}
	})
	p.Log.Info("allocating loop devices", "resource", Resource, "sets", p.config.Sets, "devices", p.config.PerSet, "socket", s.Path)
	err = p.Serve(ctx, server)
	stop()
	watch.Wait()
	return err
}

// GetInfo is a call of the kubelet's plugin registration.
func (p *Plugin) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.DevicePlugin, Name: Resource, Endpoint: p.Path(), SupportedVersions: []string{kubelet.Version},
	}, nil
}

// GetDevicePluginOptions is a call of the device plugin API.
func (p *Plugin) GetDevicePluginOptions(context.Context, *kubelet.Empty) (*kubelet.DevicePluginOptions, error) {
	return &kubelet.DevicePluginOptions{}, nil
}

// ListAndWatch is a call of the device plugin API: it sends all sets, and again whenever their health changes.
func (p *Plugin) ListAndWatch(_ *kubelet.Empty, stream grpc.ServerStreamingServer[kubelet.ListAndWatchResponse]) error {
	for {
		healthy, changed := p.health.now()
		decided, refusal := p.config.Guard.Refusal()
		word := kubelet.Unhealthy
		if healthy && refusal == nil {
			word = kubelet.Healthy
		}
		answer := &kubelet.ListAndWatchResponse{}
		for set := range p.config.Sets {
			answer.Devices = append(answer.Devices, &kubelet.Device{ID: nameOf(set), Health: word})
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-decided:
		case <-stream.Context().Done():
			return nil
		}
	}
}

const setPrefix = "set-"

func nameOf(set int) string { return setPrefix + strconv.Itoa(set) }

// setNumber is the inverse of nameOf.
func (p *Plugin) setNumber(name string) (int, error) {
	set, err := strconv.Atoi(strings.TrimPrefix(name, setPrefix))
	if err != nil || set < 0 || set >= p.config.Sets || nameOf(set) != name {
		return 0, fmt.Errorf("device %q of resource %s: there are %s to %s", name, Resource, nameOf(0), nameOf(p.config.Sets-1))
	}
	return set, nil
}

// Allocate is a call of the device plugin API: it creates the devices of the sets and returns those that are not in
// use.
func (p *Plugin) Allocate(ctx context.Context, request *kubelet.AllocateRequest) (*kubelet.AllocateResponse, error) {
	p.allocating.Lock()
	defer p.allocating.Unlock()
	if _, why := p.config.Guard.Refusal(); why != nil {
		p.Log.Warn("loop devices are not allocated", "reason", why)
		return nil, why
	}
	answer := &kubelet.AllocateResponse{}
	for _, container := range request.GetContainerRequests() {
		allocated, err := p.allocate(ctx, container.GetDevicesIds())
		if err != nil {
			p.Log.Error("cannot allocate loop devices", "sets", container.GetDevicesIds(), "error", err)
			return nil, err
		}
		answer.ContainerResponses = append(answer.ContainerResponses, allocated)
	}
	return answer, nil
}

func (p *Plugin) allocate(ctx context.Context, names []string) (*kubelet.ContainerAllocateResponse, error) {
	var all []string
	for _, name := range names {
		set, err := p.setNumber(name)
		if err != nil {
			return nil, err
		}
		devices, err := nodeops.AddLoops(p.config.First+set*p.config.PerSet, p.config.PerSet)
		if err != nil {
			return nil, err
		}
		free, err := nodeops.ReclaimLoops(ctx, devices)
		if err != nil {
			p.Log.Warn("a device that an earlier pod left attached could not be detached", "set", name, "error", err)
		}
		if len(free) == 0 {
			return nil, fmt.Errorf("all %d devices of %s (%s to %s) are in use by other programs on this host; find them with losetup --list and detach those that are not needed", len(devices), name, devices[0], devices[len(devices)-1])
		}
		p.Log.Info("loop devices were allocated to a pod", "set", name, "devices", len(free), "inUseByOthers", len(devices)-len(free))
		all = append(all, free...)
	}
	allocated := &kubelet.ContainerAllocateResponse{Envs: map[string]string{Variable: strings.Join(all, ",")}}
	for _, device := range all {
		allocated.Devices = append(allocated.Devices, &kubelet.DeviceSpec{HostPath: device, ContainerPath: device, Permissions: "rw"})
	}
	return allocated, nil
}
