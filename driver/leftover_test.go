package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// kubeletNode is a node whose socket is in the directory of a kubelet with these pods.
func kubeletNode(t *testing.T, pods ...string) (n *node, b *scripted, log *buffer) {
	t.Helper()
	n, b = inlineNode(Inline{})
	root := t.TempDir()
	n.socket = root + "/plugins/csi.holdfast.dev/csi.sock"
	log = &buffer{}
	n.Log = slog.New(slog.NewTextHandler(log, nil))
	for _, dir := range append([]string{"."}, pods...) {
		check.OK(t, os.MkdirAll(filepath.Join(root, "pods", dir), 0o755))
	}
	return n, b, log
}

func ids(t *testing.T, b *scripted) (all []string) {
	t.Helper()
	volumes := check.Got(b.Memory.List(t.Context()))(t)
	for _, v := range volumes {
		all = append(all, string(v.ID))
	}
	return all
}

func makeFor(t *testing.T, b *scripted, name, uid string) *backend.Volume {
	t.Helper()
	spec := backend.VolumeSpec{Name: name, Labels: map[string]string{ephemeralKey: "true", podUIDKey: uid}}
	if uid == "" {
		delete(spec.Labels, podUIDKey)
	}
	return check.Got(b.Memory.Create(t.Context(), spec))(t)
}

func TestInlineVolume_OfAPoolOutOfReachLetsItsPodEnd(t *testing.T) {
	away := errors.Join(backend.ErrNotFound, backend.ErrUnavailable)
	for name, test := range map[string]struct {
		pods []string
		get  error
		code codes.Code
	}{
		"later the sweep sees its pod": {[]string{"driver"}, away, codes.OK},
		"it would never be swept":      {nil, away, codes.Unavailable},
		"another fault":                {[]string{"driver"}, backend.ErrPrecondition, codes.FailedPrecondition},
		"something else is running":    {[]string{"driver"}, fmt.Errorf("%w: %w", backend.ErrBusy, backend.ErrUnavailable), codes.Aborted},
	} {
		t.Run(name, func(t *testing.T) {
			n, b, log := kubeletNode(t, test.pods...)
			b.get = func(backend.ID) (*backend.Volume, error) { return nil, test.get }
			id, _ := backend.IDFor(inlineHandle)
			target := t.TempDir() + "/mount"
			check.OK(t, os.Mkdir(target, 0o755))
			_, err := n.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: inlineHandle, TargetPath: target})
			expectError(t, toStatus(err), test.code)
			if _, err := os.Lstat(target); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the target: %v", err)
			}
			if logged := len(log.lines("deleted once", string(id))) == 1; logged != (test.code == codes.OK) {
				t.Errorf("the log is %s", log)
			}
		})
	}
}

func TestInlineVolume_LeftOverIsDeletedWhenItsPodIsGone(t *testing.T) {
	n, b, _ := kubeletNode(t, "running", "driver")
	makeFor(t, b, "of-a-pod", "running")
	makeFor(t, b, "left-over", "ended")
	makeFor(t, b, "of-no-known-pod", "")
	makeFor(t, b, "of-a-path", "../nowhere")
	check.Got(b.Memory.Create(t.Context(), backend.VolumeSpec{Name: "of-a-claim", Labels: map[string]string{podUIDKey: "ended"}}))(t)
	check.OK(t, n.collect(t.Context()))
	if got, want := ids(t, b), []string{"of-a-claim", "of-a-path", "of-a-pod", "of-no-known-pod"}; !slices.Equal(got, want) {
		t.Errorf("there are %q", got)
	}
}

func TestInlineVolume_IsNotLeftOverWhereThePodsAreNotSeen(t *testing.T) {
	for name, spoil := range map[string]func(n *node){
		"no pods":            func(*node) {},
		"no directory":       func(n *node) { n.socket = "/nowhere/plugins/x/csi.sock" },
		"no kubelet's place": func(n *node) { n.socket = "/run/holdfast/csi.sock" },
	} {
		n, b, _ := kubeletNode(t)
		makeFor(t, b, "v", "ended")
		spoil(n)
		if err := n.collect(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
		if got := ids(t, b); len(got) != 1 {
			t.Errorf("%s: it was deleted", name)
		}
	}
}

func TestInlineVolume_MountedOneIsNotLeftOver(t *testing.T) {
	hostfs.RequireRoot(t)
	n, b, _ := kubeletNode(t, "driver")
	v := makeFor(t, b, "v", "ended")
	v.Access.Directory = t.TempDir() + "/v/data"
	target := t.TempDir()
	check.OK(t, os.MkdirAll(v.Access.Directory, 0o755))
	b.get = func(backend.ID) (*backend.Volume, error) { return v, nil }
	check.OK(t, nodeops.Bind(t.Context(), v.Access.Directory, target, false, nil))
	err := n.collect(t.Context())
	if err == nil || len(ids(t, b)) != 1 {
		t.Errorf("while it is mounted: %v", err)
	}
	check.OK(t, nodeops.Unmount(context.Background(), target))
	if err := n.collect(t.Context()); err != nil || len(ids(t, b)) != 0 {
		t.Errorf("after that: %v", err)
	}
}

// staged is a volume in the directory of an engine, mounted where the kubelet stages volumes.
func staged(t *testing.T, n *node, b *scripted) (staging string, mount func(target string)) {
	t.Helper()
	hostfs.RequireRoot(t)
	n.Name = DefaultName
	root := filepath.Dir(n.podsDir())
	dir := filepath.Join(root, "volumes", "v", "data")
	staging = filepath.Join(root, "plugins/kubernetes.io/csi", DefaultName, "hash/globalmount")
	check.OK(t, os.MkdirAll(dir, 0o755))
	mount = func(target string) {
		t.Helper()
		check.OK(t, os.MkdirAll(target, 0o755))
		check.OK(t, unix.Mount(dir, target, "", unix.MS_BIND, ""))
		t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
	}
	b.get = func(id backend.ID) (*backend.Volume, error) {
		return &backend.Volume{ID: id, Access: backend.Access{Directory: dir}}, nil
	}
	b.delete = func(backend.ID) error {
		all, err := nodeops.Mounts()
		if slices.ContainsFunc(all, func(m nodeops.Mount) bool { return strings.HasPrefix(m.Target, root+"/") }) {
			err = fmt.Errorf("%w: volume v", backend.ErrInUse)
		}
		return err
	}
	mount(staging)
	return staging, mount
}

func TestDelete_UnstagesWhatTheKubeletHasLeftStagedAndNothingElse(t *testing.T) {
	for name, test := range map[string]struct {
		mounted  string // where something else has it mounted
		unstaged bool   // the kubelet has it not staged
		refusal  error  // of the backend
		want     error
	}{
		"left staged":                {},
		"refused for another reason": {refusal: backend.ErrPrecondition, want: backend.ErrPrecondition},
		"mounted by a pod":           {mounted: "pods/driver/volumes/mount", want: backend.ErrPrecondition},
		"mounted by another":         {mounted: "somewhere", unstaged: true, want: backend.ErrPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			n, b, log := kubeletNode(t, "driver")
			staging, mount := staged(t, n, b)
			there := map[string]bool{staging: test.want != nil && !test.unstaged}
			if test.mounted != "" {
				at := filepath.Join(filepath.Dir(n.podsDir()), test.mounted)
				mount(at)
				there[at] = true
			}
			if test.unstaged {
				check.OK(t, unix.Unmount(staging, 0))
			}
			if test.refusal != nil {
				b.delete = func(backend.ID) error { return test.refusal }
			}
			if err := n.Delete(t.Context(), "v"); !errors.Is(err, test.want) {
				t.Errorf("got %v", err)
			}
			for at, want := range there {
				if m, err := nodeops.MountAt(at); err != nil || (m != nil) != want {
					t.Errorf("at %s is %+v, %v", at, m, err)
				}
			}
			if unstages := len(log.lines("has left staged")) > 0; unstages != (test.want == nil) {
				t.Errorf("the log has %s", log)
			}
		})
	}
}
