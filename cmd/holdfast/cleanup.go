package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/nodeops"
)

var cleanupCommand = command{
	name:    "cleanup",
	summary: "Wipe a pool that holds no volume",
	text: `
Removes what Holdfast has written into the directory of a pool: its trash, what was being built, and what makes the
directory a pool. It refuses while there is a volume or a snapshot in it, while a process serves it, and where the pool is
a disk that is not mounted. Other files are left as they are. A NodeJob with the task cleanup runs this on every node that
it selects.

  holdfast cleanup --path /srv/fast
`,
	prepare: func(flags *flag.FlagSet) func(context.Context, io.Writer) error {
		path := flags.String("path", "", "`directory` of the pool")
		pool := flags.String("pool", "", "`name` of the pool, if it may be a disk; taken from a path such as /var/lib/holdfast/pools/NAME")
		state := flags.String("state-dir", "/var/lib/holdfast", "`directory` of Holdfast on this node, which records the pools that are disks")
		isDisk := flags.Bool("disk", false, "the pool is a disk, even if there is no record of it")
		return func(ctx context.Context, out io.Writer) error {
			if !filepath.IsAbs(*path) {
				return fmt.Errorf("--path %q: give the absolute path of the pool, such as /srv/fast: %w", *path, errUsage)
			}
			name := *pool
			if name == "" && filepath.Dir(filepath.Clean(*path)) == filepath.Join(*state, "pools") {
				name = filepath.Base(*path)
			}
			if name != "" && name != filepath.Base(filepath.Join("/", name)) {
				return fmt.Errorf("--pool %q: give the name of a pool, such as fast: %w", *pool, errUsage)
			}
			if err := diskIsThere(*path, *state, name, *isDisk); err != nil {
				return err
			}
			return wipe(ctx, *path, out)
		}
	},
}

// What lies in a pool, as docs/pool-layout.md has it.
const poolIdentity = "pool.json"

var (
	poolEntries = []string{"volumes", "snapshots"}     // what must be empty
	poolParts   = []string{".trash", ".tmp", "groups"} // what goes with all that it holds
	poolLeaves  = []string{poolIdentity + ".new"}
	// notOfPool belongs to the disk: the file system's own, and what says for which pool the disk was formatted.
	notOfPool = []string{"lost+found", diskMark, diskMark + ".new"}
)

// diskMark lies at the root of each disk that is a pool, and stays there.
const diskMark = "disk.json"

// diskIsThere refuses the bare directory on which the disk of a pool belongs: to wipe it would leave all that is on the
// disk.
func diskIsThere(path, state, pool string, isDisk bool) error {
	var record []byte
	if pool != "" {
		var err error
		record, err = os.ReadFile(filepath.Join(state, "disks", pool+".json"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("whether pool %s is a disk is not known: %w; nothing was removed", pool, err)
		}
	}
	if record == nil && !isDisk {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(path, diskMark)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	told := "of which this node has no record"
	var disk struct{ UUID, Device string }
	if json.Unmarshal(record, &disk) == nil && disk.UUID != "" {
		told = fmt.Sprintf("UUID %s, was %s", disk.UUID, disk.Device)
	}
	return fmt.Errorf("pool %s is a disk (%s) that is not mounted: mount it at /var/lib/holdfast/pools/%s of the node and try again, "+
		"or leave the node out if its disk is gone; nothing was removed", pool, told, pool)
}

// wipe empties a pool. What makes the directory a pool goes last, so that after a kill it is one, and is wiped again.
func wipe(ctx context.Context, path string, out io.Writer) error {
	root, err := os.OpenRoot(path)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = fmt.Fprintf(out, "%s does not exist: there is nothing to remove\n", path)
		return err
	}
	if err != nil {
		return err
	}
	defer root.Close()
	lock, err := lockPool(root, path)
	if err != nil {
		return err
	}
	if lock != nil {
		defer lock.Close()
	}
	if err := refuseVolumes(root, path); err != nil {
		return err
	}
	removed := 0
	for _, part := range poolParts {
		n, err := empty(ctx, root, part, out)
		removed += n
		if err != nil {
			return err
		}
	}
	for _, name := range slices.Concat(poolParts, poolEntries, poolLeaves, []string{poolIdentity}) {
		switch err := root.Remove(name); {
		case err == nil:
			removed++
			fmt.Fprintln(out, "removed", name)
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	return conclude(root, path, removed, out)
}

// lockPool takes the pool from everybody else. A directory that is no pool must hold nothing but what one is made of.
func lockPool(root *os.Root, path string) (*os.File, error) {
	open := func(flag int) (*os.File, error) { return root.OpenFile(poolIdentity, flag, 0) }
	lock, err := nodeops.Lock(open, unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		foreign, err := others(root)
		if err == nil && len(foreign) > 0 {
			err = fmt.Errorf("%s is no pool: it has no %s and holds %s; nothing was removed", path, poolIdentity, strings.Join(foreign, ", "))
		}
		return nil, err
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, fmt.Errorf("pool %s is being served (%w); take it from this node first, by spec.pools or spec.nodeSelectorTerms of the StorageCluster; nothing was removed", path, err)
	}
	return lock, err
}

// others are what is in the directory and not of a pool.
func others(root *os.Root) (names []string, err error) {
	all, err := readDir(root, ".")
	if err != nil {
		return nil, err
	}
	ours := slices.Concat(poolParts, poolEntries, poolLeaves, notOfPool, []string{poolIdentity})
	for _, name := range all {
		if !slices.Contains(ours, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

func refuseVolumes(root *os.Root, path string) error {
	var found []string
	for _, kind := range poolEntries {
		names, err := readDir(root, kind)
		if err != nil {
			return err
		}
		for _, name := range names {
			found = append(found, kind+"/"+name)
		}
	}
	if len(found) > 0 {
		return fmt.Errorf("%s holds %s; delete them first; nothing was removed", path, strings.Join(found, ", "))
	}
	return nil
}

// empty removes all that a directory holds, and says what that was.
func empty(ctx context.Context, root *os.Root, dir string, out io.Writer) (removed int, err error) {
	names, err := readDir(root, dir)
	if err != nil {
		return 0, err
	}
	if len(names) == 0 {
		return 0, nil
	}
	at, err := root.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer at.Close()
	for _, name := range names {
		if err := nodeops.RemoveTree(ctx, at, name); err != nil { // however deep it is: a tenant has made it
			return removed, err
		}
		removed++
		fmt.Fprintln(out, "removed", filepath.Join(dir, name))
	}
	return removed, nil
}

// readDir lists a directory, which need not exist.
func readDir(root *os.Root, name string) ([]string, error) {
	dir, err := root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

func conclude(root *os.Root, path string, removed int, out io.Writer) error {
	foreign, err := others(root)
	if err != nil {
		return err
	}
	if len(foreign) > 0 {
		fmt.Fprintln(out, "left alone, since Holdfast did not write it:", strings.Join(foreign, ", "))
	}
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("writing %s to disk: %w", path, err)
	}
	_, err = fmt.Fprintf(out, "%s is wiped: %d removed\n", path, removed)
	return err
}
