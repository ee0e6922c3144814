package export

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/crashpoint"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// version is the format that this code writes, and the newest that it reads.
const version = 1

// blank is an empty list of exports, which an administrator may write.
const blank = `{"version": 1}`

// files stores the book twice. The copy is written first, and a change takes effect only when both have it, so that
// each file alone lists every id that was ever used.
type files struct{ dir string }

func (f files) main() string { return filepath.Join(f.dir, "exports.json") }
func (f files) copy() string { return filepath.Join(f.dir, "exports.copy.json") }

// sheet is the content of a file: a book and its digest, which reveals corruption.
type sheet struct {
	Version int             `json:"version"`
	Digest  string          `json:"digest"`
	Book    json.RawMessage `json:"book"`
}

// read returns the newer book of both files, or nil if neither exists. It repairs a damaged file from the other.
func (f files) read(log *slog.Logger) (*book, error) {
	newest, errMain := readSheet(f.main())
	other, errCopy := readSheet(f.copy())
	for _, err := range []error{errMain, errCopy} {
		if errors.Is(err, errNewer) {
			return nil, err
		}
	}
	switch {
	case errMain != nil && other == nil, errCopy != nil && newest == nil:
		return nil, fmt.Errorf("the list of exports cannot be read, so clients might be shown another volume than theirs: %w; put %s back from a backup of the server's volume; or, when no client has anything mounted from this server, remove %s, write %s into the former and start again",
			errors.Join(errMain, errCopy), f.main(), f.copy(), blank)
	case newest == nil && other == nil:
		return nil, nil
	case newest != nil && other != nil && newest.Generation == other.Generation:
		return other, nil
	case newest == nil || other != nil && other.Generation > newest.Generation:
		newest = other
	}
	if err := errors.Join(errMain, errCopy); err != nil {
		log.Error("one of the two lists of exports is damaged, the other is used", "error", err)
	}
	return newest, f.write(newest)
}

var errNewer = errors.New("written by a newer version")

// maxSheet limits the size of a file that is read; an export takes about 150 bytes.
const maxSheet = 64 << 20

// readSheet returns nil if there is no file. A symbolic link is one, even if it leads nowhere: a list was there.
func readSheet(path string) (*book, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxSheet) {
		err = fmt.Errorf("%s is of type %s with %d bytes; it must be a file of at most %d", path, info.Mode().Type(), info.Size(), maxSheet)
	}
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	b, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s (%d bytes): %w", path, len(data), err)
	}
	return b, nil
}

func parse(data []byte) (*book, error) {
	var s sheet
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("damaged: %w", err)
	}
	switch {
	case s.Version > version:
		return nil, fmt.Errorf("version %d, this program knows %d: %w; use the newer program", s.Version, version, errNewer)
	case s.Version < 1:
		return nil, fmt.Errorf("damaged: version %d", s.Version)
	case s.Book == nil && s.Digest == "":
		return &book{Next: 1, Exports: map[backend.ID]identity{}}, nil
	}
	if digest, err := digestOf(s.Book); err != nil || digest != s.Digest {
		return nil, fmt.Errorf("damaged: it does not match its digest")
	}
	var b book
	if err := json.Unmarshal(s.Book, &b); err != nil {
		return nil, fmt.Errorf("damaged: %w", err)
	}
	return &b, b.check()
}

// check fails for an inconsistent book, even if the digest is right.
func (b *book) check() error {
	if b.Next < 1 || b.Next > mostIDs+1 || b.Exports == nil {
		return fmt.Errorf("damaged: the next ID is %d", b.Next)
	}
	seen := make(map[uint16]bool, len(b.Exports)+len(b.Freed))
	filesystems := make(map[string]bool, len(b.Exports))
	take := func(id uint16) error {
		if id == 0 || int(id) >= b.Next || seen[id] {
			return fmt.Errorf("damaged: export ID %d occurs twice, or was never assigned", id)
		}
		seen[id] = true
		return nil
	}
	for volume, e := range b.Exports {
		if _, err := backend.ParseID(string(volume)); err != nil {
			return err
		}
		if err := take(e.ID); err != nil {
			return err
		}
		if e.Filesystem == "" || filesystems[e.Filesystem] {
			return fmt.Errorf("damaged: file system ID %s occurs twice", backend.Quote(e.Filesystem))
		}
		filesystems[e.Filesystem] = true
	}
	for _, id := range b.Freed {
		if err := take(id); err != nil {
			return err
		}
	}
	return nil
}

func digestOf(book []byte) (string, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, book); err != nil {
		return "", err
	}
	sum := sha256.Sum256(compact.Bytes())
	return hex.EncodeToString(sum[:]), nil
}

func (f files) write(b *book) error {
	content, err := json.Marshal(b)
	if err != nil {
		return err
	}
	digest, err := digestOf(content)
	if err != nil {
		return err
	}
	data, err := json.Marshal(sheet{Version: version, Digest: digest, Book: content})
	if err != nil {
		return err
	}
	if err := nodeops.ReplaceFile(f.copy(), append(data, '\n')); err != nil {
		return err
	}
	crashpoint.Here(crashpoint.ExportCopied)
	return nodeops.ReplaceFile(f.main(), append(data, '\n'))
}

// exhausted distinguishes a full disk from a failed one.
func exhausted(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w on the server's volume: %w; grow it or delete from it", backend.ErrExhausted, err)
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
}
