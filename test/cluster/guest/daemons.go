package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/holdfast-storage/holdfast/test/cluster/config"
	"github.com/holdfast-storage/holdfast/test/cluster/host"
)

// serve starts the daemons, keeps them running, and answers the host.
func serve(ctx context.Context, g config.Guest) error {
	path := programs + ":" + filepath.Join(g.Cluster, "bin") + ":" + os.Getenv("PATH")
	if err := os.Setenv("PATH", path); err != nil {
		return err
	}
	go mendNetwork(ctx, g)
	for _, d := range g.Daemons {
		go keep(ctx, d, filepath.Join(g.Boot, d.Name+".log"))
		if d.Name != "containerd" {
			continue
		}
		// The kubelet gives up without it. The host waits longer for this boot, and reads why.
		err := host.Until(ctx, time.Minute, func() error {
			_, err := ctr(ctx, g, "version")
			return err
		})
		if err != nil {
			return err
		}
	}
	return answer(ctx, g)
}

// keep starts a daemon again whenever it ends, as an init system would.
func keep(ctx context.Context, d config.Daemon, log string) {
	for ctx.Err() == nil {
		err := runDaemon(ctx, d, log)
		fmt.Printf("guest: %s ended: %v\n", d.Name, err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func runDaemon(ctx context.Context, d config.Daemon, log string) error {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.CommandContext(ctx, d.Argv[0], d.Argv[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	return cmd.Run()
}
