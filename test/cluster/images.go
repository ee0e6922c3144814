package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-storage/holdfast/test/cluster/host"
	"github.com/holdfast-storage/holdfast/test/cluster/image"
)

// LoadImages imports archives into every node, into all of them at once.
func (c *Cluster) LoadImages(ctx context.Context, steps Steps, archives []string) error {
	if err := c.Load(); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, n := range c.State.Nodes {
		group.Go(func() error {
			return steps.Do(ctx, "load into "+n.Name, func(ctx context.Context, _ progress) (string, error) {
				return n.loadAll(ctx, c, archives)
			})
		})
	}
	return group.Wait()
}

func (n Node) loadAll(ctx context.Context, c *Cluster, archives []string) (string, error) {
	if !n.machine() && !c.runs(n.Name) {
		return "is off, and gets them when it starts", nil
	}
	var loaded []string
	for _, archive := range archives {
		done, err := n.loadOnce(ctx, c, archive)
		if err != nil {
			return "", err
		}
		if done {
			loaded = append(loaded, archive)
		}
	}
	if len(loaded) == 0 {
		return "all there", nil
	}
	return strings.Join(loaded, " "), nil
}

const loadedFile = "loaded"

// loadOnce loads an archive unless the node has had this very file before. What each has had is written down, since
// reading an image takes a guest seconds.
func (n Node) loadOnce(ctx context.Context, c *Cluster, archive string) (done bool, err error) {
	info, err := os.Stat(archive)
	if err != nil {
		return false, err
	}
	had, err := n.loaded(c)
	if err != nil {
		return false, err
	}
	entry := fmt.Sprintf("%s %d %d\n", archive, info.Size(), info.ModTime().UnixNano())
	if strings.Contains(string(had), entry) {
		return false, nil
	}
	if err := n.load(ctx, c, archive); err != nil {
		return false, err
	}
	return true, host.WriteFile(n.file(c, loadedFile), append(had, entry...), 0o644)
}

// loaded returns what loadOnce has written down.
func (n Node) loaded(c *Cluster) ([]byte, error) {
	had, err := os.ReadFile(n.file(c, loadedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return had, err
}

// load imports an image archive, as docker save or buildah push write it, into the node.
func (n Node) load(ctx context.Context, c *Cluster, archive string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if !n.machine() {
		return c.loadArchive(ctx, n, archive)
	}
	_, err := n.ctr(ctx, c, "images", "import", "--all-platforms", archive)
	return err
}

// bringImages gives a guest the images of the first node that it has not.
func (c *Cluster) bringImages(ctx context.Context, n Node) (string, error) {
	client, err := c.newGuestClient(n)
	if err != nil {
		return "", err
	}
	has, err := client.images(ctx)
	if err != nil {
		return "", err
	}
	list, err := c.State.Nodes[0].ctr(ctx, c, "images", "list", "-q")
	if err != nil {
		return "", err
	}
	missing := slices.DeleteFunc(strings.Fields(list), func(image string) bool {
		return strings.HasPrefix(image, "sha256:") || slices.Contains(has, image) // the CRI plugin adds names by digest itself
	})
	if len(missing) == 0 {
		return "all there", nil
	}
	archive := filepath.Join(n.boot(c), "images.tar")
	defer os.Remove(archive)
	if _, err := c.State.Nodes[0].ctr(ctx, c, append([]string{"images", "export", archive}, missing...)...); err != nil {
		return "", err
	}
	if err := client.load(ctx, archive); err != nil {
		return "", err
	}
	had, err := c.State.Nodes[0].loaded(c)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d brought", len(missing)), host.WriteFile(n.file(c, loadedFile), had, 0o644)
}

// loadArchive gives a guest an archive of this machine, of which it does not see every directory.
func (c *Cluster) loadArchive(ctx context.Context, n Node, archive string) error {
	client, err := c.newGuestClient(n)
	if err != nil {
		return err
	}
	seen := filepath.Join(n.boot(c), "images.tar")
	defer os.Remove(seen)
	if _, err := host.Run(ctx, "cp", archive, seen); err != nil {
		return err
	}
	return client.load(ctx, seen)
}

// stockImages writes the images that every node has.
func (c *Cluster) stockImages(ctx context.Context) ([]string, error) {
	const busybox = "/bin/busybox"
	applets, err := host.Run(ctx, busybox, "--list")
	if err != nil {
		return nil, err
	}
	var files []string
	for name, i := range map[string]image.Image{
		"pause": image.Pause(c.path("bin", "pause")), "busybox": image.Busybox(busybox, applets, c.path("bin", "locker")),
	} {
		file := c.path("images", name+".tar")
		var tar strings.Builder
		if err := i.Write(&tar); err != nil {
			return nil, err
		}
		if err := host.WriteFile(file, []byte(tar.String()), 0o644); err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

func (c *Cluster) loadStock(ctx context.Context, _ progress) (string, error) {
	files, err := c.stockImages(ctx)
	if err != nil {
		return "", err
	}
	for _, file := range files {
		if err := c.State.Nodes[0].load(ctx, c, file); err != nil {
			return "", err
		}
	}
	return strings.Join(files, " "), nil
}
