package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
	core "k8s.io/api/core/v1"

	"github.com/spf13/cobra"

	"github.com/holdfast-storage/holdfast/admin"
)

const (
	storageClassUsage = "`name` of the class of the claim, empty for none; without it, that of the claim, or the one that fits"
	accessModeUsage   = "`mode`, such as ReadWriteOnce; may be given several times. Without it, those of the claim, or\n" +
		"ReadWriteMany for a shared volume and ReadWriteOnce for others"
	reclaimPolicyUsage = "`policy` of the PersistentVolume: Retain, which a new one has without this,\n" +
		"or Delete, with which the data goes with the claim"
)

var (
	accessModes     = []string{"ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany", "ReadOnlyMany"}
	reclaimPolicies = []string{"Delete", "Retain"}
)

func newAdoptCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "adopt NAME",
		Short: "Give a claim to a volume that has none",
		Long: `It creates the PersistentVolume as it was at first, and the claim, and waits until they are bound. An existing claim
is used if it waits for a volume like this one. For a StatefulSet, choose the name that its pod expects, such as
data-orders-0. Existing objects that are correct are kept, so it can be repeated.`,
		Example: `  holdfast volumes adopt pvc-0c4e --claim shop/data-orders-0
  holdfast volumes adopt pvc-0c4e --claim shop/orders --print | kubectl apply -f -`,
	}
	flags := cmd.Flags()
	c, w, claim := changeFlags(cmd), admin.Adoption{}, claimFlag{}
	claim.define(flags, "to give the volume to")
	flags.BoolVar(&w.Print, "print", false, "print the objects, and create nothing")
	flags.Func("storage-class", storageClassUsage, func(s string) error {
		w.StorageClass = &s
		return nil
	})
	mode, policy := &choice{allowed: accessModes}, &choice{allowed: reclaimPolicies, kind: "policy"}
	flags.Func("access-mode", accessModeUsage, func(s string) error {
		err := mode.Set(s)
		w.AccessModes = append(w.AccessModes, core.PersistentVolumeAccessMode(mode.value))
		return err
	})
	flags.Var(policy, "reclaim-policy", reclaimPolicyUsage)
	cmd.ValidArgsFunction = completeName(volumeNames)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		w.Volume, w.ReclaimPolicy = args[0], core.PersistentVolumeReclaimPolicy(policy.value)
		var err error
		if w.Claim, err = claim.claim(); err != nil {
			return err
		}
		if w.Claim == "" {
			return fmt.Errorf("--claim is missing, such as --claim shop/orders: %w", errUsage)
		}
		if w.Print {
			if err := refuseGiven(flags, "has no effect with --print, which prints YAML", "output"); err != nil {
				return err
			}
		}
		return c.run(cmd, volumeObject, w.Volume, false, func(ctx context.Context, a *admin.Admin) error { return a.Adopt(ctx, w) })
	}
	return cmd
}

// questions asks the user at the standard input; nil if that is no terminal.
func questions(out io.Writer) func(context.Context, string) (string, error) {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return nil
	}
	return func(ctx context.Context, question string) (string, error) { return ask(ctx, os.Stdin, out, question) }
}

// ask ends with ctx too; the read that it leaves behind ends with the process.
func ask(ctx context.Context, in io.Reader, out io.Writer, question string) (string, error) {
	fmt.Fprint(out, question)
	type answer struct {
		line string
		err  error
	}
	read := make(chan answer, 1)
	go func() {
		line, err := bufio.NewReader(in).ReadString('\n')
		read <- answer{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case a := <-read:
		if a.err != nil {
			return "", fmt.Errorf("no answer: %w", a.err)
		}
		return strings.TrimSuffix(a.line, "\n"), nil
	}
}
