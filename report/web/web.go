// Package web serves what there is in the cluster over HTTPS, for people and programs without a way to the API server:
// read-only JSON, from watches alone, so that no request costs the API server anything.
package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/holdfast-storage/holdfast/api/client/informers"
	"github.com/holdfast-storage/holdfast/api/client/listers/api/v1"
)

// DefaultAddress is the port of the API on all addresses of the pod.
const DefaultAddress = ":5705"

// Config is what a Server needs.
type Config struct {
	Address    string                          // to listen on; DefaultAddress if empty
	Namespace  string                          // of Holdfast: where the self-made certificate is, and a secret that names no other
	Informers  informers.SharedInformerFactory // may be shared with others in the process; Run starts what is not started
	Kubernetes kubernetes.Interface
	Events     record.EventRecorder // nil writes none
	Log        *slog.Logger         // nil discards
}

// Server is the HTTPS service of one replica. All replicas serve the same, whether or not they lead.
type Server struct {
	Config
	listener  net.Listener
	clusters  v1.StorageClusterLister
	nodes     v1.StorageNodeLister
	volumes   v1.VolumeLister
	snapshots v1.SnapshotLister
	synced    []cache.DoneChecker

	document []byte // OpenAPI
	handler  http.Handler
	identity *identity
	attempts *attempts
	filled   atomic.Bool // the caches have all that existed at the start
}

// New checks the configuration and begins to listen, so that a port that is taken is told at once. Run closes it.
func New(c Config) (*Server, error) {
	if c.Informers == nil || c.Kubernetes == nil || c.Namespace == "" {
		return nil, errors.New("the API needs informers, a client for secrets and the namespace of Holdfast")
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Address = cmp.Or(c.Address, DefaultAddress)
	kinds := c.Informers.Holdfast().V1()
	s := &Server{
		Config: c, attempts: newAttempts(), clusters: kinds.StorageClusters().Lister(), nodes: kinds.StorageNodes().Lister(),
		volumes: kinds.Volumes().Lister(), snapshots: kinds.Snapshots().Lister(),
		synced: []cache.DoneChecker{
			kinds.StorageClusters().Informer().HasSyncedChecker(), kinds.StorageNodes().Informer().HasSyncedChecker(),
			kinds.Volumes().Informer().HasSyncedChecker(), kinds.Snapshots().Informer().HasSyncedChecker(),
		},
	}
	var err error
	if s.identity, err = newIdentity(c, s.clusters); err != nil {
		return nil, err
	}
	if s.document, err = document(); err != nil {
		return nil, err
	}
	if err := s.identity.listen(kinds.StorageClusters().Informer()); err != nil {
		return nil, err
	}
	s.handler = s.routes()
	if s.listener, err = new(net.ListenConfig).Listen(context.Background(), "tcp", c.Address); err != nil {
		return nil, fmt.Errorf("the address of the API: %w", err)
	}
	return s, nil
}

// Address that is listened on.
func (s *Server) Address() string { return s.listener.Addr().String() }

func (s *Server) port() string {
	_, port, err := net.SplitHostPort(s.Address())
	if err != nil {
		return s.Address()
	}
	return port
}

// Run serves until ctx ends. That the API server cannot be reached ends it not: it then tells so where it is asked.
func (s *Server) Run(ctx context.Context) error {
	s.Informers.StartWithContext(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	work.Go(func() {
		if cache.WaitFor(ctx, "", s.synced...) {
			s.filled.Store(true)
			s.identity.keep(ctx)
		}
	})
	return s.serve(ctx)
}
