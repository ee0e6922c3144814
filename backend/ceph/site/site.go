//go:build ceph

package site

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
)

// lookEvery is how often the key and the cluster are looked at.
const lookEvery = 5 * time.Second

// endsWithin is how long what runs with an old connection may hold up the new one. What takes longer ends by itself.
const endsWithin = time.Minute

// pool is the Site of both engines.
type pool struct {
	Config
	log       *slog.Logger
	yields    bool          // to a process that serves the pool
	suspected chan struct{} // holds a token when a call has failed

	mu      sync.Mutex
	now     *serving      // nil: none yet, or it is being replaced
	settled chan struct{} // closed when there is a connection, or it is known why there is none; nil: no caller has to wait
	trouble error         // why the pool cannot be used; nil: it can
	warning error         // what will make it unusable
	nodes   error         // why nodes cannot use its volumes
	sealed  map[string]sealedKey
	changed func() // nil: none is called
	ending  sync.WaitGroup

	nodesLooked looked // only Run uses it
}

// Open returns the pool of a configuration. It is served while Run does.
func Open(c Config, log *slog.Logger) (Site, error) {
	if err := c.Complete(); err != nil {
		return nil, err
	}
	p := &pool{Config: c, log: log.With("pool", c.Pool), suspected: make(chan struct{}, 1), settled: make(chan struct{})}
	p.trouble = fmt.Errorf("%w: pool %s: the Ceph cluster is being connected to", backend.ErrUnavailable, c.Pool)
	return p, nil
}

// Run connects to the cluster, and looks at it and at the key, until ctx ends.
func (p *pool) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		p.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-p.suspected:
			select { // not more often than this
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	}
}

// Try says why the pool could not be served from now on.
func (p *pool) Try(ctx context.Context) error {
	key, err := readKey(p.KeyFile, p.maker())
	if err != nil {
		return fmt.Errorf("pool %s: %w", p.Pool, err)
	}
	cluster, err := p.connect(ctx, key)
	if err != nil {
		return err
	}
	if p.Engine == CephFS {
		err = p.checkLimits(ctx, cluster)
		if errors.Is(err, unix.ENOENT) { // the engine makes the directory when it is opened
			err = nil
		}
	}
	if err = errors.Join(err, cluster.Close(ctx)); err != nil {
		return fmt.Errorf("pool %s: %w", p.Pool, err)
	}
	return nil
}

// look finds out whether the pool can be used, and connects again where that helps.
func (p *pool) look(ctx context.Context) {
	defer p.release()
	s := p.serving()
	broken := errors.New("it is not connected yet")
	if s != nil {
		broken = p.works(ctx, s)
	}
	key, err := readKey(p.KeyFile, p.maker())
	if err == nil && (broken != nil || key != s.key) {
		var replaced *serving
		if replaced, err = p.renew(ctx, s, key); replaced != nil {
			broken = p.works(ctx, replaced)
		}
	}
	if ctx.Err() != nil {
		return
	}
	switch {
	case broken == nil: // perhaps with the key from before
		p.report(nil, err, p.lookAtNodes(ctx))
	case err != nil: // it says more than what the engine met
		p.report(err, nil, p.NodeWarning())
	default:
		p.report(broken, nil, p.NodeWarning())
	}
}

// renew serves the pool over a new connection, if the cluster takes the key, and if the old connection is another's or
// does not answer.
func (p *pool) renew(ctx context.Context, old *serving, key ceph.Key) (replaced *serving, err error) {
	fresh, err := p.connect(ctx, key)
	if err != nil {
		return nil, err
	}
	if old != nil && old.key == key && old.answers(ctx) == nil {
		return nil, fresh.Close(ctx)
	}
	return p.replace(ctx, old, fresh, key)
}

// connect makes a connection by which the pool can be used.
func (p *pool) connect(ctx context.Context, key ceph.Key) (*ceph.Cluster, error) {
	c := p.Ceph
	c.Key = key
	cluster, err := ceph.New(c, p.log)
	if err != nil {
		return nil, err
	}
	if err := p.check(ctx, cluster); err != nil {
		p.abandon("the connection", cluster.Close)
		return nil, fmt.Errorf("pool %s: %w", p.Pool, err)
	}
	return cluster, nil
}

// replace lets what runs with the old connection end, and serves the pool by the new one. Calls wait for that.
func (p *pool) replace(ctx context.Context, old *serving, fresh *ceph.Cluster, key ceph.Key) (*serving, error) {
	if old != nil {
		p.mu.Lock()
		p.now, p.settled = nil, make(chan struct{})
		p.mu.Unlock()
		p.log.Info("the connection to Ceph is replaced", "keyChanged", old.key != key)
		p.end(ctx, old)
	}
	s, err := p.serve(ctx, fresh, key)
	if err != nil {
		p.abandon("the connection", fresh.Close)
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = s
	return s, nil
}

// release lets calls go on that wait for a connection.
func (p *pool) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.settled != nil {
		close(p.settled)
		p.settled = nil
	}
}

// end closes an old connection when nothing runs on it any more, and waits for that as long as is reasonable.
func (p *pool) end(ctx context.Context, old *serving) {
	ended := p.abandon("the old connection", old.close)
	late := time.NewTimer(endsWithin)
	defer late.Stop()
	select {
	case <-ended:
	case <-ctx.Done():
	case <-late.C:
		p.log.Warn("something still runs with the old connection, which is closed when it has ended", "waited", endsWithin.String())
	}
}

// abandon closes something, however long that takes.
func (p *pool) abandon(what string, closing func(context.Context) error) (ended <-chan struct{}) {
	done := make(chan struct{})
	p.ending.Go(func() {
		defer close(done)
		if err := closing(context.Background()); err != nil {
			p.log.Warn("what is not used any more could not be closed", "what", what, "error", err)
		}
	})
	return done
}

func (p *pool) serving() *serving {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// report notes what is wrong, and lets it be known if that is news.
func (p *pool) report(trouble, warning, nodes error) {
	if trouble != nil && !errors.Is(trouble, backend.ErrUnavailable) {
		trouble = fmt.Errorf("%w: %w", backend.ErrUnavailable, trouble)
	}
	p.mu.Lock()
	own, theirs := text(trouble) != text(p.trouble) || text(warning) != text(p.warning), text(nodes) != text(p.nodes)
	p.trouble, p.warning, p.nodes = trouble, warning, nodes
	changed := p.changed
	p.mu.Unlock()
	switch {
	case !own:
	case trouble != nil:
		p.log.Error("the pool cannot be used; trying again", "error", trouble)
	case warning != nil:
		p.log.Error("the pool is served over a connection from before, and will not be for long", "error", warning)
	default:
		p.log.Info("the pool can be used")
	}
	switch {
	case !theirs:
	case nodes != nil:
		p.log.Error("nodes cannot use the volumes of the pool; trying again", "error", nodes)
	default:
		p.log.Info("nodes can use the volumes of the pool")
	}
	if changed != nil && (own || theirs) {
		changed()
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Ready says why the pool cannot be used, or soon will not be.
func (p *pool) Ready(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.trouble, p.warning)
}

// Warning says why the key that the file has now cannot be used, while the pool is served with one from before.
func (p *pool) Warning() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.warning
}

// NodeWarning says why nodes cannot use the volumes of the pool, as far as that is a fault of the user as whom they do.
func (p *pool) NodeWarning() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.nodes
}

// ExpectPool has nothing to do: a pool is recognized by the FSID of its cluster, and by what its engine has written in it.
func (p *pool) ExpectPool(string, backend.PoolExpectation) {}

// NotifyPools sets what is called when what is wrong with the pool changes.
func (p *pool) NotifyPools(changed func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed = changed
}

// Close waits until no operation runs, or ctx ends, and leaves the cluster.
func (p *pool) Close(ctx context.Context) error {
	p.mu.Lock()
	s := p.now
	p.now, p.trouble = nil, fmt.Errorf("%w: pool %s was closed", backend.ErrUnavailable, p.Pool)
	p.mu.Unlock()
	if s != nil {
		if err := s.close(ctx); err != nil {
			return fmt.Errorf("pool %s: %w", p.Pool, err)
		}
	}
	ended := make(chan struct{})
	go func() { p.ending.Wait(); close(ended) }()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("pool %s: an old connection is still in use: %w", p.Pool, ctx.Err())
	}
}
