package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-storage/holdfast/agent"
	"github.com/holdfast-storage/holdfast/agent/devices"
	holdfast "github.com/holdfast-storage/holdfast/api/client/informers"
	holdfastv1 "github.com/holdfast-storage/holdfast/api/client/informers/api/v1"
	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/export"
	"github.com/holdfast-storage/holdfast/backend/local"
	"github.com/holdfast-storage/holdfast/nodeops/ganesha"
	"github.com/holdfast-storage/holdfast/provisioner"
)

// nfsPool is the only pool of a server.
const nfsPool = "default"

// serveVolumes brings back all volumes and returns what makes and removes others, and what ends their use here.
func (n *nfs) serveVolumes(ctx context.Context, server *ganesha.Server, s export.Settings, registry *prometheus.Registry, log *slog.Logger) (_ []part, end func(context.Context) error, err error) {
	c, err := n.connect("holdfast-nfs", log)
	if err != nil {
		return nil, nil, err
	}
	dir, err := n.directory("pool")
	if err != nil {
		return nil, nil, err
	}
	storage, err := local.Open(ctx, []local.PoolConfig{{Name: nfsPool, Engine: n.engine, Path: dir}}, log)
	if err != nil {
		return nil, nil, err
	}
	end = storage.Close
	volumes, err := n.export(ctx, storage, server, s, log)
	if err != nil {
		return nil, end, err
	}
	end = func(ctx context.Context) error { return errors.Join(volumes.Close(ctx), storage.Close(ctx)) }
	servers := newSiblings(n.identity, c)
	// Before the clients are at work, as it must be; without it, what was provisioned is served nevertheless.
	p, err := n.provisioner(volumes, c, servers, log)
	if err != nil {
		log.Error("claims are not provisioned", "error", err)
	}
	a, err := agent.New(agent.Config{
		Node: n.node(), Version: version, Backend: volumes, Pools: []agent.Pool{{Name: nfsPool, Path: dir, Engine: n.engine}}, Address: n.address,
		Client: c.holdfast, Kubernetes: c.kubernetes, Namespace: n.namespace, Events: c.events, Log: log,
	})
	if err != nil {
		return nil, end, err
	}
	parts := []part{
		c.broadcast, logged(log, a.Run), logged(log, n.followDebug(c.holdfast, log)), servers.follow(log), n.tellClients(server, c, log),
	}
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

func (n *nfs) provisioner(volumes *export.Backend, c *clients, servers *siblings, log *slog.Logger) (*provisioner.Provisioner, error) {
	state, err := n.directory("provisioner")
	if err != nil {
		return nil, err
	}
	config := provisioner.Config{
		Identity: n.server, Default: servers.isDefault, Known: servers.known, Path: export.PathOf,
		Address: func(context.Context) (string, error) {
			if n.address == "" {
				return "", errors.New("the Service of the NFS server has no address yet")
			}
			return n.address, nil
		},
		Backend: volumes, StateDir: state, Client: c.kubernetes, Namespace: n.namespace, Events: c.events, Log: log,
		// The agent has shown the volume as an object; it goes with the volume.
		Forget: func(ctx context.Context, id backend.ID) error { return n.forget(ctx, c, id) },
	}
	if options := words(n.mountOptions); len(options) > 0 {
		config.MountOptions = options
	}
	return provisioner.New(config)
}

// siblings are all servers of the cluster. They know which server claims are for that name none: the oldest that has storage.
type siblings struct {
	of  types.NamespacedName
	all holdfastv1.NFSServerIndexInformer
}

func newSiblings(of types.NamespacedName, c *clients) *siblings {
	servers := holdfast.NewSharedInformerFactory(c.holdfast, 0).Holdfast().V1().NFSServers()
	return &siblings{of, holdfastv1.ToTypedNFSServerInformer(servers).TypedInformer()}
}

func (s *siblings) follow(log *slog.Logger) part {
	return func(ctx context.Context) error {
		if err := s.all.SetWatchErrorHandlerWithContext(toldOnce(log)); err != nil {
			return err
		}
		s.all.RunWithContext(ctx)
		return nil
	}
}

func (s *siblings) isDefault() bool {
	if !s.all.HasSynced() {
		return false
	}
	var able []*v1.NFSServer
	for _, o := range s.all.GetIndexer().List() {
		if server := o.(*v1.NFSServer); server.Spec.Publish == nil && server.DeletionTimestamp == nil {
			able = append(able, server)
		}
	}
	if len(able) == 0 {
		return false
	}
	first := slices.MinFunc(able, func(a, b *v1.NFSServer) int {
		if by := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); by != 0 {
			return by
		}
		return compareNames(a, b)
	})
	return cache.MetaObjectToName(first) == cache.ObjectName(s.of)
}

func compareNames(a, b *v1.NFSServer) int {
	return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
}

// lookAtClients is how often clients are counted.
const lookAtClients = 10 * time.Second

// tellClients writes how many clients there are on the StorageNode, from where it becomes the server's status.
func (n *nfs) tellClients(server *ganesha.Server, c *clients, log *slog.Logger) part {
	return func(ctx context.Context) error {
		tick := time.NewTicker(lookAtClients)
		defer tick.Stop()
		for before := -1; ; {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			all, err := server.Clients(ctx)
			if err != nil || len(all) == before {
				continue // the next answer tells
			}
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}}}`, v1.NFSClientsAnnotation, len(all))
			_, err = c.holdfast.HoldfastV1().StorageNodes().Patch(ctx, n.node(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "holdfast-nfs"})
			if err != nil {
				log.Debug("the number of clients is not told", "error", err)
				continue
			}
			before = len(all)
		}
	}
}

// known says whether there is a server of that NAME or NAMESPACE/NAME; without the list, nobody says that there is none.
func (s *siblings) known(server string) bool {
	if !s.all.HasSynced() {
		return true
	}
	return slices.ContainsFunc(s.all.GetIndexer().List(), func(o any) bool {
		known := o.(*v1.NFSServer)
		return server == known.Name || server == known.Namespace+"/"+known.Name
	})
}

// forget removes the object by which the agent has shown a volume, which goes with the volume.
func (n *nfs) forget(ctx context.Context, c *clients, id backend.ID) error {
	objects := c.holdfast.HoldfastV1().Volumes()
	o, err := objects.Get(ctx, string(id), metav1.GetOptions{})
	if err == nil && o.Spec.Node == n.node() {
		err = objects.Delete(ctx, string(id), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.UID}})
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
