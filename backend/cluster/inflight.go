package cluster

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/holdfast-storage/holdfast/kube"
)

// object is a pointer to a kind of Holdfast.
type object interface {
	comparable
	metav1.Object
}

// inflight keeps, for each name with running calls, what those calls know of its object, since the cache may be behind
// their writes.
type inflight[T object] struct {
	cached func(name string) T // zero when the cache has none

	mu   sync.Mutex
	open map[string]*entry[T]
}

// entry is what the calls on one name share.
type entry[T object] struct {
	all     *inflight[T]
	name    string
	writing chan struct{} // holds one token, for the call that may create the object

	// Guarded by all.mu.
	known   T                  // the latest that was written or read by a call
	dropped map[types.UID]bool // a call has requested the deletion of the data and of the object
	gone    map[types.UID]bool
	calls   map[*call[T]]bool
}

// call is one caller on a name.
type call[T object] struct {
	*entry[T]
	notified chan struct{}
}

// join adds a call on a name; leave ends it.
func (d *inflight[T]) join(name string) *call[T] {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := d.open[name]
	if at == nil {
		at = &entry[T]{all: d, name: name, writing: make(chan struct{}, 1), dropped: map[types.UID]bool{}, gone: map[types.UID]bool{}, calls: map[*call[T]]bool{}}
		at.writing <- struct{}{}
		d.open[name] = at
	}
	c := &call[T]{entry: at, notified: make(chan struct{}, 1)}
	at.calls[c] = true
	return c
}

func (c *call[T]) leave() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	delete(c.calls, c)
	if len(c.calls) == 0 {
		delete(c.all.open, c.name)
	}
}

// newest returns the newest known version of the object, zero if there is none.
func (c *call[T]) newest() T {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	var none T
	cached := c.all.cached(c.name)
	if cached != none && c.gone[cached.GetUID()] {
		cached = none
	}
	switch {
	case c.known == none || c.gone[c.known.GetUID()]:
		return cached
	case cached == none, older(cached, c.known):
		return c.known
	}
	return cached
}

// older compares objects of one name, also across deletions: resource versions only grow.
func older(a, b metav1.Object) bool { return newer(b.GetResourceVersion(), a.GetResourceVersion()) }

// newer compares resource versions; any is newer than none.
func newer(a, b string) bool {
	if b == "" {
		return a != ""
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0
}

// learn shares an object that one call has written or read with all calls on the name.
func (c *call[T]) learn(o T) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	var none T
	if c.known == none || !older(o, c.known) {
		c.known = o
	}
	c.notify()
}

// drop remembers that the deletion of an object was requested.
func (c *call[T]) drop(uid types.UID) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.dropped[uid] = true
}

// leaving says whether an object is being deleted, or will be as soon as the cache knows.
func (c *call[T]) leaving(o T) bool {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	return o.GetDeletionTimestamp() != nil || c.dropped[o.GetUID()]
}

// asked says whether a call has requested the deletion of an object and its data.
func (c *call[T]) asked(o T) bool {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	return c.dropped[o.GetUID()]
}

// vanish notifies all calls on the name that an object is gone.
func (c *call[T]) vanish(uid types.UID) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.gone[uid] = true
	c.notify()
}

func (c *call[T]) isGone(uid types.UID) bool {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	return c.gone[uid]
}

// notify wakes the calls on the name; all.mu is held.
func (d *entry[T]) notify() {
	for c := range d.calls {
		kube.Notify(c.notified)
	}
}

// wait returns when the object or a node has changed, or with ctx's error.
func (c *call[T]) wait(ctx context.Context) error {
	select {
	case <-c.notified:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// alone runs f while no other call of this process creates the object.
func (c *call[T]) alone(ctx context.Context, f func() error) error {
	select {
	case <-c.writing:
		defer func() { c.writing <- struct{}{} }()
		return f()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// changed is called by the watch after the cache is updated.
func (d *inflight[T]) changed(o T, deleted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := d.open[o.GetName()]
	if at == nil {
		return
	}
	if deleted {
		at.gone[o.GetUID()] = true
	}
	at.notify()
}

// wake wakes all calls, since a node has appeared or become silent.
func (d *inflight[T]) wake() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, at := range d.open {
		at.notify()
	}
}
