package provisioner

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// entry is a volume whose creation for a claim has begun, and which has no known PersistentVolume.
type entry struct {
	Name      string `json:"name"` // of the volume
	Namespace string `json:"namespace"`
	Claim     string `json:"claim"`
	UID       string `json:"uid"`
}

// journal records on the server's disk which volumes are being created. So a volume whose claim is deleted before it
// has a PersistentVolume is found and removed even after a crash. Each entry is a file.
//
// An entry is written before the volume is created, and removed once its PersistentVolume exists. A volume without an
// entry is never removed for lack of a PersistentVolume: it may have been retained on purpose.
type journal struct {
	root  *os.Root
	store string // identity of the data

	mu      sync.Mutex
	entries map[backend.ID]entry
}

const (
	identityFile = "identity"
	begunDir     = "begun"
)

// openJournal reads a directory, and creates it if it is missing.
func openJournal(dir string, log *slog.Logger) (*journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	j := &journal{root: root}
	if err := errors.Join(j.identify(), j.read(log)); err != nil {
		return nil, errors.Join(fmt.Errorf("journal %s: %w", dir, err), root.Close())
	}
	return j, nil
}

func (j *journal) identify() error {
	data, err := j.root.ReadFile(identityFile)
	switch {
	case err == nil && len(data) > 0:
		id, err := backend.ParseID(string(data))
		j.store = string(id)
		return err
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	id, err := backend.IDFor(rand.Text())
	if err != nil {
		return err
	}
	j.store = string(id)
	return nodeops.Replace(j.root, identityFile, []byte(id))
}

// read reads the entries from the disk. Another process may have changed them since the last read.
func (j *journal) read(log *slog.Logger) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.root.Mkdir(begunDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	files, err := fs.ReadDir(j.root.FS(), begunDir)
	if err != nil {
		return err
	}
	j.entries = map[backend.ID]entry{}
	for _, f := range files {
		id, err := backend.ParseID(f.Name())
		if err != nil {
			continue // not finished, or not ours
		}
		e := entry{}
		data, err := j.root.ReadFile(path.Join(begunDir, f.Name()))
		if err == nil {
			err = json.Unmarshal(data, &e)
		}
		if err != nil || e.UID == "" || e.Name == "" {
			log.Warn("a journal entry cannot be read; if its volume has no PersistentVolume, it has to be removed by hand", "volume", id, "error", err)
			continue
		}
		j.entries[id] = e
	}
	return nil
}

// begin records a volume before it is created.
func (j *journal) begin(id backend.ID, e entry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.entries[id] == e {
		return nil
	}
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	err = nodeops.Replace(j.root, path.Join(begunDir, string(id)), data)
	switch {
	case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%w: the storage of the NFS server is full, so that volume %s cannot be recorded in the journal; grow it, or delete volumes: %w", backend.ErrExhausted, id, err)
	case err != nil:
		return fmt.Errorf("%w: volume %s could not be recorded before its creation: %w", backend.ErrUnavailable, id, err)
	}
	j.entries[id] = e
	return nil
}

// end removes the entry of a volume. It is idempotent.
func (j *journal) end(id backend.ID) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, ok := j.entries[id]; !ok {
		return nil
	}
	if err := j.root.Remove(path.Join(begunDir, string(id))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	delete(j.entries, id)
	return nil
}

func (j *journal) get(id backend.ID) (entry, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e, ok := j.entries[id]
	return e, ok
}

func (j *journal) all() []backend.ID {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Collect(maps.Keys(j.entries))
}

func (j *journal) close() error { return j.root.Close() }
