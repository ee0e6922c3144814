package nodeops

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

const testGroup = 4321

func modeAndGroup(t testing.TB, path string) string {
	t.Helper()
	var st unix.Stat_t
	check.OK(t, unix.Lstat(path, &st))
	return fmt.Sprintf("%o %d:%d", st.Mode&0o7777, st.Uid, st.Gid)
}

func TestGroup_MayUseTheWholeTreeAndNothingOutside(t *testing.T) {
	requireRoot(t)
	outside := write(t, filepath.Join(t.TempDir(), "outside"), "")
	before := modeAndGroup(t, outside)
	top := filepath.Join(t.TempDir(), "top")
	at := func(name string) string { return filepath.Join(top, name) }
	check.OK(t, errors.Join(os.MkdirAll(at("dir/sub"), 0o755), os.Chmod(at("dir"), 0o700), os.Mkdir(at("mount"), 0o755),
		os.WriteFile(at("plain"), nil, 0o604), os.WriteFile(at("dir/sub/run"), nil, 0o700), os.WriteFile(at("dir/suid"), nil, 0o755),
		os.Symlink(outside, at("link")), os.Chown(at("dir"), 1000, 1000), os.Chmod(at("dir/suid"), 0o775|fs.ModeSetuid),
		unix.Mkfifo(at("fifo"), 0o600)))
	t.Cleanup(func() { unmountAll(t, at("mount")) })
	check.OK(t, unix.Mount("none", at("mount"), "tmpfs", 0, "mode=755"))
	check.OK(t, SetGroup(t.Context(), top, testGroup))
	for name, want := range map[string]string{
		"":            "2775 0:4321",
		"dir":         "2770 1000:4321",
		"dir/sub":     "2775 0:4321",
		"dir/sub/run": "770 0:4321",
		"dir/suid":    "4775 0:4321",
		"plain":       "664 0:4321",
		"fifo":        "660 0:4321",
		"link":        "777 0:4321",
		"mount":       "755 0:0",
	} {
		if got := modeAndGroup(t, at(name)); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
	check.Same(t, modeAndGroup(t, outside), before)
	if got := modeAndGroup(t, write(t, at("new"), "")); !strings.HasSuffix(got, fmt.Sprint(":", testGroup)) {
		t.Errorf("a new file is %s", got)
	}
}

func TestGroup_TreeWithACorrectTopIsSkipped(t *testing.T) {
	requireRoot(t)
	top := t.TempDir()
	check.OK(t, SetGroup(t.Context(), top, testGroup))
	file := write(t, filepath.Join(top, "file"), "")
	check.OK(t, os.Chown(file, 0, 5))
	before := modeAndGroup(t, file)
	check.OK(t, SetGroup(t.Context(), top, testGroup))
	check.Same(t, modeAndGroup(t, file), before)
	check.OK(t, SetGroup(t.Context(), top, testGroup+1))
	check.Same(t, modeAndGroup(t, file), "660 0:4322")
}

func TestGroup_InterruptedPassIsRepeated(t *testing.T) {
	requireRoot(t)
	top := t.TempDir()
	for i := range 10 {
		write(t, filepath.Join(top, fmt.Sprint(i)), "")
	}
	check.Fails(t, SetGroup(&endsAfter{t.Context(), 5}, top, testGroup), context.Canceled)
	check.OK(t, SetGroup(t.Context(), top, testGroup))
	for i := range 10 {
		check.Same(t, modeAndGroup(t, filepath.Join(top, fmt.Sprint(i))), "660 0:4321")
	}
}

func TestGroup_LinkIsNotChanged(t *testing.T) {
	requireRoot(t)
	elsewhere := t.TempDir()
	before := modeAndGroup(t, elsewhere)
	link := filepath.Join(t.TempDir(), "link")
	check.OK(t, os.Symlink(elsewhere, link))
	check.Fails(t, SetGroup(t.Context(), link, testGroup), nil)
	check.Same(t, modeAndGroup(t, elsewhere), before)
}
