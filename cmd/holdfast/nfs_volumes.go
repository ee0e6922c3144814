package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/agent"
	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/export"
	"github.com/holdfast-storage/holdfast/backend/local"
	"github.com/holdfast-storage/holdfast/kubelet/devices"
	"github.com/holdfast-storage/holdfast/nodeops/ganesha"
	"github.com/holdfast-storage/holdfast/provisioner"
)

// nfsPool is the only pool of a server.
const nfsPool = "default"

// serveVolumes brings back all volumes and returns what serves them, makes and removes others, and what ends their use
// here. While the pool is out of reach it returns what tells of that.
func (n *nfs) serveVolumes(ctx context.Context, server *ganesha.Server, allowed *allowedClients, s export.Settings, registry *prometheus.Registry, log *slog.Logger) (_ []part, end func(context.Context) error, err error) {
	c, err := n.connect("holdfast-nfs", log)
	if err != nil {
		return nil, nil, err
	}
	storage := n.openPool(ctx, c, log)
	end = storage.Close
	if why := outOfReach(ctx, storage); why != nil {
		log.Error("the pool is out of reach", "error", why)
		parts, err := n.awaitPool(storage, c, log)
		return parts, end, errors.Join(err, registerAll(registry, storage.Collector()))
	}
	volumes, err := n.export(ctx, storage, server, s, log)
	if err != nil {
		return nil, end, err
	}
	end = func(ctx context.Context) error { return errors.Join(volumes.Close(ctx), storage.Close(ctx)) }
	servers := newSiblings(n.identity, n.namespace, c.holdfast)
	// Before the clients are at work, as it must be; without it, what was provisioned is served nevertheless. It works
	// when the agent is there.
	var a *agent.Agent
	made := func(kind backend.SourceKind, id backend.ID) { a.Made(kind, id) }
	p, err := n.provisioner(volumes, c, servers, made, log)
	if err != nil {
		log.Error("claims are not provisioned", "error", err)
	}
	var requests part
	a, requests, err = n.agent(volumes, c, log)
	if err != nil {
		return nil, end, err
	}
	follow, err := n.following(server, c, servers, log)
	if err != nil {
		return nil, end, err
	}
	parts := append(follow, allowed.running(server, servers), c.broadcast, logged(log, a.Run), requests)
	collectors := []prometheus.Collector{storage.Collector()}
	if p != nil {
		parts, collectors = append(parts, p.Run), append(collectors, p.Collectors()...)
	}
	return parts, end, registerAll(registry, collectors...)
}

func (n *nfs) export(ctx context.Context, storage *local.Backend, server *ganesha.Server, s export.Settings, log *slog.Logger) (*export.Backend, error) {
	exports := filepath.Join(n.runDir, "exports")
	if err := os.MkdirAll(exports, 0o700); err != nil {
		return nil, fmt.Errorf("--run-dir: %w", err)
	}
	ids, err := n.directory("exports")
	if err != nil {
		return nil, err
	}
	c := export.Config{
		Backend: storage, ExportsDir: exports, StateDir: ids, Exporter: server, Defaults: s, MaxExports: n.maxExports, Images: n.engine == "image",
		Loops: devices.Lent(os.Getenv(devices.Variable)), Log: log,
	}
	if n.access == string(v1.NFSNone) {
		c.Exporter = shut{server}
	}
	return export.Open(ctx, c)
}

// shut exports volumes to nobody, whatever they say themselves.
type shut struct{ export.Exporter }

func (s shut) Put(ctx context.Context, e ganesha.Export) error {
	e.Clients = []string{loopback}
	return s.Exporter.Put(ctx, e)
}

func (n *nfs) provisioner(volumes *export.Backend, c *clients, servers *siblings, made func(backend.SourceKind, backend.ID), log *slog.Logger) (*provisioner.Provisioner, error) {
	state, err := n.directory("provisioner")
	if err != nil {
		return nil, err
	}
	config := provisioner.Config{
		Identity: n.server, Default: servers.isDefault, Named: servers.isNamed, Known: servers.known, Refusal: servers.refusal, Path: export.PathOf,
		Address: func(context.Context) (string, error) {
			if n.address == "" {
				return "", errors.New("the Service of the NFS server has no address yet")
			}
			return n.address, nil
		},
		Backend: volumes, StateDir: state, Client: c.kubernetes, Namespace: n.namespace, Events: c.events, Log: log,
		// The agent shows the volume as an object; it goes with the volume.
		Made:   made,
		Forget: func(ctx context.Context, id backend.ID) error { return n.forget(ctx, c.holdfast, id) },
	}
	if options := words(n.mountOptions); len(options) > 0 {
		config.MountOptions = options
	}
	return provisioner.New(config)
}

// forget removes the object by which the agent has shown a volume, which goes with the volume.
func (n *nfs) forget(ctx context.Context, c client.Interface, id backend.ID) error {
	objects := c.HoldfastV1().Volumes()
	o, err := objects.Get(ctx, string(id), metav1.GetOptions{})
	if err == nil && o.Spec.Node == n.node() {
		err = objects.Delete(ctx, string(id), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.UID}})
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
