//go:build linux && !client

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/agent"
	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/export"
	"github.com/holdfast-storage/holdfast/backend/local"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kubelet/devices"
	"github.com/holdfast-storage/holdfast/nodeops/ganesha"
	"github.com/holdfast-storage/holdfast/provisioner"
)

// nfsManager is the name under which a server writes.
const nfsManager = "holdfast-nfs"

const nfsPool = "default"

// serveVolumes exports all volumes again and returns the parts that serve them, create and remove others, and the
// function that closes them. While the pool is out of reach it returns a part that reports that.
func (n *nfs) serveVolumes(ctx context.Context, server *ganesha.Server, allowed *allowedClients, s export.Settings, log *slog.Logger) (_ []part, end func(context.Context) error, err error) {
	c, err := n.connect(nfsManager, log)
	if err != nil {
		return nil, nil, err
	}
	storage := n.openPool(ctx, c, log)
	end = storage.Close
	if err := n.registry.Register(storage.Collector()); err != nil {
		return nil, end, err
	}
	if why := outOfReach(ctx, storage); why != nil {
		log.Error("the pool is out of reach", "error", why)
		n.away.Store(&why)
		parts, err := n.awaitPool(storage, c, log)
		return parts, end, err
	}
	volumes, err := n.export(ctx, storage, server, s, log)
	if err != nil {
		return nil, end, err
	}
	end = func(ctx context.Context) error { return errors.Join(volumes.Close(ctx), storage.Close(ctx)) }
	servers, err := provisioner.NewServers(n.identity, n.namespace, c.holdfast, log)
	if err != nil {
		return nil, end, err
	}
	// It is created before the informers start, as it must be; without it, provisioned volumes are served nevertheless.
	// It works when the agent runs.
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
	if p != nil {
		parts = append(parts, p.Run)
	}
	return parts, end, nil
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
		Storage: storage, ExportsDir: exports, StateDir: ids, Exporter: server, Defaults: s, MaxExports: n.maxExports, Images: n.engine == "image",
		Loops: devices.Allocated(os.Getenv(devices.Variable)), Log: log,
	}
	if n.port != v1beta1.NFSPort {
		c.Port = int32(n.port)
	}
	if n.access == string(v1beta1.NFSNone) {
		c.Exporter = shut{server}
	}
	return export.Open(ctx, c)
}

// shut closes the exports of all volumes, regardless of their own settings.
type shut struct{ export.Exporter }

func (s shut) Put(ctx context.Context, e ganesha.Export) error {
	e.Clients = []string{loopback}
	return s.Exporter.Put(ctx, e)
}

func (n *nfs) provisioner(volumes *export.Backend, c *clients, servers *provisioner.Servers, made func(backend.SourceKind, backend.ID), log *slog.Logger) (*provisioner.Provisioner, error) {
	state, err := n.directory("provisioner")
	if err != nil {
		return nil, err
	}
	config := provisioner.Config{
		Identity: n.server, Servers: servers, Address: n.address, Path: export.PathOf,
		Metrics: n.provisioning, Backend: volumes, StateDir: state, Client: c.kubernetes, Namespace: n.namespace, Events: c.events, Log: log,
		// The agent shows the volume as an object; it goes with the volume.
		Made:         made,
		Forget:       func(ctx context.Context, id backend.ID) error { return n.forget(ctx, c.holdfast, id) },
		MountOptions: words(n.mountOptions),
	}
	return provisioner.New(config)
}

// forget removes the object by which the agent has shown a volume, with the request to delete the volume: without one
// the agent would keep the data, and write an event.
func (n *nfs) forget(ctx context.Context, c client.Interface, id backend.ID) error {
	objects := c.HoldfastV1beta1().Volumes()
	o, err := objects.Get(ctx, string(id), metav1.GetOptions{})
	if err != nil || o.Spec.Node != n.node() {
		return kube.IgnoreNotFound(err)
	}
	if !o.DeletionRequested() {
		patch, err := v1beta1.NewDeletionRequest(o.UID, nfsManager, "the provisioner removes the volume: no claim has it any more").MergePatch()
		if err != nil {
			return err
		}
		if _, err := objects.Patch(ctx, string(id), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: nfsManager}); err != nil {
			return kube.IgnoreNotFound(err)
		}
	}
	return kube.IgnoreNotFound(objects.Delete(ctx, string(id), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.UID}}))
}
