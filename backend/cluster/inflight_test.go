package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func deskVolume(uid types.UID, version string) *v1beta1.Volume {
	return &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: "v", UID: uid, ResourceVersion: version}}
}

// cacheOf is a cache that holds what the test wants.
func cacheOf() (*inflight[*v1beta1.Volume], func(*v1beta1.Volume)) {
	var cached *v1beta1.Volume
	d := &inflight[*v1beta1.Volume]{cached: func(string) *v1beta1.Volume { return cached }, open: map[string]*entry[*v1beta1.Volume]{}}
	return d, func(v *v1beta1.Volume) { cached = v }
}

func TestCache_CallSeesItsOwnWriteThoughTheCacheIsStale(t *testing.T) {
	d, cache := cacheOf()
	c := d.join("v")
	defer c.leave()
	first, second := deskVolume("1", "9"), deskVolume("1", "10")
	expectNewest := func(when string, want *v1beta1.Volume) {
		t.Helper()
		if got := c.newest(); got != want {
			t.Errorf("%s: %+v", when, got)
		}
	}
	expectNewest("nothing yet", nil)
	c.learn(second)
	expectNewest("written, not in the cache", second)
	cache(first)
	expectNewest("an older one in the cache", second)
	c.learn(first)
	expectNewest("an older one is read", second)
	third := deskVolume("1", "11")
	cache(third)
	expectNewest("a newer one in the cache", third)
	c.vanish("1")
	expectNewest("gone, and still in the cache", nil)
	next := deskVolume("2", "12")
	cache(next)
	expectNewest("another of its name", next)
	last := deskVolume("2", "13")
	c.learn(last)
	d.changed(last, true)
	cache(nil)
	expectNewest("deleted, and never in the cache", nil)
}

func TestCache_CallsOnOneNameShareTheirKnowledgeAndOthersDoNot(t *testing.T) {
	d, _ := cacheOf()
	one, two, other := d.join("v"), d.join("v"), d.join("w")
	one.learn(deskVolume("1", "9"))
	if two.newest() == nil || other.newest() != nil {
		t.Errorf("the second knows %+v, another name %+v", two.newest(), other.newest())
	}
	if err := two.wait(t.Context()); err != nil { // it was woken
		t.Error(err)
	}
	one.leave()
	two.leave()
	other.leave()
	if len(d.open) > 0 {
		t.Errorf("%d inflight are left", len(d.open))
	}
}

func TestCache_CallWaitsForAnEventOrItsDeadline(t *testing.T) {
	d, _ := cacheOf()
	c := d.join("v")
	defer c.leave()
	ended, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := c.wait(ended); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without news: %v", err)
	}
	d.wake()
	check.Report(t, c.wait(t.Context()))
}

func TestCache_OneCallAtATimeCreates(t *testing.T) {
	d, _ := cacheOf()
	one, two := d.join("v"), d.join("v")
	defer one.leave()
	defer two.leave()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err := one.alone(t.Context(), func() error { return two.alone(ended, func() error { return nil }) })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the second got in: %v", err)
	}
	check.Report(t, two.alone(t.Context(), func() error { return nil }))
}
