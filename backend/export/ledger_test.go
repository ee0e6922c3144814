package export

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func open(t testing.TB, dir string, most int) *ledger {
	t.Helper()
	return check.Got(openLedger(dir, most, false, slog.New(slog.DiscardHandler)))(t)
}

func volume(id string) *backend.Volume {
	return &backend.Volume{ID: backend.ID(id), Created: time.Unix(1_700_000_000, 42)}
}

func assign(t testing.TB, l *ledger, id string) identity {
	t.Helper()
	return check.Got(l.assign(volume(id)))(t)
}

func retire(t testing.TB, l *ledger, id string) {
	t.Helper()
	check.OK(t, l.retire(backend.ID(id)))
}

func TestLedger_ThousandVolumesHaveIDsWithoutGapsThatOutliveARestart(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, mostIDs)
	given := map[string]identity{}
	filesystems := map[string]bool{}
	for i := range 1000 {
		id := fmt.Sprintf("pvc-%d", i)
		made := assign(t, l, id)
		if int(made.ID) != i+1 {
			t.Fatalf("volume %d has export ID %d", i, made.ID)
		}
		major, minor, _ := strings.Cut(made.Filesystem, ".")
		if filesystems[made.Filesystem] || major == minor || major == "0" || minor == "0" {
			t.Errorf("volume %d has file system ID %s", i, made.Filesystem)
		}
		given[id], filesystems[made.Filesystem] = made, true
	}
	if given["pvc-151"].ID != 152 {
		t.Errorf("ID 152 was passed over: %+v", given["pvc-151"])
	}
	l = open(t, dir, mostIDs)
	for id, made := range given {
		if again := assign(t, l, id); again != made {
			t.Errorf("after a restart %s is %+v, was %+v", id, again, made)
		}
	}
}

func TestLedger_VolumeOfTheSameNameHasAnotherIdentity(t *testing.T) {
	l := open(t, t.TempDir(), mostIDs)
	before := assign(t, l, "a")
	retire(t, l, "a")
	recreated := volume("a")
	recreated.Created = recreated.Created.Add(time.Nanosecond)
	after, err := l.assign(recreated)
	if err != nil || after.ID == before.ID || after.Filesystem == before.Filesystem {
		t.Errorf("it is %+v, %v; was %+v", after, err, before)
	}
	again := open(t, t.TempDir(), mostIDs)
	if same := assign(t, again, "a"); same.Filesystem != before.Filesystem {
		t.Errorf("the same volume is %+v on another server, was %+v", same, before)
	}
}

func TestLedger_UsedIDIsReusedLastAndTheLongestFreeFirst(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, mostIDs)
	l.book.Next = mostIDs - 2
	for _, id := range []string{"a", "b", "c"} {
		assign(t, l, id)
	}
	retire(t, l, "b")
	retire(t, l, "a")
	retire(t, l, "a") // idempotent
	l = open(t, dir, mostIDs)
	var got []uint16
	for _, id := range []string{"d", "e"} {
		got = append(got, assign(t, l, id).ID)
	}
	if want := []uint16{mostIDs - 1, mostIDs - 2}; !slices.Equal(got, want) {
		t.Errorf("after the last ID come %v, want %v", got, want)
	}
	check.Fails(t, check.ErrorOf(l.assign(volume("f"))), backend.ErrExhausted, "65535") // without any free ID
}

func TestLedger_AdmitsNoMoreVolumesThanMayBeExported(t *testing.T) {
	l := open(t, t.TempDir(), 10)
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			id := fmt.Sprintf("v-%d", i)
			release, err := l.reserve(backend.ID(id))
			if err != nil {
				check.Fails(t, err, backend.ErrExhausted, "may export 10")
				return
			}
			assign(t, l, id)
			release()
		})
	}
	all.Wait()
	if got := len(l.ids()); got != 10 || !l.isFull() {
		t.Errorf("%d are exported, full: %t", got, l.isFull())
	}
	if release, err := l.reserve(l.ids()[0]); err != nil {
		t.Errorf("one that is exported already: %v", err)
	} else {
		release()
	}
}

// A write is four syncs of the server's disk.
func TestLedger_VolumesThatWaitAreWrittenTogether(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, mostIDs)
	l.writing.Lock()
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() { check.Report(t, check.ErrorOf(l.assign(volume(fmt.Sprintf("v-%d", i))))) })
	}
	wait.Until(t, "50 volumes that wait", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.waiting.changes) == 50
	})
	l.writing.Unlock()
	all.Wait()
	l = open(t, dir, mostIDs) // which fails if two have the same identity
	if l.book.Generation != 1 || len(l.ids()) != 50 || l.book.Next != 51 {
		t.Errorf("the list was written %d times and has %d volumes, the next ID is %d", l.book.Generation, len(l.ids()), l.book.Next)
	}
}

func TestLedger_UnusedEntryIsFreeAgain(t *testing.T) {
	l := open(t, t.TempDir(), 1)
	release := check.Got(l.reserve("a"))(t)
	check.Fails(t, check.ErrorOf(l.reserve("b")), backend.ErrExhausted) // beside a volume that is being made
	release()
	check.Report(t, check.ErrorOf(l.reserve("b")))
}

// damages are changes of a file, each of which must be detected.
var damages = map[string]func([]byte) []byte{
	"empty":         func([]byte) []byte { return nil },
	"cut":           func(b []byte) []byte { return b[:len(b)/2] },
	"zeros":         func(b []byte) []byte { return make([]byte, len(b)) },
	"another digit": func(b []byte) []byte { return bytes.Replace(b, []byte(`"next":3`), []byte(`"next":2`), 1) },
	"another name":  func(b []byte) []byte { return bytes.Replace(b, []byte(`"a"`), []byte(`"x"`), 1) },
	"other words":   func([]byte) []byte { return []byte("null") },
	"no digest":     func(b []byte) []byte { return bytes.Replace(b, []byte("digest"), []byte("digesT_"), 1) },
}

func damage(t *testing.T, path string, how func([]byte) []byte) {
	t.Helper()
	data := check.Got(os.ReadFile(path))(t)
	changed := how(data)
	if bytes.Equal(changed, data) {
		t.Fatalf("nothing in %s was damaged", data)
	}
	check.OK(t, os.WriteFile(path, changed, 0o600))
}

func TestLedger_EitherOfTheTwoListsSuffices(t *testing.T) {
	for name, how := range damages {
		for _, file := range []func(files) string{files.main, files.copy} {
			dir := t.TempDir()
			l := open(t, dir, mostIDs)
			a, b := assign(t, l, "a"), assign(t, l, "b")
			path := file(l.files)
			damage(t, path, how)
			for range 2 { // the second time both are intact
				l = open(t, dir, mostIDs)
				if assign(t, l, "a") != a || assign(t, l, "b") != b || l.book.Next != 3 {
					t.Errorf("%s, %s: the list is %+v", name, filepath.Base(path), l.book)
				}
			}
			if _, err := readSheet(path); err != nil {
				t.Errorf("%s was not put right: %v", name, err)
			}
			check.OK(t, os.Remove(path))
			if l = open(t, dir, mostIDs); assign(t, l, "b") != b {
				t.Errorf("%s removed: the list is %+v", filepath.Base(path), l.book)
			}
		}
	}
}

// A link that leads nowhere is no missing list, whose ids would be given out a second time, and a FIFO does not block.
func TestLedger_ListsThatAreNoFilesAreRefused(t *testing.T) {
	for name, replace := range map[string]func(path string) error{
		"link": func(path string) error { return os.Symlink("nowhere", path) },
		"FIFO": func(path string) error { return unix.Mkfifo(path, 0o600) },
		"too large": func(path string) error {
			return errors.Join(os.WriteFile(path, []byte(blank), 0o600), os.Truncate(path, maxSheet+1))
		},
	} {
		f := files{dir: t.TempDir()}
		for _, path := range []string{f.main(), f.copy()} {
			check.OK(t, replace(path))
		}
		if l, err := openLedger(f.dir, mostIDs, false, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "must be a file of at most") {
			t.Errorf("%s: got %+v, %v", name, l, err)
		}
	}
}

func TestLedger_AllocatesNoIDWhenBothListsAreDamaged(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, mostIDs)
	assign(t, l, "a")
	assign(t, l, "b")
	damage(t, l.files.main(), damages["another digit"])
	damage(t, l.files.copy(), damages["cut"])
	for _, volumes := range []bool{true, false} {
		_, err := openLedger(dir, mostIDs, volumes, slog.New(slog.DiscardHandler))
		check.Fails(t, err, backend.ErrUnavailable, l.files.main(), blank)
	}
	// What it says.
	check.OK(t, os.Remove(l.files.copy()))
	check.OK(t, os.WriteFile(l.files.main(), []byte(blank), 0o600))
	if l := open(t, dir, mostIDs); len(l.ids()) != 0 || assign(t, l, "a").ID != 1 {
		t.Errorf("recreated, the list is %+v", l.book)
	}
}

func TestLedger_MissingListIsNotRecreatedWhereVolumesExist(t *testing.T) {
	dir := t.TempDir()
	_, err := openLedger(dir, mostIDs, true, slog.New(slog.DiscardHandler))
	if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "exports.json") {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("there is %v, %v", entries, err)
	}
}

func TestLedger_ListOfANewerReleaseIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, mostIDs)
	newer := []byte(`{"version": 2, "digest": "", "book": {}}`)
	check.OK(t, os.WriteFile(l.files.main(), newer, 0o600))
	_, err := openLedger(dir, mostIDs, false, slog.New(slog.DiscardHandler))
	check.Fails(t, err, nil, "newer program")
	if now, err := os.ReadFile(l.files.main()); err != nil || !bytes.Equal(now, newer) {
		t.Errorf("it is %s, %v", now, err)
	}
}

func TestLedger_MoreCompleteListIsUsed(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, mostIDs)
	assign(t, l, "a")
	before := check.Got(os.ReadFile(l.files.main()))(t)
	b := assign(t, l, "b")
	for _, path := range []string{l.files.main(), l.files.copy()} {
		check.OK(t, os.WriteFile(path, before, 0o600))
		again := open(t, dir, mostIDs)
		if known, _ := again.find("b"); known != b {
			t.Errorf("with an old %s the list is %+v", filepath.Base(path), again.book)
		}
	}
}

func TestLedger_IdentityThatCannotBeRecordedIsNotAllocated(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	check.OK(t, os.Mkdir(dir, 0o700))
	l := open(t, dir, mostIDs)
	check.OK(t, os.Rename(dir, dir+".away"))
	if made, err := l.assign(volume("a")); !errors.Is(err, backend.ErrUnavailable) || len(l.ids()) > 0 {
		t.Errorf("given was %+v, %v", made, err)
	}
	check.OK(t, os.Rename(dir+".away", dir))
	a := assign(t, l, "a")
	if again := open(t, dir, mostIDs); assign(t, again, "a") != a || a.ID != 1 {
		t.Errorf("recorded is %+v, given was %+v", again.book, a)
	}
}

func TestLedger_ForeignFileIsRefused(t *testing.T) {
	one := identity{ID: 1, Filesystem: "1.2"}
	for name, b := range map[string]book{
		"no next":          {Exports: map[backend.ID]identity{}},
		"no exports":       {Next: 1},
		"next too high":    {Next: mostIDs + 2, Exports: map[backend.ID]identity{}},
		"ID 0":             {Next: 2, Exports: map[backend.ID]identity{"a": {Filesystem: "1.2"}}},
		"ID beyond next":   {Next: 1, Exports: map[backend.ID]identity{"a": one}},
		"ID twice":         {Next: 2, Exports: map[backend.ID]identity{"a": one, "b": {ID: 1, Filesystem: "1.3"}}},
		"in use and freed": {Next: 2, Exports: map[backend.ID]identity{"a": one}, Freed: []uint16{1}},
		"freed twice":      {Next: 2, Exports: map[backend.ID]identity{}, Freed: []uint16{1, 1}},
		"file system":      {Next: 3, Exports: map[backend.ID]identity{"a": one, "b": {ID: 2, Filesystem: "1.2"}}},
		"no file system":   {Next: 2, Exports: map[backend.ID]identity{"a": {ID: 1}}},
		"hostile name":     {Next: 2, Exports: map[backend.ID]identity{"../a": one}},
	} {
		if err := b.check(); err == nil {
			t.Errorf("%s: it was accepted", name)
		}
	}
}

func FuzzParseNeverPanicsAndAcceptsOnlySoundBooks(f *testing.F) {
	f.Add([]byte(blank))
	f.Add([]byte(`{"version":1,"digest":"x","book":{"next":1,"exports":{}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if b, err := parse(data); err == nil && b.check() != nil {
			t.Errorf("accepted %+v", b)
		}
	})
}
