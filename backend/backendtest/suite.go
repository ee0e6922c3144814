// Package backendtest has the conformance suite that every backend passes, and a backend in memory.
package backendtest

import (
	"context"
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// Fixture is a backend with one new pool. The cases about groups are skipped unless it is a backend.GroupSnapshotter.
type Fixture struct {
	Backend backend.Storage
	// Reopen closes the pool and opens it again, as after a restart.
	Reopen func(t *testing.T) backend.Storage
	// Write and Read access a volume's content as its users do, through its file system or device.
	Write func(t *testing.T, v *backend.Volume, content []byte)
	Read  func(t *testing.T, v *backend.Volume, length int) []byte
	// Mode and FSType are those of the volumes that the suite creates.
	Mode   backend.Mode
	FSType string
	// Smallest is a valid size of the engine that can hold the content that the suite writes.
	Smallest int64
}

// Suite runs each case on a new fixture, whose pool has at least the given size.
type Suite struct {
	Open func(t *testing.T, size int64) *Fixture
}

type checker struct {
	*Fixture
	*testing.T
}

// Run runs the suite.
func (s Suite) Run(t *testing.T) {
	cases := []struct {
		name string
		run  func(checker)
	}{
		{"a created volume is found with the requested properties", created},
		{"a repeated create returns the same volume", repeatedCreate},
		{"a create that differs is refused and changes nothing", differingCreate},
		{"bad names and sizes are refused and leave nothing", badCreate},
		{"a deleted volume is gone and deleting again succeeds", deleted},
		{"an undeleted volume is the one that was deleted, with its content", undeleted},
		{"what exists or is not in the trash cannot be undeleted", undeletedInVain},
		{"of volumes of one name the last that was deleted is undeleted first", undeletedInTurn},
		{"trash is removed for requested volumes", trashGivesWay},
		{"content outlives a restart of the process", contentSurvivesReopen},
		{"a grown volume keeps its content and never shrinks", expanded},
		{"a volume is incomplete until it is said to be complete", completed},
		{"a snapshot keeps the content of its moment", snapshotKeepsContent},
		{"a restored volume holds the snapshot and is independent of it", restored},
		{"a clone holds the source and is independent of it", cloned},
		{"snapshots repeat, differ and vanish like volumes", snapshotIdempotency},
		{"a restore from what is gone is not found and leaves nothing", restoreFromNothing},
		{"a group is taken of all volumes or of none", grouped},
		{"64 creates of one name make one volume", oneNameAtOnce},
		{"64 creates of 64 names make 64 volumes", manyNamesAtOnce},
		{"capacity is never oversold by concurrent creates", neverOversold},
		{"a cancelled create converges when asked again", cancelled},
		{"an adopting process finds volumes, snapshots and promises", adopted},
		{"an adopting process finds groups", adoptedGroups},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.run(checker{s.Open(t, poolSize), t}) })
	}
}

const (
	mib      = 1 << 20
	poolSize = 6 << 30
)

func (c checker) spec(name string) backend.VolumeSpec {
	return backend.VolumeSpec{Name: name, Mode: c.Mode, FSType: c.FSType, Size: backend.Size{Required: c.Smallest}}
}

func (c checker) create(spec backend.VolumeSpec) *backend.Volume {
	c.Helper()
	v, err := c.Backend.Create(context.Background(), spec)
	if err != nil {
		c.Fatalf("create %s: %v", spec.Name, err)
	}
	return v
}

func (c checker) get(id backend.ID) *backend.Volume {
	c.Helper()
	v := check.Got(c.Backend.Get(context.Background(), id))(c.T)
	return v
}

func (c checker) snapshot(name string, source backend.ID) *backend.Snapshot {
	c.Helper()
	s, err := c.Backend.Snapshot(context.Background(), backend.SnapshotSpec{Name: name, Source: source})
	if err != nil {
		c.Fatalf("snapshot %s: %v", name, err)
	}
	return s
}

func (c checker) remove(id backend.ID) {
	c.Helper()
	if err := c.Backend.Delete(context.Background(), id); err != nil {
		c.Fatalf("delete %s: %v", id, err)
	}
}

func errorOf[T any](_ T, err error) error { return err }

// want fails unless err is of the given kind.
func (c checker) want(kind, err error) {
	c.Helper()
	if !errors.Is(err, kind) {
		c.Fatalf("got error %v, want one that is %q", err, kind)
	}
}

// holds fails unless the backend lists exactly these volumes.
func (c checker) holds(ids ...backend.ID) {
	c.Helper()
	all := check.Got(c.Backend.List(context.Background()))(c.T)
	var have []backend.ID
	for _, v := range all {
		have = append(have, v.ID)
		if v.Condition.Abnormal {
			c.Errorf("volume %s is abnormal: %s", v.ID, v.Condition.Message)
		}
	}
	slices.Sort(ids)
	if !slices.Equal(have, ids) {
		c.Fatalf("the backend lists %v, want %v", have, ids)
	}
}

// content is pseudorandom, determined by the seed.
func content(seed uint64) []byte {
	data := make([]byte, mib)
	random := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = random.Read(data) // never fails
	return data
}

// sees fails unless the volume has the content want.
func (c checker) sees(v *backend.Volume, want []byte) {
	c.Helper()
	if sha256.Sum256(c.Read(c.T, v, len(want))) != sha256.Sum256(want) {
		c.Fatalf("volume %s does not hold the content that was written", v.ID)
	}
}
