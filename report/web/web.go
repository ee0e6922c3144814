// Package web serves one report about the cluster over HTTPS, as JSON and as a page, for people and programs without
// access to the API server. It answers from watches, so that no request costs the API server anything.
package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/holdfast-storage/holdfast/api/client/listers/api/v1beta1"
	"github.com/holdfast-storage/holdfast/healthz"
	"github.com/holdfast-storage/holdfast/kube"
)

// Config is what a Server needs.
type Config struct {
	Address    string        // to listen on
	Namespace  string        // of Holdfast: of the self-signed certificate, and of a secret that names no other
	Watches    *kube.Watches // those of the process; Run starts what is not started
	Kubernetes kubernetes.Interface
	Health     *healthz.Checks // of this process, to which the server adds its own; nil: there are no others
	Log        *slog.Logger
}

// Server is the HTTPS service of one replica. All replicas serve the same, whether or not they lead.
type Server struct {
	Config
	listener  net.Listener
	clusters  v1beta1.StorageClusterLister
	nodes     v1beta1.StorageNodeLister
	volumes   v1beta1.VolumeLister
	snapshots v1beta1.SnapshotLister
	servers   v1beta1.NFSServerLister
	jobs      v1beta1.NodeJobLister
	upgrades  v1beta1.StorageUpgradeLister
	warnings  corelisters.EventLister
	synced    []cache.DoneChecker  // the kinds without which nothing is served
	optional  map[string]*optional // by the kind of facts
	clock     clock.PassiveClock
	heard     atomic.Pointer[time.Time] // when the API server was heard of last

	handler  http.Handler
	identity *identity
	guesses  guesses
	filled   atomic.Bool // the caches have all that existed at the start
}

// New begins to listen, so that a port in use is an error at once. Run closes it.
func New(c Config) (*Server, error) {
	c.Health = cmp.Or(c.Health, &healthz.Checks{})
	s := &Server{Config: c, clock: clock.RealClock{}, guesses: guesses{clients: map[netip.Prefix]int{}}}
	s.Health.Ready("informer-sync", s.informed)
	clusters := s.Watches.Holdfast.Holdfast().V1beta1().StorageClusters()
	if err := s.watch(); err != nil {
		return nil, err
	}
	var err error
	if s.identity, err = newIdentity(c, s.clusters); err != nil {
		return nil, err
	}
	if _, err := clusters.Informer().AddEventHandler(kube.OnChange(func(any) { s.identity.wake() })); err != nil {
		return nil, err
	}
	if s.handler, err = s.routes(); err != nil {
		return nil, err
	}
	if s.listener, err = new(net.ListenConfig).Listen(context.Background(), "tcp", c.Address); err != nil {
		return nil, fmt.Errorf("the address of the API: %w", err)
	}
	return s, nil
}

// informed is a check. The certificate is none: who may not read a secret of another team must still be able to be
// updated and drained.
func (s *Server) informed(context.Context) error {
	if !s.filled.Load() {
		return errors.New("the cluster could not be read so far")
	}
	return nil
}

// Address that is listened on.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Run serves until ctx ends. It keeps serving while the API server is unreachable; handlers report that.
func (s *Server) Run(ctx context.Context) error {
	s.Watches.Start()
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
