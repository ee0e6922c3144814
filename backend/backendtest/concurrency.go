package backendtest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// atOnce runs f n times concurrently and returns the errors by index.
func atOnce(n int, f func(i int) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start
			errs[i] = f(i)
		})
	}
	close(start)
	all.Wait()
	return errs
}

const crowd = 64

func oneNameAtOnce(c checker) {
	made := make([]*backend.Volume, crowd)
	for i, err := range atOnce(crowd, func(i int) (err error) {
		made[i], err = c.Backend.Create(ctx, c.spec("a"))
		return err
	}) {
		if err != nil || !made[i].Created.Equal(made[0].Created) {
			c.Fatalf("create %d returned %+v, %v; create 0 returned %+v", i, made[i], err, made[0])
		}
	}
	c.holds("a")
	for i, err := range atOnce(crowd, func(int) error { return c.Backend.Delete(ctx, "a") }) {
		if err != nil {
			c.Fatalf("delete %d: %v", i, err)
		}
	}
	c.holds()
}

func manyNamesAtOnce(c checker) {
	var want []backend.ID
	for i := range crowd {
		want = append(want, backend.ID(fmt.Sprintf("v%d", i)))
	}
	spec := func(i int) backend.VolumeSpec {
		s := c.spec(string(want[i]))
		s.Size = backend.Size{Required: min(c.Smallest, 32*mib)}
		return s
	}
	capacity, _ := c.Backend.Capacity(ctx, "")
	if capacity.Available < crowd*c.Smallest {
		want = want[:max(2, capacity.Available/c.Smallest/2)]
	}
	for i, err := range atOnce(len(want), func(i int) error { _, err := c.Backend.Create(ctx, spec(i)); return err }) {
		if err != nil {
			c.Fatalf("create %d: %v", i, err)
		}
	}
	c.holds(want...)
	for i, err := range atOnce(len(want), func(i int) error { return c.Backend.Delete(ctx, want[i]) }) {
		if err != nil {
			c.Fatalf("delete %d: %v", i, err)
		}
	}
	c.holds()
}

func neverOversold(c checker) {
	before := check.Got(c.Backend.Capacity(ctx, ""))(c.T)
	const fit = 5
	if before.Available < fit*c.Smallest {
		c.Fatalf("the pool has %d bytes available, too few for this case", before.Available)
	}
	size := before.Available / fit / mib * mib
	var granted int64
	for i, err := range atOnce(crowd, func(i int) error {
		spec := c.spec(fmt.Sprintf("v%d", i))
		spec.Size.Required = size
		_, err := c.Backend.Create(ctx, spec)
		return err
	}) {
		if err == nil {
			granted += size
		} else if !errors.Is(err, backend.ErrExhausted) {
			c.Errorf("create %d: %v", i, err)
		}
	}
	after := check.Got(c.Backend.Capacity(ctx, ""))(c.T)
	if granted > before.Available || after.Promised-before.Promised != granted {
		c.Errorf("%d bytes were granted of %d available; promised went from %d to %d", granted, before.Available, before.Promised, after.Promised)
	}
	// Failed creates may have displaced at most one that would have fitted, while their size was counted.
	if granted < (fit-1)*size {
		c.Errorf("only %d bytes were granted of %d available", granted, before.Available)
	}
}

func cancelled(c checker) {
	done, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.Backend.Create(done, c.spec("a")); err == nil {
		c.Fatal("a create whose caller had gone succeeded")
	}
	c.holds()
	// The caller's context ends at some point of the operation; wherever that is, a repeated call must succeed.
	for i := range 8 {
		short, cancel := context.WithCancel(ctx)
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			_, _ = c.Backend.Create(short, c.spec("b")) // any result is fine
		}()
		for range i * 1000 { // a different delay in each round, without a clock
			if short.Err() != nil {
				break
			}
		}
		cancel()
		<-answered
	}
	v := c.create(c.spec("b"))
	c.Write(c.T, v, content(1))
	c.sees(v, content(1))
	c.Backend = c.Reopen(c.T)
	c.holds(v.ID)
}

// restart opens the backend again, and fails if it promises another sum then.
func (c checker) restart() {
	c.Helper()
	before, _ := c.Backend.Capacity(ctx, "")
	c.Backend = c.Reopen(c.T)
	if after, _ := c.Backend.Capacity(ctx, ""); after.Promised != before.Promised {
		c.Errorf("promised %d before and %d after the restart", before.Promised, after.Promised)
	}
}

func adopted(c checker) {
	v := c.create(c.spec("Some Volume"))
	c.Write(c.T, v, content(1))
	s := c.snapshot("s", v.ID)
	c.restart()
	c.holds(v.ID)
	if found, err := c.Backend.GetSnapshot(ctx, s.ID); err != nil || found.Source != v.ID || !found.Created.Equal(s.Created) {
		c.Errorf("snapshot after the restart: %+v, %v", found, err)
	}
	r := check.Got(c.Backend.Restore(ctx, s.ID, c.spec("r")))(c.T)
	c.sees(r, content(1))
}

func adoptedGroups(c checker) {
	v := c.create(c.spec("Some Volume"))
	g := check.Got(c.groups().SnapshotGroup(ctx, backend.GroupSpec{Name: "g", Sources: []backend.ID{v.ID}}))(c.T)
	c.restart()
	if found, err := c.groups().GetGroup(ctx, g.ID); err != nil || len(found.Snapshots) != 1 {
		c.Errorf("group after the restart: %+v, %v", found, err)
	}
}
