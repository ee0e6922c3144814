package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newVolumesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "volumes",
		Short: "List, restore, delete and adopt the volumes of a cluster or of this host's pools",
		Long: `Without a command it lists them. It reads a cluster, as kubectl does. With --pool, list, trash and restore read pools
of this host, or in a Ceph cluster, whether or not a process serves them; delete and adopt are for clusters.`,
		Example: `  holdfast volumes
  holdfast volumes restore pvc-0c4e --claim shop/orders
  holdfast volumes --pool name=fast,path=/srv/fast`,
	}
	s, flags := volumeList.flags(cmd), cmd.Flags()
	// What trash and restore were before they were commands.
	trash := flags.Bool("trash", false, "with --pool: as holdfast volumes trash")
	restore := flags.String("restore", "", "with --pool: as holdfast volumes restore `NAME`")
	flags.Lookup("trash").Hidden, flags.Lookup("restore").Hidden = true, true
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, out := cmd.Context(), cmd.OutOrStdout()
		switch {
		case *trash && *restore != "":
			return fmt.Errorf("--trash and --restore exclude each other: %w", errUsage)
		case (*trash || *restore != "") && !s.given():
			return fmt.Errorf("--trash and --restore are for pools of this host, and --pool is missing; of a cluster: holdfast volumes trash and holdfast volumes restore NAME: %w", errUsage)
		case *restore != "":
			if err := s.checkHost("claim", "namespace"); err != nil {
				return err
			}
			return s.restore(ctx, out, *restore)
		case *trash:
			return trashList.show(ctx, out, s)
		}
		return volumeList.show(ctx, out, s)
	}
	cmd.AddCommand(newListVolumesCommand(), newDescribeVolumeCommand("describe"), newTrashCommand(), newRestoreCommand(), newDeleteCommand(), newAdoptCommand())
	return cmd
}

func newListVolumesCommand() *cobra.Command {
	return volumeList.command(&cobra.Command{
		Use:   "list",
		Short: "List the volumes of a cluster or of this host's pools",
		Long:  `With their problems: the Volume objects of a cluster, or what is in the pools that --pool names.`,
		Example: `  holdfast volumes list -o wide
  holdfast volumes list -o json --context production
  holdfast volumes list --pool name=fast,path=/srv/fast`,
	})
}

func newTrashCommand() *cobra.Command {
	return trashList.command(&cobra.Command{
		Use:   "trash",
		Short: "List the deleted volumes that can be restored",
		Long: `Those of all nodes and NFS servers, the last deleted first; of each, the last 100 are shown. With --pool, those of
pools of this host.`,
		Example: `  holdfast volumes trash
  holdfast volumes trash --pool name=fast,path=/srv/fast`,
	})
}

func newSnapshotsCommand() *cobra.Command {
	cmd := snapshotList.command(&cobra.Command{
		Use:   "snapshots",
		Short: "List the snapshots of a cluster or of this host's pools, and delete those that no VolumeSnapshot has",
		Long: `Without a command it lists them. Snapshots that were found on a node after the cluster lost its VolumeSnapshots, or
that an NFS server archived, can be deleted in no other way.`,
		Example: `  holdfast snapshots
  holdfast snapshots delete snapshot-0c4e`,
	})
	cmd.AddCommand(newListSnapshotsCommand(), newDeleteSnapshotCommand())
	return cmd
}

func newListSnapshotsCommand() *cobra.Command {
	return snapshotList.command(&cobra.Command{
		Use:   "list",
		Short: "List the snapshots of a cluster or of this host's pools",
		Long:  `With their problems: the Snapshot objects of a cluster, those that VolumeSnapshots have too, or what is in the pools.`,
		Example: `  holdfast snapshots list -o wide
  holdfast snapshots list --pool name=fast,path=/srv/fast`,
	})
}
