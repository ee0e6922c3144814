// Command cluster runs a real Kubernetes on this machine, for tests and for a first try, without a registry.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/holdfast-storage/holdfast/test/cluster/artifact"
	"github.com/holdfast-storage/holdfast/test/cluster/host"
)

const usage = `usage: cluster [flags] command

  up                     install, build and start what is missing, until all nodes are ready
  down                   remove everything that up made
  down-after pid         the same when that process has ended, however that comes
  status                 show what runs and is ready
  kubeconfig             print the path of the administrator's kubeconfig
  load-image archive...  import image archives into every node
  restart component      end a component and start it again
  save-state dir         copy what etcd has, with the control plane stopped for a moment
  restore-state dir      put etcd back to that
  add-node               boot another node, with a kernel and a disk of its own
  kill-node name         cut that node's power
  start-node name        boot it again from its disk

flags:
`

func main() {
	if len(os.Args) == 3 && os.Args[1] == host.Entry {
		fmt.Fprintln(os.Stderr, host.Become(os.Args[2]))
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, argv []string) error {
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	name := flags.String("name", "holdfast", "name of the cluster; clusters of different names do not meet")
	base := flags.String("base", defaultBase, "directory in which the cluster's own directory lies")
	oldest := flags.Bool("oldest-api", false, "up starts the API server and the scheduler of the oldest Kubernetes that Holdfast supports, "+artifact.OldestVersion+", and the rest as usual")
	apiOnly := flags.Bool("api-only", false, "up starts etcd, the API server and the controllers, and neither a node nor a scheduler")
	flags.Usage = func() { fmt.Fprint(flags.Output(), usage); flags.PrintDefaults() }
	if err := flags.Parse(argv); err != nil {
		return err
	}
	c, err := NewCluster(*base, *name)
	if err != nil {
		return err
	}
	c.OldestAPI, c.APIOnly = *oldest, *apiOnly
	command, args := flags.Arg(0), flags.Args()
	if command == "" {
		flags.Usage()
		return errors.New("no command is given")
	}
	return c.command(ctx, command, args[1:])
}

func (c *Cluster) command(ctx context.Context, command string, args []string) error {
	switch command {
	case "status":
		return c.Status(ctx, os.Stdout)
	case "kubeconfig":
		if err := c.Load(); err != nil {
			return err
		}
		fmt.Println(c.kubeconfig())
		return nil
	}
	if os.Geteuid() != 0 {
		return errors.New("this needs root: it makes namespaces, mounts and cgroups")
	}
	return c.change(ctx, command, args)
}

// change carries out a command that changes the cluster, one at a time.
func (c *Cluster) change(ctx context.Context, command string, args []string) error {
	if command == "down-after" && len(args) == 1 {
		pid, err := strconv.Atoi(args[0])
		if err != nil || pid <= 0 {
			return fmt.Errorf("%q is no process: give the number of one", args[0])
		}
		if err := host.AwaitEnd(ctx, pid); err != nil {
			return err
		}
		command, args = "down", nil
	}
	unlock, err := c.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	steps := Steps{os.Stdout}
	switch {
	case command == "up" && len(args) == 0:
		return c.Up(ctx, steps)
	case command == "down" && len(args) == 0:
		return c.Down(ctx, steps)
	case command == "restart" && len(args) == 1:
		return c.Restart(ctx, steps, args[0])
	case command == "save-state" && len(args) == 1:
		return c.SaveState(ctx, steps, args[0])
	case command == "restore-state" && len(args) == 1:
		return c.RestoreState(ctx, steps, args[0])
	case command == "add-node" && len(args) == 0:
		return c.AddNode(ctx, steps)
	case command == "kill-node" && len(args) == 1:
		return c.KillNode(ctx, steps, args[0])
	case command == "start-node" && len(args) == 1:
		return c.StartNode(ctx, steps, args[0])
	case command == "load-image" && len(args) > 0:
		return c.LoadImages(ctx, steps, args)
	}
	return fmt.Errorf("%q with %d arguments is no command; without arguments the commands are shown", command, len(args))
}
