//go:build linux && !client

package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-storage/holdfast/agent"
	"github.com/holdfast-storage/holdfast/agent/nodepools"
	"github.com/holdfast-storage/holdfast/agent/policy"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local"
	"github.com/holdfast-storage/holdfast/driver"
	"github.com/holdfast-storage/holdfast/kubelet/devices"
	"github.com/holdfast-storage/holdfast/nodeops"
)

func newNodeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Serve the pools of this host as a node of a Kubernetes cluster",
		Long: `The agent reconciles the Volume and Snapshot objects of this node in its pools and reports what they hold; the driver's
node service mounts volumes for pods, and registers with the kubelet itself, unless node-driver-registrar does that
(--register-driver=false).

The pools are those of a file with the pools of all nodes, of which it serves those whose nodeSelectorTerms choose this
node, which may be none. A pool that cannot be reached is reported and retried; the others are served. When the file or the
labels of the Node object choose other pools, it exits to be restarted with those.

Without a file the pools are given as flags, and all must exist.

It allocates loop devices to NFS servers, where the API server refuses them to other pods by the
ValidatingAdmissionPolicy holdfast-loop-sets. With --only-loop-sets it does nothing else.`,
		Example: `  holdfast node --node-name "$NODE_NAME" --config /etc/holdfast/node.json
  holdfast node --node-name "$NODE_NAME" --pool name=default,path=/var/lib/holdfast/pools/default
  holdfast node --only-loop-sets`,
	}
	n := nodeFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return n.main(cmd.Context()) }
	return cmd
}

type node struct {
	*host
	*kubeAccess
	config       string
	stateDir     string
	loopSets     int
	onlyLoopSets bool
	cephKeys     string
	cephEngines  []string
	clients      *clients
	watch        part // of the choice of pools; nil with --pool
}

func nodeFlags(flags *pflag.FlagSet) *node {
	n := &node{
		host:       hostFlags(flags, "unix:///var/lib/kubelet/plugins/csi.holdfast.dev/csi.sock", "/var/lib/kubelet/plugins_registry"),
		kubeAccess: kubeFlags(flags),
	}
	flags.StringVar(&n.driver.NodeID, "node-name", "", "`name` of the Node object of this host")
	flags.Int64Var(&n.driver.MaxVolumes, "max-volumes-per-node", 0, "how many volumes may be used here at once, a `number`; 0: no limit")
	flags.IntVar(&n.loopSets, "loop-sets", 8, "how many sets of 256 loop devices may be allocated to NFS servers here, a `number` up to 16: a server takes one for each 256 volumes that are images (resource holdfast.dev/loop-set), through --kubelet-registration-dir; 0: none")
	flags.BoolVar(&n.onlyLoopSets, "only-loop-sets", false, "allocate loop devices to NFS servers and do nothing else, for nodes without CSI")
	flags.StringVar(&n.driver.Namespaces, "namespaces", "", "`directory` such as /proc/1/ns with the network, net, and the host name, uts, of this host, where they are not those of this process: shared volumes are mounted through that network and must outlive this process's")
	flags.StringVar(&n.cephKeys, "ceph-keys", "", "`directory` with a file FSID.USER for each user of a Ceph cluster as whom this node uses volumes, with the key; none: only those of pools that have a user for each node are used")
	flags.StringSliceVar(&n.cephEngines, "ceph-engines", nil, "`engines` of the Ceph pools, RBD and CephFS, separated by commas: the node reports whether its kernel has what they need; none: volumes in Ceph pools are not used here")
	flags.DurationVar(&n.driver.Patience, "server-patience", driver.DefaultPatience, "how long a call waits for a server of shared volumes that does not answer, a `duration`")
	flags.StringVar(&n.config, "config", "", "`file` with the pools of all nodes: {\"pools\": [...]} as in the spec of a StorageCluster. Instead of --pool")
	flags.StringVar(&n.stateDir, "state-dir", "/var/lib/holdfast", "`directory` of Holdfast on this host, for --config: pools without a path, the mount points of disks, and their records")
	return n
}

func (n *node) main(ctx context.Context) error {
	if n.onlyLoopSets {
		return n.onlyAllocate(ctx)
	}
	return n.run(ctx, n.open, n.join)
}

// open takes the pools of the file that are for this node, or those given by hand.
func (n *node) open(ctx context.Context, log *slog.Logger) (*local.Backend, error) {
	switch {
	case n.config == "" && len(*n.pools) == 0:
		return nil, fmt.Errorf("--config or --pool is missing, such as --config /etc/holdfast/node.json: %w", errUsage)
	case n.config != "" && len(*n.pools) > 0:
		return nil, fmt.Errorf("--config and --pool are given; the pools come from one of them: %w", errUsage)
	case n.driver.NodeID == "":
		return nil, fmt.Errorf(`node "": --node-name is missing: %w`, errUsage)
	}
	for i, engine := range n.cephEngines {
		n.cephEngines[i] = strings.ToLower(engine)
		if _, known := cephClients[n.cephEngines[i]]; !known {
			return nil, fmt.Errorf("--ceph-engines %q: it must be RBD, CephFS, or both: %w", engine, errUsage)
		}
	}
	var err error
	if n.clients, err = n.connect(v1beta1.NodeName, log); err != nil {
		return nil, err
	}
	if n.config == "" {
		remembered := agent.RecallSoon(ctx, n.clients.holdfast, n.driver.NodeID, n.namespace, log)
		for i := range *n.pools {
			n.known(&(*n.pools)[i], remembered)
		}
		return n.pools.open(ctx, log)
	}
	chosen, watch, err := nodepools.Choose(withLog(ctx, log), nodepools.Config{File: n.config, Node: n.driver.NodeID, Kubernetes: n.clients.kubernetes, Log: log})
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	n.watch = watch
	sites := n.sites(chosen, log)
	remembered := agent.RecallSoon(ctx, n.clients.holdfast, n.driver.NodeID, n.namespace, log)
	for i := range sites {
		n.known(&sites[i].PoolConfig, remembered)
	}
	return local.OpenReachable(ctx, sites, log), nil
}

// known adds to a pool what is remembered of it, and the view of the host's mounts.
func (n *node) known(c *local.PoolConfig, remembered *agent.Memory) {
	c.Expect = remembered.Pool(c.Name, c.Path)
	c.HostProc = n.hostProc()
}

// hostProc is the directory in proc of a process of the host; empty where this process is one.
func (n *node) hostProc() string {
	if n.driver.Namespaces == "" {
		return ""
	}
	return filepath.Dir(filepath.Clean(n.driver.Namespaces))
}

func (n *node) join(storage *local.Backend, log *slog.Logger) ([]part, error) {
	served := []agent.Pool{}
	for _, p := range storage.Pools() {
		served = append(served, agent.Pool{Name: p.Name, Path: p.Path, Engine: p.Engine})
	}
	requests := policy.Requests(n.clients.kubernetes, log)
	boot, err := nodeops.BootID()
	if err != nil {
		return nil, err
	}
	host := cephHost{boot, n.driver.Name}
	var keys *cephKeys // nil: volumes of Ceph pools are not used here
	if n.cephKeys != "" || len(n.cephEngines) > 0 {
		keys = n.ownCephKeys(log)
	}
	a, err := agent.New(agent.Config{
		Requests: requests,
		Node:     n.driver.NodeID, Version: version, Backend: storage, Pools: served,
		Delete: func(ctx context.Context, id backend.ID) error { return n.serving.Delete(ctx, id) },
		Client: n.clients.holdfast, Kubernetes: n.clients.kubernetes, Namespace: n.namespace, Events: n.clients.events,
		Log: log, Foreign: driver.Ephemeral, ForeignAllowed: len(n.driver.Inline.Pools) > 0, Addresses: n.addresses, SharedVolumes: n.sharedVolumes,
		CephVolumes: n.cephVolumes(),
		CephHost:    host,
		PublicKey:   keys.public(),
	})
	if err != nil {
		return nil, err
	}
	n.driver.Inline.Field = "spec.csi.ephemeral of the StorageCluster"
	n.driver.Services, n.driver.Released = driver.NodeServices, a.Released
	if keys != nil {
		n.useCeph(storage, keys, a.Released)
	}
	n.driver.CephClient, n.driver.CephShutOut = host.recordedBy(a), a.CephShutOut
	n.driver.CheckComplete = checkComplete(n.clients.holdfast.HoldfastV1beta1().Volumes())
	parts := []part{n.clients.broadcast, logged(log, a.Run), logged(log, requests.Run)}
	if n.config != "" {
		parts = append(parts, n.followFiles(filepath.Dir(n.config), log))
	}
	if n.watch != nil {
		parts = append(parts, n.watch)
	}
	if n.loopSets != 0 && n.registrationDir != "" {
		lender, guard, err := n.lender(log)
		if err != nil {
			return nil, err
		}
		parts = append(parts, logged(log, guard.Run), retried(log, lender.Run))
	}
	return parts, nil
}

func (n *node) lender(log *slog.Logger) (*devices.Plugin, *policy.Guard, error) {
	guard := policy.LoopSets(n.clients.kubernetes, log)
	lender, err := devices.New(devices.Config{Directory: n.registrationDir, Sets: n.loopSets, Guard: guard, Log: log})
	if err != nil {
		return nil, nil, fmt.Errorf("--loop-sets: %w", err)
	}
	return lender, guard, nil
}

// onlyAllocate serves nothing but loop devices.
func (n *node) onlyAllocate(ctx context.Context) error {
	if n.loopSets == 0 || n.registrationDir == "" {
		return fmt.Errorf("--only-loop-sets with --loop-sets=%d and --kubelet-registration-dir=%q: there is nothing to do; give 1 or more, and a directory: %w", n.loopSets, n.registrationDir, errUsage)
	}
	log, err := n.logger()
	if err != nil {
		return err
	}
	if n.clients, err = n.connect("holdfast-loop-sets", log); err != nil {
		return err
	}
	lender, guard, err := n.lender(log)
	if err != nil {
		return err
	}
	n.health.Live("kubelet-registration", lender.Announced)
	n.health.Ready("kubelet-registration", lender.Registered)
	return runAll(ctx, []part{logged(log, guard.Run), lender.Run, n.serve(log)})
}

// retried is a part whose failure does not end the others, and which may only have started too early: the pods that
// allocated loop devices without CSI end when those of the nodes start.
func retried(log *slog.Logger, p part) part {
	return func(ctx context.Context) error {
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			if err := p(ctx); err != nil {
				log.Error("a part has ended and is restarted; the others keep running", "error", err)
			}
		}, pause)
		return nil
	}
}

// pause is how long a failed part waits before it is restarted.
const pause = 5 * time.Second
