// Command guest is what a node with a kernel of its own runs: it makes of a bare second kernel a machine on which the
// daemons of a node can run, keeps them running, and answers its host.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/holdfast-storage/holdfast/test/cluster/config"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%d arguments, want the file that says what this node is", len(args))
	}
	data, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var g config.Guest
	if err := json.Unmarshal(data, &g); err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	for _, step := range []struct {
		name string
		do   func(context.Context, config.Guest) error
	}{
		{"own disk", ownDisk}, {"containerd", mendContainerd}, {"network", joinNetwork}, {"kernel", prepareKernel}, {"programs", linkPrograms},
	} {
		begun := time.Now()
		if err := step.do(ctx, g); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Printf("guest: %s, %s\n", step.name, time.Since(begun).Round(time.Millisecond))
	}
	return serve(ctx, g)
}
