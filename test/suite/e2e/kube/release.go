package kube

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Sources writes the sources of a commit of the repository at root into a new directory.
func Sources(ctx context.Context, root, commit, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	pack := exec.CommandContext(ctx, "sh", "-ec", `git -C "$1" archive "$2" | tar -x -C "$3"`, "sh", root, commit, dir)
	if out, err := pack.CombinedOutput(); err != nil {
		return fmt.Errorf("the sources of %s: %w: %s", commit, err, out)
	}
	return nil
}

// LoadRelease builds the images of Holdfast and of its NFS servers from sources, as a version, and brings them to every
// node.
func (c *Cluster) LoadRelease(ctx context.Context, sources, version string) (image string, err error) {
	build := exec.CommandContext(ctx, filepath.Join(sources, "images/build"), "holdfast", "nfs")
	build.Env, build.Stderr = append(os.Environ(), "VERSION="+version), os.Stderr
	out, err := build.Output()
	if err != nil {
		return "", err
	}
	load := []string{"load-image"}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if len(words) != 3 {
			return "", fmt.Errorf("images/build printed %q, not a name, a reference and an archive", line)
		}
		if load = append(load, words[2]); words[0] == "holdfast" {
			image = words[1]
		}
	}
	_, err = c.Do(ctx, load...)
	return image, err
}
