//go:build linux && !client

package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/holdfast-storage/holdfast/backend/local"
	"github.com/holdfast-storage/holdfast/backend/local/disk"
)

func newCleanupCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Wipe a pool that holds no volume",
		Long: `Removes what Holdfast has written into the directory of a pool: its trash, unfinished entries, and what makes the
directory a pool. It refuses while there is a volume or a snapshot in it, while a process serves it, and where the pool is
a disk that is not mounted. Other files are left as they are. A NodeJob with the task Cleanup runs this on every node that
it selects.`,
		Example: `  holdfast cleanup --path /srv/fast`,
	}
	flags := cmd.Flags()
	path := flags.String("path", "", "`directory` of the pool")
	pool := flags.String("pool", "", "`name` of the pool, if it may be a disk; taken from a path such as /var/lib/holdfast/pools/NAME")
	state := flags.String("state-dir", "/var/lib/holdfast", "`directory` of Holdfast on this node, which records the pools that are disks")
	isDisk := flags.Bool("disk", false, "the pool is a disk, even if there is no record of it")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
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
		if err := disk.RefuseBare(*path, *state, name, *isDisk); err != nil {
			return err
		}
		return local.Wipe(cmd.Context(), *path, cmd.OutOrStdout())
	}
	return cmd
}
