//go:build ceph

package rbd

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ceph/go-ceph/rados"
	"github.com/ceph/go-ceph/rbd"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/ceph"
	rig "github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestPool_IsTakenOnlyFromAProcessThatDoesNotAnswer(t *testing.T) {
	if os.Getenv(crashing) != "" {
		hold(t)
		return
	}
	at := newPool(t, 0)
	given, err := json.Marshal(shownPool{at, string(at.Key)})
	check.OK(t, err)
	first := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run", "^"+t.Name()+"$")
	first.Env = append(os.Environ(), crashing+"=hold", crashingPool+"="+string(given))
	in, err := first.StdinPipe()
	check.OK(t, err)
	out, err := first.StdoutPipe()
	check.OK(t, err)
	check.OK(t, first.Start())
	t.Cleanup(func() { first.Process.Kill(); _ = first.Wait() }) // it may have ended
	says := bufio.NewReader(out)
	if line, err := says.ReadString('\n'); err != nil || line != "first: <nil>\n" {
		t.Fatalf("the first process says %q, %v", line, err)
	}
	b, _ := open(t, at, Config{})
	if err := created(t.Context(), b, "second"); !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "served by another process") {
		t.Fatalf("beside the first process: %v", err)
	}
	check.OK(t, first.Process.Signal(syscall.SIGSTOP))
	if err := created(t.Context(), b, "second"); err != nil {
		t.Fatalf("beside a process that hangs: %v", err)
	}
	check.OK(t, first.Process.Signal(syscall.SIGCONT))
	check.Got(io.WriteString(in, "\n"))(t)
	if line, err := says.ReadString('\n'); err != nil || !strings.HasPrefix(line, "late: ") || strings.Contains(line, "<nil>") {
		t.Errorf("the first process, which was cut off, says %q, %v", line, err)
	}
	all, err := b.List(t.Context())
	if err != nil || len(all) != 2 {
		t.Errorf("the pool holds %+v, %v, want what both made while they had it", all, err)
	}
}

// hold has the pool, and makes another volume on a line of its input.
func hold(t *testing.T) {
	var given shownPool
	check.OK(t, json.Unmarshal([]byte(os.Getenv(crashingPool)), &given))
	given.Config.Key = ceph.Key(given.Secret)
	b, _ := open(t, given.Config, Config{})
	fmt.Println("first:", created(t.Context(), b, "first"))
	check.Got(bufio.NewReader(os.Stdin).ReadString('\n'))(t)
	fmt.Println("late:", strings.ReplaceAll(fmt.Sprint(created(t.Context(), b, "late")), "\n", " "))
}

func TestPromises_AreNotOversoldByTwoProcesses(t *testing.T) {
	at := newPool(t, 0)
	const processes, each, most = 2, 20, 25
	var wait sync.WaitGroup
	hands(t, at, func(one *rados.IOContext) {
		hands(t, at, func(other *rados.IOContext) {
			for i, ioctx := range []*rados.IOContext{one, other} {
				l, err := openLedger(ioctx)
				if err != nil {
					t.Error(err)
					return
				}
				for n := range each {
					wait.Go(func() {
						err := l.change(map[string]*promise{fmt.Sprintf("volume.%d-%d", i, n): {Charge: 1, State: complete}}, func(promised, more int64) error {
							if promised+more > most {
								return backend.ErrExhausted
							}
							return nil
						})
						if err != nil && !errors.Is(err, backend.ErrExhausted) {
							t.Error(err)
						}
					})
				}
			}
			wait.Wait()
		})
		l := &ledger{ioctx: one}
		sum, err := l.promised()
		entries, err2 := l.all()
		if err := errors.Join(err, err2); err != nil || sum != most || len(entries) != most {
			t.Errorf("%d are promised to %d, %v, want %d of the %d that were requested", sum, len(entries), err, most, processes*each)
		}
	})
}

func TestPromises_ThatWaitAreWrittenAtOnce(t *testing.T) {
	at := newPool(t, 0)
	hands(t, at, func(ioctx *rados.IOContext) {
		l := check.Got(openLedger(ioctx))(t)
		check.Got(l.get("volume.0"))(t)
		before := l.version
		const all, most = 50, 49
		var (
			wait    sync.WaitGroup
			refused atomic.Int64
		)
		l.mu.Lock()
		for n := range all {
			wait.Go(func() {
				err := l.change(map[string]*promise{fmt.Sprintf("volume.%d", n): {Charge: 1, State: building}}, func(promised, more int64) error {
					if promised+more > most {
						return backend.ErrExhausted
					}
					return nil
				})
				if errors.Is(err, backend.ErrExhausted) {
					refused.Add(1)
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		for waiting := 0; waiting < all; runtime.Gosched() {
			l.queueing.Lock()
			waiting = len(l.queue)
			l.queueing.Unlock()
		}
		l.mu.Unlock()
		wait.Wait()
		if n := l.version - before; n != 1 || refused.Load() != all-most { // each write makes a version of its placement group
			t.Errorf("%d writes, %d refused, want 1 and %d", n, refused.Load(), all-most)
		}
		sum, err := l.promised()
		entries, err2 := l.all()
		if err := errors.Join(err, err2); err != nil || sum != most || len(entries) != most {
			t.Errorf("%d are promised to %d, %v", sum, len(entries), err)
		}
	})
}

func TestCapacity_IsWhatTheMonitorsHaveJustReported(t *testing.T) {
	_, b, _ := openWith(t, Config{}, "a")
	s := b.current.Load()
	s.usage = ceph.Usage{Free: size}
	for _, test := range []struct {
		at    time.Time
		again bool
	}{{time.Now().Add(time.Hour), false}, {time.Now().Add(-measuredFor), true}} {
		s.measured = test.at
		if c, err := b.Capacity(t.Context(), ""); err != nil || c.Total == size == test.again {
			t.Errorf("there are %d, %v; measured again: %v", c.Total, err, test.again)
		}
	}
}

func TestImageOfOthers_IsLeftAlone(t *testing.T) {
	at := newPool(t, 0)
	for _, name := range []string{"backup", "volume.a"} {
		check.Got(small.Command(t.Context(), "rbd", "create", "--size", "16M", at.Pool+"/"+name))(t)
	}
	b, end := open(t, at, Config{})
	if err := created(t.Context(), b, "a"); !errors.Is(err, backend.ErrExists) || !strings.Contains(err.Error(), "not of Holdfast") {
		t.Errorf("its name is taken: %v", err)
	}
	check.Report(t, b.Delete(t.Context(), "a"))
	if all, err := b.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("it is listed: %+v, %v", all, err)
	}
	end()
	if names, err := small.Command(t.Context(), "rbd", "ls", at.Pool); err != nil || names != "backup\nvolume.a" {
		t.Errorf("the pool holds %q, %v", names, err)
	}
}

func TestImage_ThatReplacedOneOfOursIsLeftAlone(t *testing.T) {
	at, b, end := openWith(t, Config{}, "a", "b")
	do := func(args ...string) string {
		return check.Got(small.Command(t.Context(), "rbd", args...))(t)
	}
	do("image-meta", "remove", at.Pool+"/volume.a", metaKey)
	do("rename", at.Pool+"/volume.b", at.Pool+"/other")
	do("create", "--size", "16M", at.Pool+"/volume.b")
	for _, when := range []string{"at once", "after a restart"} {
		for _, id := range []backend.ID{"a", "b"} {
			v, err := b.Get(t.Context(), id)
			if err != nil || !v.Condition.Abnormal || !strings.Contains(v.Condition.Message, "rbd migration") {
				t.Errorf("%s, %s: %+v, %v", when, id, v, err)
			}
			if err := created(t.Context(), b, string(id)); !errors.Is(err, backend.ErrPrecondition) {
				t.Errorf("%s, %s is made again: %v", when, id, err)
			}
		}
		if names := do("ls", at.Pool); names != "other\nvolume.a\nvolume.b" {
			t.Fatalf("%s the pool holds %q", when, names)
		}
		end()
		b, end = open(t, at, Config{TrashRetention: time.Hour})
	}
	for _, id := range []backend.ID{"a", "b"} {
		check.Report(t, b.Delete(t.Context(), id))
	}
	if names := do("ls", at.Pool); names != "other" {
		t.Errorf("the pool holds %q", names)
	}
	if trash := do("trash", "ls", at.Pool); !strings.Contains(trash, "volume.a") || !strings.Contains(trash, "volume.b") {
		t.Errorf("the trash holds %q", trash)
	}
}

// The command is run as the message of the volume has it.
func TestImage_WhoseMetadataIsGoneIsWholeAgainByTheCommandThatTheMessageNames(t *testing.T) {
	at, b, end := openWith(t, Config{})
	spec := backend.VolumeSpec{Name: "a", Size: backend.Size{Required: 2 * size}}
	a := check.Got(b.Create(t.Context(), spec))(t)
	check.Got(b.Create(t.Context(), backend.VolumeSpec{Name: "other", Size: backend.Size{Required: size}}))(t)
	content := read(t, at, a, 2*size)
	do := func(args ...string) []byte {
		return []byte(check.Got(small.Command(t.Context(), "rbd", args...))(t))
	}
	do("image-meta", "remove", at.Pool+"/volume.a", metaKey)
	message := check.Got(b.Get(t.Context(), "a"))(t).Condition.Message
	_, command, _ := strings.Cut(message, "with `rbd ")
	command, _, _ = strings.Cut(command, "`")

	var m map[string]any
	var info struct{ ID string }
	check.OK(t, errors.Join(json.Unmarshal(do("image-meta", "get", at.Pool+"/volume.other", metaKey), &m), json.Unmarshal(do("info", "--format", "json", at.Pool+"/volume.a"), &info)))
	m["id"], m["name"], m["size"], m["image"] = a.ID, a.Name, a.Size, info.ID
	given := map[string]string{"IMAGE": at.Pool + "/volume.a", "JSON": string(check.Got(json.Marshal(m))(t))}
	var args []string
	for word := range strings.FieldsSeq(command) {
		args = append(args, cmp.Or(given[word], word))
	}
	do(args...)
	for range 2 {
		v := check.Got(b.Create(t.Context(), spec))(t)
		if v.Condition.Abnormal || v.Size != a.Size || v.Access.RBD.ImageID != a.Access.RBD.ImageID || !bytes.Equal(read(t, at, v, 2*size), content) {
			t.Errorf("after rbd %s it is %+v", command, v)
		}
		end()
		b, end = open(t, at, Config{})
	}
	hasFileSystem(t, at, check.Got(b.Clone(t.Context(), "a", backend.VolumeSpec{Name: "copy"}))(t))
}

// filled writes into volume a.
func filled(t *testing.T, at ceph.Config, b *Backend) (a *backend.Volume, content []byte) {
	t.Helper()
	a = check.Got(b.Get(t.Context(), "a"))(t)
	content = bytes.Repeat([]byte("content "), mib/8)
	write(t, at, a, content)
	return a, content
}

func TestSource_IsGoneForGoodOnceItsCopiesHaveContentOfTheirOwn(t *testing.T) {
	at, b, end := openWith(t, Config{TrashRetention: backend.NoTrash}, "a")
	ctx := t.Context()
	_, content := filled(t, at, b)
	c := check.Got(b.Clone(ctx, "a", backend.VolumeSpec{Name: "c"}))(t)
	check.OK(t, b.Delete(ctx, "a"))
	if is, err := b.Capacity(ctx, ""); err != nil || is.Promised != 2*size {
		t.Errorf("%d are promised, %v, while the copy needs the content of the deleted volume, want %d", is.Promised, err, 2*size)
	}
	check.OK(t, b.emptyTrash(ceph.Background(ctx), time.Now()))
	if got := read(t, at, c, len(content)); !bytes.Equal(got, content) {
		t.Error("the copy has lost its content")
	}
	end()
	checkLeft(t, at, operation{leaves: []string{"volume.c"}})
}

// Ceph says of an image that is in use what it says of one that copies need.
func TestTrash_ImageThatAClientHasKeepsItsContentUntilThatEnds(t *testing.T) {
	at, b, end := openWith(t, Config{TrashRetention: time.Hour}, "a")
	defer end()
	v, content := filled(t, at, b)
	check.OK(t, b.Delete(t.Context(), "a"))
	later := time.Now().Add(2 * time.Hour)
	hands(t, at, func(pool *rados.IOContext) {
		image := check.Got(rbd.OpenImageById(pool, v.Access.RBD.ImageID, rbd.NoSnapshot))(t)
		defer image.Close()
		for _, now := range []time.Time{time.Now(), later} {
			check.Report(t, b.emptyTrash(ceph.Background(t.Context()), now))
		}
		got := make([]byte, len(content))
		if _, err := image.ReadAt(got, 0); err != nil || !bytes.Equal(got, content) {
			t.Errorf("it has lost its content: %v", err)
		}
	})
	check.Report(t, b.emptyTrash(ceph.Background(t.Context()), later))
	if listed, err := small.Command(t.Context(), "rbd", "trash", "ls", "--all", at.Pool); err != nil || strings.Contains(listed, "volume.a") {
		t.Errorf("the trash of Ceph has %q, %v", listed, err)
	}
}

// TestTrash_MoveThatWasCutShortIsFinished has images in the states in which a kill leaves them while Ceph moves them.
func TestTrash_MoveThatWasCutShortIsFinished(t *testing.T) {
	for name, test := range map[string]struct {
		retention time.Duration
		cut       func(t *testing.T, pool *rados.IOContext, image string)
		volume    bool // it is there afterwards
	}{
		"the image has its name": {backend.NoTrash, func(t *testing.T, pool *rados.IOContext, image string) {
			check.OK(t, pool.SetOmap("rbd_trash", map[string][]byte{"id_" + image: cutShort("volume.a")}))
		}, true},
		"its name is gone":                         {backend.NoTrash, moveCutShort, false},
		"its name is gone, and it can be restored": {time.Hour, moveCutShort, false},
	} {
		t.Run(name, func(t *testing.T) {
			at, b, end := openWith(t, Config{TrashRetention: test.retention}, "a")
			v, content := filled(t, at, b)
			end()
			hands(t, at, func(pool *rados.IOContext) { test.cut(t, pool, v.Access.RBD.ImageID) })

			b, end = open(t, at, Config{TrashRetention: test.retention})
			defer end()
			if all, err := b.List(t.Context()); err != nil || len(all) > 0 != test.volume {
				t.Fatalf("the pool has %+v, %v", all, err)
			}
			if is, err := b.Capacity(t.Context(), ""); err != nil || is.Promised > 0 != (test.volume || test.retention > 0) {
				t.Errorf("%d are promised, %v", is.Promised, err)
			}
			if test.retention > 0 {
				var err error
				if v, err = b.Undelete(t.Context(), "a"); err != nil {
					t.Fatal(err)
				}
			}
			if test.volume || test.retention > 0 {
				if got := read(t, at, v, len(content)); !bytes.Equal(got, content) {
					t.Error("the volume has lost its content")
				}
			}
			check.Report(t, b.Delete(t.Context(), "a"))
			if left, err := small.Command(t.Context(), "rbd", "trash", "ls", "--all", at.Pool); test.retention == backend.NoTrash && (err != nil || left != "") {
				t.Errorf("in the trash there is %q, %v", left, err)
			}
		})
	}
}

// moveCutShort makes an image one that lacks its name, and of which the trash does not say that it has moved.
func moveCutShort(t *testing.T, pool *rados.IOContext, image string) {
	t.Helper()
	check.OK(t, rbd.GetImage(pool, "volume.a").Trash(0))
	key := "id_" + image
	spec, err := pool.GetOmapValues("rbd_trash", "", key, 1)
	if err != nil || len(spec[key]) == 0 {
		t.Fatalf("the trash has %q, %v", spec, err)
	}
	spec[key][len(spec[key])-1] = moving
	check.OK(t, pool.SetOmap("rbd_trash", spec))
}

// moving is the last byte of what the trash has of an image while it is moved.
const moving = 1

// cutShort is what the trash has of an image at the beginning of a move: a structure with its version, its length, the source,
// the name, two times, and the state.
func cutShort(name string) []byte {
	body := binary.LittleEndian.AppendUint32([]byte{0}, uint32(len(name)))
	body = append(append(body, name...), make([]byte, 2*8)...)
	body = append(body, moving)
	return append(binary.LittleEndian.AppendUint32([]byte{2, 1}, uint32(len(body))), body...)
}

// TestHeader_RenewedImageIsWhatItWas replaces the headers of images that a snapshot and a copy connect.
func TestHeader_RenewedImageIsWhatItWas(t *testing.T) {
	at, b, end := openWith(t, Config{TrashRetention: backend.NoTrash}, "a")
	ctx := t.Context()
	a, content := filled(t, at, b)
	check.Got(b.Snapshot(ctx, backend.SnapshotSpec{Name: "s", Source: "a"}))(t)
	c := check.Got(b.Restore(ctx, "s", backend.VolumeSpec{Name: "c"}))(t)
	renew := func() {
		objects := check.Got(small.Command(ctx, "rados", "-p", at.Pool, "ls"))(t)
		renewed := 0
		for object := range strings.FieldsSeq(objects) {
			if strings.HasPrefix(object, headerObject("")) {
				check.OK(t, b.current.Load().renewHeader(object))
				renewed++
			}
		}
		if renewed != 3 {
			t.Errorf("there are %d headers", renewed)
		}
	}
	renew()
	for _, v := range []*backend.Volume{a, c} {
		if got := read(t, at, v, len(content)); !bytes.Equal(got, content) {
			t.Errorf("volume %s has lost its content", v.ID)
		}
	}
	if grown, err := b.Expand(ctx, "a", backend.Size{Required: 2 * size}); err != nil || grown.Size != 2*size {
		t.Errorf("it grows to %+v, %v", grown, err)
	}
	renew()
	for _, err := range []error{b.DeleteSnapshot(ctx, "s"), b.emptyTrash(ceph.Background(ctx), time.Now()), b.Delete(ctx, "a")} {
		check.Report(t, err)
	}
	if got := read(t, at, c, len(content)); !bytes.Equal(got, content) {
		t.Error("without its snapshot the copy has lost its content")
	}
	check.Report(t, b.Delete(ctx, "c"))
	end()
	checkLeft(t, at, operation{})
}

func TestCopiesOfCopies_DoNotNeedMoreImagesThanTheKernelMaps(t *testing.T) {
	_, b, _ := openWith(t, Config{}, "c0")
	ctx := t.Context()
	last := 0
	for i := range deepest + 3 {
		source := backend.ID(fmt.Sprintf("c%d", i))
		last = i + 1
		check.Got(b.Clone(ctx, source, backend.VolumeSpec{Name: fmt.Sprintf("c%d", last)}))(t)
		n, err := call(ctx, b, "depth", func(s *session) (int, error) { return s.depth(fmt.Sprintf("volume.c%d", last)) })
		if err != nil || n > deepest {
			t.Fatalf("copy %d needs %d images, %v", last, n, err)
		}
	}
	check.OK(t, b.flattenImage(ceph.Background(ctx), fmt.Sprintf("volume.c%d", deepest)))
	if n, err := call(ctx, b, "depth", func(s *session) (int, error) { return s.depth(fmt.Sprintf("volume.c%d", deepest)) }); err != nil || n > shallow {
		t.Errorf("a flattened image needs %d, %v", n, err)
	}
}

func TestCopies_OfEachOtherDoNotWaitForEachOther(t *testing.T) {
	_, b, _ := openWith(t, Config{}, "other")
	ctx := t.Context()
	const times = 20
	var wait sync.WaitGroup
	for name, f := range map[string]func() error{
		"a of c": func() error { _, err := b.Clone(ctx, "c", backend.VolumeSpec{Name: "a"}); return err },
		"c of a": func() error { _, err := b.Clone(ctx, "a", backend.VolumeSpec{Name: "c"}); return err },
		"a of s": func() error { _, err := b.Restore(ctx, "s", backend.VolumeSpec{Name: "a"}); return err },
		"s of a": func() error { return snapshotOf(ctx, b, "s", "a") },
	} {
		wait.Go(func() {
			for range times {
				if err := f(); !errors.Is(err, backend.ErrNotFound) {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	wait.Wait()
}

func TestUsed_IsWhatTheImageTakesOfThePool(t *testing.T) {
	at, b, _ := openWith(t, Config{}, "a")
	ctx := t.Context()
	const object = 4 * mib // of Ceph: the unit
	a := used(t, b, "a", 0)
	write(t, at, a, []byte("content"))
	used(t, b, "a", object)
	check.Got(b.Clone(ctx, "a", backend.VolumeSpec{Name: "c"}))(t)
	used(t, b, "a", object)
	used(t, b, "c", 0)
	check.Got(small.Command(ctx, "rbd", "feature", "disable", at.Pool+"/volume.a", "fast-diff"))(t)
	used(t, b, "a", size) // at most
}

// used measures a volume as both calls do that show it.
func used(t *testing.T, b *Backend, id backend.ID, want int64) *backend.Volume {
	t.Helper()
	b.usages.keep(nil)
	v, err := b.Get(t.Context(), id)
	if err != nil || v.Used != want {
		t.Errorf("%s uses %+v, %v, want %d", id, v, err, want)
	}
	b.usages.keep(nil)
	all, err := b.List(t.Context())
	check.OK(t, err)
	for _, other := range all {
		if other.ID == id && other.Used != want {
			t.Errorf("%s is listed with %d used, want %d", id, other.Used, want)
		}
	}
	return v
}

func TestCluster_ThatDoesNotAnswerIsUnavailableInSeconds(t *testing.T) {
	for _, d := range []rig.Daemon{rig.Monitor, rig.OSD} {
		t.Run(string(d), func(t *testing.T) {
			at := newPool(t, 0)
			at.Patience = 3 * time.Second
			b, _ := open(t, at, Config{})
			retry := func(what string, f func() error) {
				t.Helper()
				tick := time.NewTicker(100 * time.Millisecond)
				defer tick.Stop()
				late := time.After(rig.Patience)
				for err := f(); err != nil; err = f() {
					select {
					case <-tick.C:
					case <-late:
						t.Fatalf("%s: %v", what, err)
					}
				}
			}
			retry("before", func() error { return created(t.Context(), b, "a") })
			b.current.Load().measured = time.Time{}
			check.OK(t, small.Pause(d))
			paused := true
			resume := func() {
				if paused {
					paused = false
					check.Report(t, errors.Join(small.Resume(d), small.AwaitHealthy(context.Background())))
				}
			}
			defer resume()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for range 2 {
				err := created(ctx, b, "b")
				said := fmt.Sprint(err) // the library gives commands to monitors up as late as their callers
				if !errors.Is(err, backend.ErrUnavailable) || ctx.Err() != nil || !strings.Contains(said, "has been running for") && !strings.Contains(said, "has not answered in time") {
					t.Errorf("got %v", err)
				}
			}
			resume()
			retry("after", func() error { return created(t.Context(), b, "b") })
			retry("after", func() error {
				all, err := b.List(t.Context())
				if err == nil && len(all) != 2 {
					err = fmt.Errorf("the pool holds %d volumes", len(all))
				}
				return err
			})
		})
	}
}

func TestClient_ThatWatchesAnImageIsSeen(t *testing.T) {
	at, b, _ := openWith(t, Config{}, "a")
	of := func(known ...string) string {
		t.Helper()
		return check.Got(b.ClientOf(t.Context(), "a", known))(t)
	}
	if client := of(); client != "" {
		t.Errorf("no client has it open, and it says %s", client)
	}
	var client string
	hands(t, at, func(ioctx *rados.IOContext) {
		image := check.Got(rbd.OpenImage(ioctx, "volume.a", rbd.NoSnapshot))(t)
		defer image.Close()
		client = of()
		if _, err := netip.ParseAddrPort(strings.Split(client, "/")[0]); err != nil {
			t.Errorf("the client is %q", client)
		}
		if other := of("10.0.0.5:0/1", client); other != "" {
			t.Errorf("beside the one that is known there is %s", other)
		}
		if out, err := small.Command(t.Context(), "ceph", "osd", "blocklist", "add", client); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if other := of(); other != "" {
			t.Errorf("%s is shut out", other)
		}
	})
	if _, err := b.ClientOf(t.Context(), "none", nil); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("of no volume: %v", err)
	}
}
