package transfer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/transfer/protocol"
)

const mib = 1 << 20

var digestForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

func TestTransfer_ReportsProgressAndResult(t *testing.T) {
	from, to := hostfs.New(t, hostfs.XFS, 400*mib), hostfs.New(t, hostfs.Ext4, 400*mib)
	plant(t, from)
	cmd, output, file := process(t, from, to)
	lines, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	var phases []protocol.Phase
	var last protocol.Progress
	for line := range strings.Lines(string(lines)) {
		var p protocol.Progress
		decoder := json.NewDecoder(strings.NewReader(line))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&p); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if p.Phase != last.Phase {
			phases = append(phases, p.Phase)
		} else if p.Done < last.Done {
			t.Errorf("%v after %v", p, last)
		}
		if p.Done > p.Total || p.Total < 80*mib {
			t.Errorf("%v", p)
		}
		last = p
	}
	if fmt.Sprint(phases) != "[Copying Verifying]" || last.Done != last.Total || last.Done < 80*mib {
		t.Errorf("the phases are %v, the last line %v", phases, last)
	}
	text, err := os.ReadFile(file)
	must(t, err)
	var result protocol.Result
	must(t, json.Unmarshal(text, &result))
	if result.Files != 20*(2*100+2) || result.Bytes < 80*mib || !digestForm.MatchString(result.SHA256) {
		t.Errorf("the result is %s", text)
	}
	same(t, from, to)
	if _, again, err := transferred(t, from, to, nil); err != nil || again != string(text) {
		t.Errorf("%v: again it is %s, before %s", err, again, text)
	}
}

// killed starts a copy and kills it when it has reported a number of lines.
func killed(t testing.TB, from, to string, lines int, with os.Signal) {
	t.Helper()
	cmd, output, _ := process(t, from, to)
	out, err := cmd.StdoutPipe()
	must(t, err, cmd.Start())
	reported := bufio.NewScanner(out)
	for range lines {
		if !reported.Scan() {
			break // it was faster
		}
	}
	must(t, cmd.Process.Signal(with))
	readAll(t, out)
	if err := cmd.Wait(); err == nil && lines < 10 {
		t.Errorf("it was not stopped: %s", output)
	}
}

func TestTransfer_IsContinuedAfterKillsAtRandomPoints(t *testing.T) {
	hostfs.RequireRoot(t)
	for _, kinds := range [][2]hostfs.Kind{{hostfs.XFS, hostfs.Ext4}, {hostfs.Ext4, hostfs.Btrfs}, {hostfs.Btrfs, hostfs.XFS}} {
		t.Run(kinds[0].Name+" to "+kinds[1].Name, func(t *testing.T) {
			from, to := hostfs.New(t, kinds[0], 400*mib), hostfs.New(t, kinds[1], 400*mib)
			plant(t, from)
			for i := range 10 {
				killed(t, from, to, 1+rand.IntN(20*(i+1)), syscall.SIGKILL) //nolint:gosec // not a secret
			}
			if _, result, err := transferred(t, from, to, nil); err != nil {
				t.Fatal(err, result)
			}
			same(t, from, to)
		})
	}
}

func TestTransfer_SIGTERMStopsItAndTheNextRunContinues(t *testing.T) {
	from, to := hostfs.New(t, hostfs.XFS, 400*mib), hostfs.New(t, hostfs.Ext4, 400*mib)
	plant(t, from)
	cmd, output, result := process(t, from, to)
	out, err := cmd.StdoutPipe()
	must(t, err, cmd.Start())
	bufio.NewScanner(out).Scan()
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	readAll(t, out)
	if err := cmd.Wait(); err == nil {
		t.Fatalf("it was not stopped: %s", output)
	}
	if text, err := os.ReadFile(result); err != nil || !strings.Contains(string(text), "the next run continues") {
		t.Errorf("%v: the result is %s", err, text)
	}
	if _, _, err := transferred(t, from, to, nil); err != nil {
		t.Fatal(err)
	}
	same(t, from, to)
}

// What a power cut leaves may have the metadata of a complete file without its content.
func TestTransfer_IsContinuedAfterAPowerCut(t *testing.T) {
	hostfs.RequireRoot(t)
	for _, kind := range []hostfs.Kind{hostfs.Ext4, hostfs.XFS, hostfs.Btrfs} {
		t.Run(kind.Name, func(t *testing.T) {
			from, to := hostfs.New(t, hostfs.Btrfs, 400*mib), hostfs.New(t, kind, 400*mib)
			plant(t, from)
			killed(t, from, to, 100, syscall.SIGKILL)
			command(t, "sync", "-f", to) // so much of it stays
			killed(t, from, to, 50, syscall.SIGKILL)
			left := hostfs.Cut(t, kind, to)
			if _, result, err := transferred(t, from, left, nil); err != nil {
				t.Fatal(err, result)
			}
			same(t, from, left)
		})
	}
}

// flip changes a byte of a file, and no metadata that is compared.
func flip(t testing.TB, path string) {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Stat(path, &st))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	b := make([]byte, 1)
	_, err = f.ReadAt(b, 100)
	must(t, err)
	b[0] ^= 1
	_, err = f.WriteAt(b, 100)
	must(t, err, unix.UtimesNano(path, []unix.Timespec{st.Atim, st.Mtim}))
}

func TestVerification_CopyThatDiffersIsMendedOnceAndThenFails(t *testing.T) {
	from, to := hostfs.New(t, hostfs.XFS, 400*mib), hostfs.New(t, hostfs.Ext4, 400*mib)
	plant(t, from)
	file := filepath.Join(to, "dir7", "file50")
	flips := 0
	progress, _, err := transferred(t, from, to, func() {
		if flips++; flips == 1 {
			flip(t, file)
		}
	})
	if err != nil || flips != 2 || strings.Count(progress, `"Verifying"`) < 2 {
		t.Errorf("%v, %d copies\n%s", err, flips, progress)
	}
	same(t, from, to)
	command(t, "find", to, "-mindepth", "1", "-not", "-name", "lost+found", "-delete") // an empty one
	_, result, err := transferred(t, from, to, func() { flip(t, file) })
	if !errors.Is(err, nodeops.ErrDiffers) || errors.Is(err, ErrFinal) || !strings.Contains(result, "dir7/file50: its content differs") {
		t.Errorf("%v: %s", err, result)
	}
	if _, _, err := transferred(t, from, to, nil); err != nil {
		t.Error(err)
	}
	same(t, from, to)
}

// As after etcd was put back to the moment of the copy.
func TestTransfer_WritesNothingToATargetThatAnApplicationHasWrittenTo(t *testing.T) {
	for name, pair := range map[string]func() (from, to string, write func()){
		"tree": func() (from, to string, write func()) {
			from, to = hostfs.New(t, hostfs.XFS, 400*mib), hostfs.New(t, hostfs.Ext4, 400*mib)
			plant(t, from)
			return from, to, func() { must(t, os.WriteFile(filepath.Join(to, "later"), []byte("precious"), 0o600)) }
		},
		"device": func() (from, to string, write func()) {
			from, to = hostfs.Disk(t, 64*mib), hostfs.Disk(t, 64*mib)
			hostfs.Overwrite(t, from, 20*mib, []byte("content")...)
			return from, to, func() { hostfs.Overwrite(t, to, 0, []byte("precious")...) }
		},
		"larger device": func() (from, to string, write func()) {
			from, to = hostfs.Disk(t, 64*mib), hostfs.Disk(t, 80*mib)
			hostfs.Overwrite(t, from, 20*mib, []byte("content")...)
			return from, to, func() { hostfs.Overwrite(t, to, 0, []byte("precious")...) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			from, to, write := pair()
			content := func() string {
				if name == "tree" {
					return archived(t, to)
				}
				return hostfs.Content(t, to)
			}
			_, first, err := transferred(t, from, to, nil)
			must(t, err)
			before := content()
			if _, again, err := transferred(t, from, to, nil); err != nil || again != first || content() != before {
				t.Errorf("what is all there is verified: %v, %s", err, again)
			}
			write()
			before = content()
			_, result, err := transferred(t, from, to, nil)
			if !errors.Is(err, ErrHasContent) || errors.Is(err, ErrFinal) || !strings.Contains(result, to) {
				t.Errorf("%v, %s", err, result)
			}
			stopped, stop := context.WithCancel(t.Context())
			stop()
			if err := Run(stopped, Config{
				From: from, To: to, Result: filepath.Join(t.TempDir(), "result"), Every: time.Hour, Progress: io.Discard, Log: slog.New(slog.DiscardHandler),
			}); !errors.Is(err, context.Canceled) || errors.Is(err, ErrHasContent) {
				t.Errorf("a comparison that was stopped says nothing about the target: %v", err)
			}
			if content() != before {
				t.Error("it was written to")
			}
		})
	}
}

func TestTransfer_SourceThatHasGrownIsNoReasonToGiveUpATargetWithContent(t *testing.T) {
	from, to := hostfs.Disk(t, 64*mib), hostfs.Disk(t, 16*mib)
	hostfs.Overwrite(t, to, 0, []byte("precious")...)
	if _, _, err := transferred(t, from, to, nil); !errors.Is(err, ErrHasContent) || errors.Is(err, ErrFinal) {
		t.Error(err)
	}
}

func TestTransfer_HostileNamesReachNeitherTerminalNorLog(t *testing.T) {
	from, to := hostfs.New(t, hostfs.XFS, 400*mib), hostfs.New(t, hostfs.Ext4, 400*mib)
	name := "\x1b[2J\n{\"phase\":\"Done\"}\xff"
	must(t, os.WriteFile(filepath.Join(from, name), bytes.Repeat([]byte("x"), 200), 0o600))
	_, result, err := transferred(t, from, to, func() { flip(t, filepath.Join(to, name)) })
	for _, text := range []string{result, err.Error()} {
		if strings.ContainsAny(text, "\n\x1b") || !utf8.ValidString(text) || !strings.Contains(text, `\n{"phase":"Done"}\xff`) {
			t.Errorf("%q", text)
		}
	}
	if _, _, err := transferred(t, from, to, nil); err != nil {
		t.Error(err)
	}
	same(t, from, to)
}

func TestTransfer_RefusesWhatIsNoPairOfVolumes(t *testing.T) {
	from, to := hostfs.New(t, hostfs.Ext4, 16*mib), hostfs.New(t, hostfs.Ext4, 16*mib)
	device, small := hostfs.Disk(t, 16*mib), hostfs.Disk(t, 8*mib)
	file, link := filepath.Join(from, "file"), filepath.Join(t.TempDir(), "link")
	must(t, os.WriteFile(file, nil, 0o600), os.Symlink(to, link))
	precious := filepath.Join(to, "precious")
	must(t, os.WriteFile(precious, nil, 0o600))
	inner := filepath.Join(to, "inner")
	must(t, os.Mkdir(inner, 0o755), unix.Mount(from, inner, "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(inner, 0) })
	for name, test := range map[string]struct {
		from, to string
		want     string
	}{
		"a device to a directory":  {device, to, "is a block device and"},
		"a directory to a device":  {from, device, "is a directory and"},
		"a smaller device":         {device, small, fmt.Sprint(8*mib, " bytes are missing")},
		"a file":                   {file, to, "neither a directory"},
		"a symlink":                {from, link, "neither a directory"},
		"nothing":                  {from, filepath.Join(to, "nothing"), "no such file"},
		"nothing in a file":        {filepath.Join(file, "nothing"), to, "not a directory"},
		"a directory, not mounted": {from, t.TempDir(), "nothing is mounted there"},
		"the same":                 {to, to, "are the same"},
		"a device twice":           {device, device, "are the same"},
		"the source in the target": {inner, to, "is within"},
		"the target in the source": {to, inner, "is within"},
		"everything":               {from, "/", "is within"},
	} {
		t.Run(name, func(t *testing.T) {
			_, result, err := transferred(t, test.from, test.to, nil)
			if !errors.Is(err, ErrFinal) || !strings.Contains(result, test.want) {
				t.Errorf("%v, %s", err, result)
			}
		})
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}

func TestTransfer_WithoutTheRightToSeeAllAttributesIsRefused(t *testing.T) {
	from, to := hostfs.New(t, hostfs.Ext4, 16*mib), hostfs.New(t, hostfs.Ext4, 16*mib)
	file := filepath.Join(from, "file")
	must(t, os.WriteFile(file, nil, 0o600), unix.Setxattr(file, "trusted.x", nil, 0))
	cmd, output, _ := process(t, from, to)
	cmd.Path, cmd.Args = "/usr/bin/setpriv", []string{"setpriv", "--bounding-set", "-sys_admin", cmd.Path}
	if err := cmd.Run(); err == nil || !strings.Contains(output.String(), "without CAP_SYS_ADMIN") {
		t.Errorf("%v: %s", err, output)
	}
}

// Such as one of a mount that does not answer; this is one that a test can make.
func TestTransfer_VolumeThatCannotBeLookedAtIsTriedAgain(t *testing.T) {
	loop := filepath.Join(t.TempDir(), "loop")
	must(t, os.Symlink(loop, loop))
	if _, _, err := transferred(t, filepath.Join(loop, "volume"), t.TempDir(), nil); !errors.Is(err, unix.ELOOP) || errors.Is(err, ErrFinal) {
		t.Error(err)
	}
}

func TestTransfer_SourceWithTooMuchToReadIsFinal(t *testing.T) {
	if err := classify(t.Context(), fmt.Errorf("copying: %w", nodeops.ErrTooMuch)); !errors.Is(err, ErrFinal) {
		t.Error(err)
	}
}

func TestTransfer_FullTargetIsFinal(t *testing.T) {
	from, to := hostfs.New(t, hostfs.XFS, 400*mib), hostfs.New(t, hostfs.Ext4, 16*mib)
	plant(t, from)
	_, result, err := transferred(t, from, to, nil)
	if !errors.Is(err, ErrFinal) || !strings.Contains(result, "Mi are missing") {
		t.Errorf("%v: %s", err, result)
	}
}

func TestTransfer_DeviceIsContinuedAfterAKill(t *testing.T) {
	from, to := hostfs.Disk(t, 256*mib), hostfs.Disk(t, 300*mib)
	for at := int64(0); at < 256; at += 16 {
		hostfs.Overwrite(t, from, at*mib, bytes.Repeat([]byte{byte(at + 1)}, 5*mib)...)
	}
	for _, lines := range []int{2, 5, 9} {
		killed(t, from, to, lines, syscall.SIGKILL)
	}
	_, text, err := transferred(t, from, to, nil)
	must(t, err)
	var result protocol.Result
	must(t, json.Unmarshal([]byte(text), &result))
	if result.Bytes != 256*mib || result.Files != 0 || !digestForm.MatchString(result.SHA256) {
		t.Errorf("the result is %s", text)
	}
	if hostfs.Content(t, from) != hostfs.Content(t, to) {
		t.Error("the devices differ")
	}
}

func TestVerification_DeviceThatDiffersIsMendedOnceAndThenFails(t *testing.T) {
	from, to := hostfs.Disk(t, 64*mib), hostfs.Disk(t, 64*mib)
	hostfs.Overwrite(t, from, 20*mib, []byte("content")...)
	times := 0
	_, _, err := transferred(t, from, to, func() {
		if times++; times == 1 {
			hostfs.Overwrite(t, to, 40*mib, 1)
		}
	})
	if err != nil || times != 2 {
		t.Errorf("%v, %d copies", err, times)
	}
	hostfs.Overwrite(t, to, 20*mib, make([]byte, 7)...) // an empty one
	_, result, err := transferred(t, from, to, func() { hostfs.Overwrite(t, to, 40*mib, 1) })
	if !errors.Is(err, nodeops.ErrDiffers) || !strings.Contains(result, fmt.Sprint(40*mib)) {
		t.Errorf("%v: %s", err, result)
	}
	_, _, err = transferred(t, from, to, nil)
	if must(t, err); hostfs.Content(t, from) != hostfs.Content(t, to) {
		t.Error("another run did not go on")
	}
}

func TestTransfer_IntervalIsChecked(t *testing.T) {
	if err := Run(context.Background(), Config{}); !errors.Is(err, ErrFinal) {
		t.Errorf("got %v", err)
	}
}
