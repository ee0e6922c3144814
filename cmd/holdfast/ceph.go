//go:build linux && !client

package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-storage/holdfast/agent"
	"github.com/holdfast-storage/holdfast/agent/policy"
	"github.com/holdfast-storage/holdfast/api/client/informers"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	cephsite "github.com/holdfast-storage/holdfast/backend/ceph/site"
)

func newCephCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ceph",
		Short: "Serve a pool in a Ceph cluster, as its pod",
		Long: `The agent reconciles the Volume and Snapshot objects of the pool: with the engine RBD a volume is an image in a pool of the
Ceph cluster, with CephFS a directory of one of its file systems. Nodes use the volumes by themselves, as --node-user.

While the Ceph cluster cannot be reached, or refuses the key, the process runs on and says why in the StorageNode of the pool
and at /readyz. A key that is changed in --key-file is used without a restart. What is wrong with the key and
the caps of --node-user is in the condition NodeUserRefused of the StorageNode, if --node-key-file is given. Where --node-user ends
with a point, each node has a user of its own: the process makes it, and hands the node its key, encrypted.

One process serves a pool at a time: the one that holds its Lease. Another one stands by. It tries what it needs, and is ready if it could serve the pool; if
it could not, it ends with the reason, so that a Deployment goes on with the pod that it has.

It needs a program that was built with Ceph's libraries: that of the image holdfast/ceph.`,
		Example: `  holdfast ceph --pool block --engine RBD --fsid 11111111-2222-3333-4444-555555555555 --monitors v2:10.0.0.1:3300 --user holdfast --node-user holdfast-node --ceph-pool holdfast --key-file /etc/holdfast/ceph/key
  holdfast ceph --pool files --engine CephFS --fsid 11111111-2222-3333-4444-555555555555 --monitors v2:10.0.0.1:3300 --user holdfast --node-user holdfast-node --ceph-filesystem cephfs --key-file /etc/holdfast/ceph/key`,
	}
	c := cephFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) }
	return cmd
}

// cephManager is the name under which the process of a pool writes.
const cephManager = "holdfast-ceph"

// cephPool is one pool in a Ceph cluster.
type cephPool struct {
	*logging
	*kubeAccess
	*monitoring
	site           cephsite.Config
	monitors       string
	trashRetention string
	identity       string
	stopTimeout    time.Duration
}

func cephFlags(flags *pflag.FlagSet) *cephPool {
	c := &cephPool{logging: logFlags(flags), kubeAccess: kubeFlags(flags), monitoring: monitoringFlags(flags)}
	flags.StringVar(&c.site.Pool, "pool", "", "`name` of the pool in the StorageCluster; its StorageNode is NAME.ceph.holdfast.dev")
	flags.StringVar(&c.site.Engine, "engine", "", "what a volume is: RBD, an image, or CephFS, a directory")
	flags.StringVar(&c.site.Ceph.FSID, "fsid", "", "`UUID` of the Ceph cluster, which ceph fsid prints; another one that answers is not used")
	flags.StringVar(&c.monitors, "monitors", "", "`addresses` of its monitors, v2:ADDRESS:PORT or v1:ADDRESS:PORT, separated by commas")
	flags.StringVar(&c.site.Ceph.User, "user", "holdfast", "`name`, without client., of the Ceph user that makes the volumes, whose key is in --key-file")
	flags.StringVar(&c.site.Ceph.NodeUser, "node-user", "holdfast-node", "`name`, without client., of the Ceph user as whom nodes use the volumes; NAME.POOL. with a point at its end: each node as a user of its own, of that and its name")
	flags.StringVar(&c.site.Ceph.Pool, "ceph-pool", "", "`name` of the pool of images in the Ceph cluster, for the engine RBD")
	flags.StringVar(&c.site.Ceph.FileSystem, "ceph-filesystem", "", "`name` of the file system in the Ceph cluster, for the engine CephFS")
	flags.StringVar(&c.site.Ceph.Namespace, "ceph-namespace", "", "`name` of the namespace of the pool, which may have none, or of the subvolume group of the file system (holdfast if empty)")
	flags.StringVar(&c.site.Ceph.DataPool, "ceph-data-pool", "", "`name` of the pool for the data of new volumes; if empty, --ceph-pool, or the default of the file system")
	flags.Float64Var(&c.site.Overcommit, "overcommit", 1, "how often each byte may be promised, a `number`")
	flags.StringVar(&c.site.Reserved, "reserved", "5%", "how much is kept free: a `share`, or bytes such as 10Gi")
	flags.StringVar(&c.trashRetention, "trash-retention", "24h", "how long a deleted volume can be restored, unless its space is needed before: a `duration` such as 7d; 0s keeps nothing")
	flags.BoolVar(&c.site.Ceph.Secure, "secure", false, "encrypt all that is sent, which takes monitors with the messenger v2")
	flags.StringVar(&c.site.KeyFile, "key-file", "", "`file` with the key of --user, as ceph auth get-key prints it; it is read again when it changes")
	flags.StringVar(&c.site.NodeKeyFile, "node-key-file", "", "`file` with the key of --node-user, with which the process looks whether nodes can use the volumes; it is read again when it changes, and may be missing")
	flags.StringVar(&c.identity, "identity", "", "`name` of this process in the Lease; the host's name if empty")
	flags.DurationVar(&c.stopTimeout, "stop-timeout", 45*time.Second, "how long a stop waits for running operations, a `duration`")
	return c
}

// check completes the configuration of the pool.
func (c *cephPool) check() error {
	c.site.Ceph.Monitors = words(c.monitors)
	retention, err := parseDuration(c.trashRetention)
	if err != nil {
		return fmt.Errorf("--trash-retention %q: it must be a duration such as 24h or 7d: %w", c.trashRetention, errUsage)
	}
	c.site.TrashRetention = backend.TrashRetention(retention)
	if err := c.site.Complete(); err != nil {
		return fmt.Errorf("%w: %w", err, errUsage)
	}
	return nil
}

func (c *cephPool) run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	log, err := c.logger()
	if err != nil {
		return err
	}
	pool, err := cephsite.Open(c.site, log)
	if err != nil {
		return err
	}
	clients, err := c.connect(cephManager, log)
	if err != nil {
		return err
	}
	parts, err := c.join(pool, clients, log)
	if err != nil {
		return err
	}
	parts = append(parts, func(context.Context) error { return c.measure(pool) }) // another process measures it before
	t, err := c.turn(pool, clients, log)
	if err != nil {
		return err
	}
	c.health.Ready("pool", t.ready)
	debug, err := c.follow(informers.NewSharedInformerFactory(clients.holdfast, 0), log)
	if err != nil {
		return err
	}
	return runAll(ctx, []part{clients.broadcast, c.serve(log), logged(log, debug), logged(log, func(ctx context.Context) error { return t.run(ctx, parts) })})
}

// measure adds the metrics of the pool.
func (c *cephPool) measure(pool cephsite.Measured) error {
	return registerAll(c.registry, cephsite.Collector(c.site.Pool, pool))
}

// join makes the pool a node of the cluster, while it is served.
func (c *cephPool) join(pool cephsite.Site, clients *clients, log *slog.Logger) ([]part, error) {
	in := v1beta1.CephSpec{FSID: c.site.Ceph.FSID, Pool: c.site.Ceph.Pool, Filesystem: c.site.Ceph.FileSystem, Namespace: c.site.Ceph.Namespace}
	requests := policy.Requests(clients.kubernetes, log)
	var users backend.NodeUsers
	if _, own := c.site.Ceph.ForNodes().HasOwnUsers(); own {
		users = pool
	}
	a, err := agent.New(agent.Config{
		Requests: requests, NodeUsers: users, Workers: 8,
		Node: v1beta1.NodeOfCephPool(c.site.Pool), Version: version, Backend: pool,
		Pools:  []agent.Pool{{Name: c.site.Pool, Path: in.Place(), Engine: c.site.Engine}},
		Client: clients.holdfast, Kubernetes: clients.kubernetes, Namespace: c.namespace, Events: clients.events, Log: log,
	})
	if err != nil {
		return nil, err
	}
	return []part{pool.Run, logged(log, a.Run), logged(log, requests.Run)}, nil
}
