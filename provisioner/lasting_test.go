package provisioner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/export"
	"github.com/holdfast-storage/holdfast/backend/local"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/nodeops/ganesha"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// place is what outlives each process of an NFS server: its disk, where it mounts, who exports, and its API server.
type place struct {
	Pool, Work, Name, Host, Token string
	TLS                           rest.TLSClientConfig
	DiesAt                        int // the step of the process at which it kills itself; 0: none
}

func newPlace(t *testing.T, a *api) *place {
	t.Helper()
	disk := hostfs.New(t, hostfs.XFS, 8<<30)
	p := &place{
		Pool: filepath.Join(disk, "pool"), Work: filepath.Join(filepath.Dir(disk), "work"), // what is mounted there ends with the test
		Name: randomName(), Host: a.config.Host, Token: a.config.BearerToken, TLS: a.config.TLSClientConfig,
	}
	for _, dir := range []string{p.Pool, p.exported(), p.ids()} {
		check.OK(t, os.MkdirAll(dir, 0o700))
	}
	return p
}

func (p *place) exported() string { return filepath.Join(p.Work, "exported") }
func (p *place) ids() string      { return filepath.Join(p.Work, "ids") }
func (p *place) exports() string  { return filepath.Join(p.Work, "exports") }

// open brings up the volumes. The caller closes.
func (p *place) open() (volumes *export.Backend, closes func() error, err error) {
	log, ctx := slog.New(slog.DiscardHandler), context.Background()
	pool, err := local.Open(ctx, []local.PoolConfig{{Name: "default", Engine: "image", Path: p.Pool, TrashRetention: backend.NoTrash}}, log)
	if err != nil {
		return nil, nil, err
	}
	volumes, err = export.Open(ctx, export.Config{
		Storage: pool, ExportsDir: p.exports(), StateDir: p.ids(), Exporter: noting(p.exported()), Images: true, Log: log,
	})
	if err != nil {
		return nil, nil, errors.Join(err, pool.Close(ctx))
	}
	return volumes, func() error { return errors.Join(volumes.Close(ctx), pool.Close(ctx)) }, nil
}

// config is of the provisioner of one process.
func (p *place) config(t *testing.T, volumes Storage, client kubernetes.Interface) Config {
	return configOf(t, p.Name, volumes, filepath.Join(p.Work, "provisioner"), client)
}

// noting is an exporter that remembers in a directory what it exports, like a server that no kill ends.
type noting string

func (n noting) file(id uint16) string { return filepath.Join(string(n), fmt.Sprint(id)) }

func (n noting) Put(_ context.Context, e ganesha.Export) error {
	if m, err := nodeops.MountAt(e.Path); err != nil || m == nil {
		return fmt.Errorf("nothing is mounted at %s (%w)", e.Path, err)
	}
	return os.WriteFile(n.file(e.ID), []byte(e.Pseudo), 0o600)
}

func (n noting) Remove(_ context.Context, id uint16) error {
	if err := os.Remove(n.file(id)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// left lists all that must not exist once there are no volumes: files of the pool, mounts, loop devices, exports,
// identities of volumes, entries of the journal.
func (p *place) left(t *testing.T, empty []string) (found []string) {
	t.Helper()
	for _, name := range p.files(t) {
		if len(empty) == 0 || !strings.Contains("\n"+strings.Join(empty, "\n")+"\n", "\n"+name+"\n") {
			found = append(found, "file "+name)
		}
	}
	mounts := check.Got(nodeops.Mounts())(t)
	for _, m := range mounts {
		if strings.HasPrefix(m.Target, p.exports()+"/") {
			found = append(found, "mount "+m.Target)
		}
	}
	devices := check.Got(filepath.Glob("/sys/block/loop*/loop/backing_file"))(t)
	for _, device := range devices {
		if file, err := os.ReadFile(device); err == nil && strings.HasPrefix(string(file), p.Pool+"/") {
			found = append(found, "device "+device+" of "+strings.TrimSpace(string(file)))
		}
	}
	return append(found, p.identities(t)...)
}

// identities are the volumes that the list of exports knows.
func (p *place) identities(t *testing.T) (found []string) {
	t.Helper()
	var sheet struct {
		Book struct {
			Exports map[string]any `json:"exports"`
		} `json:"book"`
	}
	data, err := os.ReadFile(filepath.Join(p.ids(), "exports.json"))
	if err := errors.Join(err, json.Unmarshal(data, &sheet)); err != nil || sheet.Book.Exports == nil {
		t.Fatalf("the list of exports: %v: %s", err, data)
	}
	for volume := range sheet.Book.Exports {
		found = append(found, "identity of "+volume)
	}
	return found
}

// files are those of the pool, the exporter and the journal. Of temporary ones, each is one too many.
func (p *place) files(t *testing.T) (names []string) {
	t.Helper()
	for _, dir := range []string{p.Pool, p.exported(), filepath.Join(p.Work, "provisioner")} {
		check.OK(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			names = append(names, path)
			return err
		}))
	}
	return names
}
