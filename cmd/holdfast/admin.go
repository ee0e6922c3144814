package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-storage/holdfast/admin"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/cmd/holdfast/terminal"
)

func newRestoreCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore NAME",
		Short: "Take a deleted volume out of the trash",
		Long: `In a cluster its node restores it, and its object is written again. Its PersistentVolume and its claim are not: with
--claim they are made afterwards, as by holdfast volumes adopt. With --pool it is restored in a pool of this host, or in
one of a Ceph cluster that no process serves.`,
		Example: `  holdfast volumes restore pvc-0c4e
  holdfast volumes restore pvc-0c4e --claim shop/orders
  holdfast volumes restore pvc-0c4e --pool name=fast,path=/srv/fast`,
	}
	flags := cmd.Flags()
	r := &restorer{change: changeFlags(cmd), hostPools: hostPoolFlags(flags)}
	flags.Func("pool", poolUsage+"\n"+cephPoolUsage, r.add)
	flags.StringVar(&r.node, "node", "", "`name` of the StorageNode, where several have such a volume in their trash")
	r.claim.define(flags, "to give the volume to")
	cmd.ValidArgsFunction = completeName(trashNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !r.given() {
			return r.explain(r.run(cmd, args[0]))
		}
		if err := r.checkHost("claim", "namespace", "holdfast-namespace", "timeout", "output"); err != nil {
			return err
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
	defineDeletion(cmd, volumeObject, (*admin.Admin).DeleteVolume)
	cmd.ValidArgsFunction = completeName(volumeNames)
	return cmd
}

func newDeleteSnapshotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a snapshot that no VolumeSnapshot has, with its data",
		Long: `A snapshot that a VolumeSnapshot has is refused: delete that. Snapshots of a group are deleted together. There is
no trash for snapshots.`,
		Example: `  holdfast snapshots delete snapshot-0c4e
  holdfast snapshots delete snapshot-0c4e -n shop --yes -o name`,
	}
	defineDeletion(cmd, snapshotObject, (*admin.Admin).DeleteSnapshot)
	cmd.ValidArgsFunction = completeName(snapshotNames)
	return cmd
}

// change is a command that changes something in a cluster and waits for it.
type change struct {
	*installation
	*output
	timeout time.Duration
}

func changeFlags(cmd *cobra.Command) *change {
	flags := cmd.Flags()
	c := &change{installation: homeFlags(flags), output: outputFlag(cmd, "text", "json", "yaml", "name")}
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

// object is what a command changes.
type object struct {
	kind string
	get  func(context.Context, *admin.Admin, string) (runtime.Object, error)
}

var (
	volumeObject = object{"Volume", func(ctx context.Context, a *admin.Admin, name string) (runtime.Object, error) {
		return a.Holdfast.HoldfastV1beta1().Volumes().Get(ctx, name, metav1.GetOptions{})
	}}
	snapshotObject = object{"Snapshot", func(ctx context.Context, a *admin.Admin, name string) (runtime.Object, error) {
		return a.Holdfast.HoldfastV1beta1().Snapshots().Get(ctx, name, metav1.GetOptions{})
	}}
)

// run makes a change, and prints the object that it was about where a format for programs was chosen: as it was, if it
// is gone then. What is for people is on standard error, in that case.
func (c *change) run(cmd *cobra.Command, of object, name string, gone bool, do func(context.Context, *admin.Admin) error) error {
	ctx, out, said := cmd.Context(), cmd.OutOrStdout(), cmd.OutOrStdout()
	if c.value != "text" {
		said = cmd.ErrOrStderr()
	}
	p := terminal.NewProgress(said)
	defer p.Done()
	a, err := c.admin(admin.Config{Out: p, Progress: p.Set, Confirm: questions(p)})
	if err != nil {
		return err
	}
	var o runtime.Object
	var unread error
	if gone && c.value != "text" && c.value != "name" {
		o, unread = of.get(ctx, a, name) // what is wrong with it, the change says
	}
	if err := do(ctx, a); err != nil || c.value == "text" {
		return err
	}
	kind := v1beta1.SchemeGroupVersion.WithKind(of.kind)
	if c.value == "name" {
		return printName(out, kind.GroupKind(), name)
	}
	if !gone {
		o, unread = of.get(ctx, a, name)
	}
	if unread != nil {
		return fmt.Errorf("it is done, but %s %s could not be read: %w", of.kind, name, unread)
	}
	if meta, is := o.(metav1.Object); is {
		meta.SetManagedFields(nil)
	}
	o.GetObjectKind().SetGroupVersionKind(kind)
	return c.print(out, o, nil)
}

// claimFlag names a claim, by --claim and --namespace.
type claimFlag struct{ key, namespace string }

func (f *claimFlag) define(flags *pflag.FlagSet, which string) {
	flags.StringVar(&f.key, "claim", "", "claim "+which+", `NAME` or NAMESPACE/NAME")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "`namespace` of the claim, where --claim does not have it")
}

// claim is NAMESPACE/NAME, and empty if no claim was given.
func (f *claimFlag) claim() (string, error) {
	given, _, has := strings.Cut(f.key, "/")
	switch {
	case f.key == "" && f.namespace != "":
		return "", fmt.Errorf("--namespace %s is that of a claim, and --claim is missing: %w", f.namespace, errUsage)
	case f.key == "":
		return "", nil
	case has && f.namespace != "" && f.namespace != given:
		return "", fmt.Errorf("--claim %s is not in --namespace %s: %w", f.key, f.namespace, errUsage)
	}
	key := f.key
	if !has && f.namespace != "" {
		key = f.namespace + "/" + f.key
	}
	if _, _, err := admin.ParseClaim(key); err != nil {
		return "", fmt.Errorf("--claim: %w; or give its namespace with -n: %w", err, errUsage)
	}
	return key, nil
}

type restorer struct {
	*change
	*hostPools
	node  string
	claim claimFlag
}

func (r *restorer) run(cmd *cobra.Command, name string) error {
	claim, err := r.claim.claim() // before anything is changed
	if err != nil {
		return err
	}
	return r.change.run(cmd, volumeObject, name, false, func(ctx context.Context, a *admin.Admin) error {
		if err := a.Restore(ctx, name, r.node); err != nil || claim == "" {
			return err
		}
		return a.Adopt(ctx, admin.Adoption{Volume: name, Claim: claim})
	})
}

func defineDeletion(cmd *cobra.Command, of object, remove func(*admin.Admin, context.Context, string, admin.Deletion) error) {
	flags := cmd.Flags()
	c, d := changeFlags(cmd), admin.Deletion{}
	flags.StringVar(&d.Reason, "reason", "", "`text` that is kept with the request")
	flags.BoolVar(&d.Yes, "yes", false, "do not ask for confirmation")
	flags.StringVarP(&d.Namespace, "namespace", "n", "", "refuse what was not made for a claim in that `namespace`; any if empty")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.run(cmd, of, args[0], true, func(ctx context.Context, a *admin.Admin) error { return remove(a, ctx, args[0], d) })
	}
}
