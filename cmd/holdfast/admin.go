package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/holdfast-storage/holdfast/admin"
)

var restoreVerb = command{
	name:    "restore",
	takes:   "NAME",
	summary: "Take a deleted volume out of the trash",
	text: `
The node that has it puts it back, and its object is written again. Its PersistentVolume and its claim are not: with
--claim they are made afterwards, as by holdfast volumes adopt.

  holdfast volumes restore pvc-0c4e
  holdfast volumes restore pvc-0c4e --claim shop/orders
`,
	prepare: func(flags *flag.FlagSet) func(context.Context, io.Writer) error {
		r := &restorer{change: changeFlags(flags), adoption: admin.Adoption{}}
		node := flags.String("node", "", "`name` of the StorageNode, where several have such a volume in their trash")
		flags.StringVar(&r.adoption.Claim, "claim", "", "`NAMESPACE/NAME` of a claim to give the volume to")
		return func(ctx context.Context, out io.Writer) error { return r.run(ctx, out, flags.Arg(0), *node) }
	},
}

var deleteVerb = command{
	name:    "delete",
	takes:   "NAME",
	summary: "Delete a volume that no claim has, with its data",
	text: `
A volume that a claim has is refused: delete the claim. What is deleted is in the trash of its pool, if that keeps one,
and can be restored from there. Deleting the object with kubectl alone leaves the data, and it is written again.

  holdfast volumes delete pvc-0c4e --reason "left over from the old shop"
`,
	prepare: func(flags *flag.FlagSet) func(context.Context, io.Writer) error {
		return deletionFlags(flags, (*admin.Admin).DeleteVolume)
	},
}

var snapshotsCommand = command{
	name:    "snapshots",
	summary: "List the snapshots of a cluster, and delete those that no VolumeSnapshot has",
	text: `
Snapshots that a node was found with, after the cluster lost its VolumeSnapshots or by an NFS server that archives, can be
deleted in no other way.

  holdfast snapshots
  holdfast snapshots delete snapshot-0c4e
`,
	verbs:   []command{snapshotsListVerb, snapshotsDeleteVerb},
	prepare: func(flags *flag.FlagSet) func(context.Context, io.Writer) error { return listerFlags(flags).snapshots },
}

var snapshotsDeleteVerb = command{
	name:    "delete",
	takes:   "NAME",
	summary: "Delete a snapshot that no VolumeSnapshot has, with its data",
	text: `
One that a VolumeSnapshot has is refused: delete that. Snapshots that were taken as a group are deleted as one. There is
no trash for snapshots.

  holdfast snapshots delete snapshot-0c4e
`,
	prepare: func(flags *flag.FlagSet) func(context.Context, io.Writer) error {
		return deletionFlags(flags, (*admin.Admin).DeleteSnapshot)
	},
}

// change is a command that changes something in a cluster and waits for it.
type change struct {
	*installation
	timeout time.Duration
}

func changeFlags(flags *flag.FlagSet) *change {
	c := &change{installation: installationFlags(flags)}
	flags.DurationVar(&c.timeout, "timeout", admin.DefaultTimeout, "how long to wait for the end, a `duration`")
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
	adoption admin.Adoption
}

func (r *restorer) run(ctx context.Context, out io.Writer, name, node string) error {
	r.adoption.Volume = name
	if r.adoption.Claim != "" { // before anything is changed
		if _, _, err := admin.ParseClaim(r.adoption.Claim); err != nil {
			return fmt.Errorf("--claim: %w: %w", err, errUsage)
		}
	}
	a, err := r.admin(admin.Config{Out: out})
	if err != nil {
		return err
	}
	if err := a.Restore(ctx, name, node); err != nil || r.adoption.Claim == "" {
		return err
	}
	return a.Adopt(ctx, r.adoption)
}

func deletionFlags(
	flags *flag.FlagSet, remove func(*admin.Admin, context.Context, string, admin.Deletion) error,
) func(context.Context, io.Writer) error {
	c, d := changeFlags(flags), admin.Deletion{}
	flags.StringVar(&d.Reason, "reason", "", "`text` that is kept with the request")
	flags.BoolVar(&d.Yes, "yes", false, "do not ask")
	return func(ctx context.Context, out io.Writer) error {
		a, err := c.admin(admin.Config{Out: out, Confirm: terminal(out)})
		if err != nil {
			return err
		}
		return remove(a, ctx, flags.Arg(0), d)
	}
}
