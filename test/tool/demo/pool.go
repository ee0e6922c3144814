package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-storage/holdfast/nodeops"
)

func (s *story) pool() string { return filepath.Join(s.dir, "pool") }

// makePool mounts an empty file system where a user would have a disk.
func (s *story) makePool(ctx context.Context) (string, error) {
	disk := filepath.Join(s.dir, "disk")
	if err := os.Mkdir(s.pool(), 0o755); err != nil {
		return "", err
	}
	for _, argv := range [][]string{
		{"truncate", "-s", "8G", disk},
		{"mkfs.xfs", "-q", "-m", "reflink=1", disk},
		{"mount", "-o", "loop", disk, s.pool()},
	} {
		if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out)
		}
	}
	return s.pool(), nil
}

// endsByItself says whether a loop device ends with its last user. Its name may then belong to another device.
func endsByItself(device string) bool {
	b, err := os.ReadFile(filepath.Join(device, "loop", "autoclear"))
	return err != nil || strings.TrimSpace(string(b)) == "1"
}

// takeDown removes everything below dir: mounts, the last first, devices, files.
func takeDown(dir string) error {
	ctx := context.Background()
	mounts, err := nodeops.Mounts()
	errs := []error{err}
	for _, m := range slices.Backward(mounts) {
		if strings.HasPrefix(m.Target, dir+"/") && filepath.Base(m.Target) != "pool" {
			errs = append(errs, nodeops.Unmount(ctx, m.Target))
		}
	}
	devices, err := filepath.Glob("/sys/block/loop*")
	errs = append(errs, err)
	for _, d := range devices {
		device := "/dev/" + filepath.Base(d)
		if image, err := nodeops.BackingFile(device); err == nil && strings.HasPrefix(image, filepath.Join(dir, "pool")+"/") && !endsByItself(d) {
			file, err := nodeops.FileAt(image)
			errs = append(errs, err, nodeops.DetachLoop(ctx, device, file))
		}
	}
	// If this fails, the files stay: they may be in use.
	if err := errors.Join(append(errs, nodeops.Unmount(ctx, filepath.Join(dir, "pool")))...); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
