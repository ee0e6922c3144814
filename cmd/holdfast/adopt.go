package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/admin"
)

const (
	storageClassUsage = "`name` of the class of the claim, empty for none; without it, that of the claim, or the one that fits"
	accessModeUsage   = "`mode`, such as ReadWriteOnce; may be given several times. Without it, those of the claim, or\n" +
		"ReadWriteMany for a shared volume and ReadWriteOnce for others"
	reclaimPolicyUsage = "`policy` of the PersistentVolume: Retain, which a new one has without this,\n" +
		"or Delete, with which the data goes with the claim"
)

var adoptVerb = command{
	name:    "adopt",
	takes:   "NAME",
	summary: "Give a volume that has none a claim",
	text: `
It makes the PersistentVolume as it was made the first time, and the claim, and waits until they are bound. A claim that
exists is used if it waits for a volume like this one. For a StatefulSet, choose the name that its pod expects, such as
data-orders-0. What is there and right is left, so it can be repeated.

  holdfast volumes adopt pvc-0c4e --claim shop/data-orders-0
  holdfast volumes adopt pvc-0c4e --claim shop/orders --print | kubectl apply -f -
`,
	prepare: func(flags *flag.FlagSet) func(context.Context, io.Writer) error {
		c, w := changeFlags(flags), admin.Adoption{}
		flags.StringVar(&w.Claim, "claim", "", "`NAMESPACE/NAME` of the claim")
		flags.BoolVar(&w.Print, "print", false, "write what would be made, and make nothing")
		flags.Func("storage-class", storageClassUsage, func(s string) error {
			w.StorageClass = &s
			return nil
		})
		flags.Func("access-mode", accessModeUsage, func(s string) error {
			w.AccessModes = append(w.AccessModes, core.PersistentVolumeAccessMode(s))
			return nil
		})
		flags.StringVar((*string)(&w.ReclaimPolicy), "reclaim-policy", "", reclaimPolicyUsage)
		return func(ctx context.Context, out io.Writer) error {
			w.Volume = flags.Arg(0)
			return c.adopt(ctx, out, w)
		}
	},
}

func (c *change) adopt(ctx context.Context, out io.Writer, w admin.Adoption) error {
	if w.Claim == "" {
		return fmt.Errorf("--claim is missing, such as --claim shop/orders: %w", errUsage)
	}
	if _, _, err := admin.ParseClaim(w.Claim); err != nil {
		return fmt.Errorf("--claim: %w: %w", err, errUsage)
	}
	a, err := c.admin(admin.Config{Out: out})
	if err != nil {
		return err
	}
	return a.Adopt(ctx, w)
}

// terminal asks whoever sits at the standard input; nil if that is nobody.
func terminal(out io.Writer) func(context.Context, string) (string, error) {
	if _, err := unix.IoctlGetTermios(int(os.Stdin.Fd()), unix.TCGETS); err != nil {
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
