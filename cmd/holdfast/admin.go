package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-storage/holdfast/admin"
	"github.com/holdfast-storage/holdfast/cmd/holdfast/terminal"
)

func newRestoreCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore NAME",
		Short: "Take a deleted volume out of the trash",
		Long: `In a cluster its node restores it, and its object is written again. Its PersistentVolume and its claim are not: with
--claim they are made afterwards, as by holdfast volumes adopt. With --pool it is restored in a pool of this host.`,
		Example: `  holdfast volumes restore pvc-0c4e
  holdfast volumes restore pvc-0c4e --claim shop/orders
  holdfast volumes restore pvc-0c4e --pool name=fast,path=/srv/fast`,
	}
	flags := cmd.Flags()
	r := &restorer{change: changeFlags(flags), hostPools: hostPoolFlags(flags)}
	flags.StringVar(&r.node, "node", "", "`name` of the StorageNode, where several have such a volume in their trash")
	flags.StringVar(&r.adoption.Claim, "claim", "", "`NAMESPACE/NAME` of a claim to give the volume to")
	cmd.ValidArgsFunction = completeName(trashNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !r.given() {
			return r.explain(r.run(cmd.Context(), cmd.OutOrStdout(), args[0]))
		}
		if r.node != "" || r.adoption.Claim != "" {
			return fmt.Errorf("--pool names a pool of this host; --node and --claim are for a cluster: %w", errUsage)
		}
		return r.restore(cmd.Context(), cmd.OutOrStdout(), args[0])
	}
	return cmd
}

func newDeleteCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a volume that no claim has, with its data",
		Long: `A volume that a claim has is refused: delete the claim. The deleted volume is in the trash of its pool, if that keeps one,
and can be restored from there. Deleting the object with kubectl alone leaves the data, and it is written again.`,
		Example: `  holdfast volumes delete pvc-0c4e --reason "left over from the old shop"`,
	}
	defineDeletion(cmd, (*admin.Admin).DeleteVolume)
	cmd.ValidArgsFunction = completeName(volumeNames)
	return cmd
}

func newDeleteSnapshotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a snapshot that no VolumeSnapshot has, with its data",
		Long: `A snapshot that a VolumeSnapshot has is refused: delete that. Snapshots of a group are deleted together. There is
no trash for snapshots.`,
		Example: `  holdfast snapshots delete snapshot-0c4e`,
	}
	defineDeletion(cmd, (*admin.Admin).DeleteSnapshot)
	cmd.ValidArgsFunction = completeName(snapshotNames)
	return cmd
}

// change is a command that changes something in a cluster and waits for it.
type change struct {
	*installation
	timeout time.Duration
}

func changeFlags(flags *pflag.FlagSet) *change {
	c := &change{installation: installationFlags(flags)}
	flags.DurationVar(&c.timeout, "timeout", admin.DefaultTimeout, "how long to wait for the result, a `duration`")
	return c
}

func (c *change) admin(config admin.Config) (*admin.Admin, error) {
	if c.timeout <= 0 {
		return nil, fmt.Errorf("--timeout %s: it must be above 0, such as 2m: %w", c.timeout, errUsage)
	}
	config.Timeout = c.timeout
	return c.installation.admin(config)
}

type restorer struct {
	*change
	*hostPools
	node     string
	adoption admin.Adoption
}

func (r *restorer) run(ctx context.Context, out io.Writer, name string) error {
	r.adoption.Volume = name
	if r.adoption.Claim != "" { // before anything is changed
		if _, _, err := admin.ParseClaim(r.adoption.Claim); err != nil {
			return fmt.Errorf("--claim: %w: %w", err, errUsage)
		}
	}
	p := terminal.NewProgress(out)
	defer p.Done()
	a, err := r.admin(admin.Config{Out: p, Progress: p.Set})
	if err != nil {
		return err
	}
	if err := a.Restore(ctx, name, r.node); err != nil || r.adoption.Claim == "" {
		return err
	}
	return a.Adopt(ctx, r.adoption)
}

func defineDeletion(cmd *cobra.Command, remove func(*admin.Admin, context.Context, string, admin.Deletion) error) {
	flags := cmd.Flags()
	c, d := changeFlags(flags), admin.Deletion{}
	flags.StringVar(&d.Reason, "reason", "", "`text` that is kept with the request")
	flags.BoolVar(&d.Yes, "yes", false, "do not ask for confirmation")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		out := cmd.OutOrStdout()
		p := terminal.NewProgress(out)
		defer p.Done()
		a, err := c.admin(admin.Config{Out: p, Progress: p.Set, Confirm: questions(p)})
		if err != nil {
			return err
		}
		return remove(a, cmd.Context(), args[0], d)
	}
}
