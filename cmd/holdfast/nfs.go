//go:build linux && !client

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend/export"
	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/nodeops/ganesha"
	"github.com/holdfast-storage/holdfast/provisioner"
)

func newNFSCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nfs",
		Short: "Serve the volumes of an NFSServer, as its pod",
		Long: `The volumes below --data are mounted here and served over NFS 4.1 and 4.2 by NFS-Ganesha, which is started, and
restarted when it dies or hangs. The agent reconciles the Volume objects of this server, and the provisioner
nfs.holdfast.dev creates PersistentVolumes for claims. Mounted volumes are served without the API server, too.

With --publish one directory is served, read only, and no volumes are created.`,
		Example: `  holdfast nfs --server default/shared --address 10.96.0.9 --data /data
  holdfast nfs --server default/docs --publish /published --publish-name docs`,
	}
	n := nfsFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return n.run(cmd.Context()) }
	return cmd
}

// nfs is one NFSServer.
type nfs struct {
	*logging
	*kubeAccess
	*monitoring
	server      string
	address     string
	host        netip.Addr
	data        string
	runDir      string
	stopTimeout time.Duration
	port        uint
	grace       time.Duration

	engine       string
	mountOptions string
	maxExports   int
	publish      string
	publishName  string
	uid          string

	access   string
	squash   string
	anonUID  string
	anonGID  string
	clients  string
	identity types.NamespacedName // of --server

	provisioning *provisioner.Metrics
	away         atomic.Pointer[error] // why the pool is out of reach; nil if it is not
}

func nfsFlags(flags *pflag.FlagSet) *nfs {
	n := &nfs{logging: logFlags(flags), kubeAccess: kubeFlags(flags), monitoring: monitoringFlags(flags), provisioning: provisioner.NewMetrics()}
	flags.StringVar(&n.server, "server", "", "`namespace/name` of the NFSServer")
	flags.StringVar(&n.address, "address", "", "`IP` of the Service, at which clients find the server wherever it runs")
	flags.TextVar(&n.host, "host-address", netip.Addr{}, "`IP` of the node, by which clients on it get their locks back after a move of the server to or from it")
	flags.StringVar(&n.data, "data", "/data", "`directory` of the volumes, and of state that must outlive this process")
	flags.StringVar(&n.runDir, "run-dir", "/run/holdfast/nfs", "`directory` of this process alone, on a tmpfs")
	flags.DurationVar(&n.stopTimeout, "stop-timeout", 45*time.Second, "how long a stop waits for running operations, a `duration`")
	flags.UintVar(&n.port, "port", v1beta1.NFSPort, "the `port` for clients")
	flags.DurationVar(&n.grace, "grace-period", 0, "how long after a start clients may reclaim their locks and no new ones are granted, a `duration`; 0: 90s")

	flags.StringVar(&n.engine, "engine", "Image", "what a volume is: Image, or Directory where the file system below --data has project quotas or is btrfs")
	flags.StringVar(&n.mountOptions, "mount-options", "", "`options` of volumes whose class has none, separated by commas")
	flags.IntVar(&n.maxExports, "max-exports", 0, "the maximum number of volumes, a `number`; 0: 65535. There are never more images than allocated loop devices")
	flags.StringVar(&n.publish, "publish", "", "a `directory` to serve read only, and nothing else")
	flags.StringVar(&n.publishName, "publish-name", "", "`name` under which clients find it")
	flags.StringVar(&n.uid, "uid", "", "`UID` of the NFSServer, by which clients of --publish recognize it after it has moved")

	flags.StringVar(&n.access, "access", string(v1beta1.NFSReadWrite), "what clients may do: ReadWrite, ReadOnly or None")
	flags.StringVar(&n.squash, "squash", "", "which users are replaced: no_root_squash, root_squash or all_squash")
	flags.StringVar(&n.anonUID, "anon-uid", "", "the user that replaces it, a `number`")
	flags.StringVar(&n.anonGID, "anon-gid", "", "the group that replaces it, a `number`")
	flags.StringVar(&n.clients, "clients", "", "`addresses` and networks that may mount, separated by commas; if empty, those in the status of the NFSServer where $"+clientsVariable+" is "+clientsOfStatus+", otherwise all")
	return n
}

// loopback is the only client with access None: this host, for the liveness check.
const loopback = "127.0.0.1"

// settings are the defaults for volumes whose labels do not override them.
func (n *nfs) settings() (s export.Settings, err error) {
	s.Squash, s.Clients = ganesha.Squash(n.squash), words(n.clients)
	switch v1beta1.NFSAccess(n.access) {
	case v1beta1.NFSReadWrite, v1beta1.NFSNone:
	case v1beta1.NFSReadOnly:
		s.ReadOnly = true
	default:
		return s, fmt.Errorf("--access %q: it must be %s, %s or %s: %w", n.access, v1beta1.NFSReadWrite, v1beta1.NFSReadOnly, v1beta1.NFSNone, errUsage)
	}
	for flag, id := range map[string]struct {
		value string
		to    **uint32
	}{"--anon-uid": {n.anonUID, &s.AnonUID}, "--anon-gid": {n.anonGID, &s.AnonGID}} {
		if id.value == "" {
			continue
		}
		number, err := strconv.ParseUint(id.value, 10, 32)
		if err != nil {
			return s, fmt.Errorf("%s %q: it must be a number from 0 to 4294967294: %w", flag, id.value, errUsage)
		}
		*id.to = new(uint32(number))
	}
	return s, nil
}

// words are what is between commas.
func words(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

func (n *nfs) check() error {
	n.engine = strings.ToLower(n.engine)
	var ok bool
	n.identity.Namespace, n.identity.Name, ok = strings.Cut(n.server, "/")
	if _, _, is := v1beta1.ParseNFSNode(n.node()); !ok || !is || strings.Contains(n.identity.Name, "/") {
		return fmt.Errorf("--server %q: it must be the NAMESPACE/NAME of the NFSServer: %w", n.server, errUsage)
	}
	for flag, dir := range map[string]string{"--data": n.data, "--run-dir": n.runDir} {
		if !filepath.IsAbs(dir) {
			return fmt.Errorf("%s %q: it must be an absolute path: %w", flag, dir, errUsage)
		}
	}
	if n.port < 1 || n.port > 65535 {
		return fmt.Errorf("--port %d: it must be 1 to 65535: %w", n.port, errUsage)
	}
	if n.publish != "" && n.publishName == "" {
		return fmt.Errorf("--publish-name is missing: it is the name under which clients find %s: %w", n.publish, errUsage)
	}
	return nil
}

// node is the name by which the server is a node of the cluster.
func (n *nfs) node() string { return v1beta1.NodeOfServer(n.server) }

func (n *nfs) run(ctx context.Context) error {
	if err := n.check(); err != nil {
		return err
	}
	log, err := n.logger()
	if err != nil {
		return err
	}
	settings, err := n.settings()
	if err != nil {
		return err
	}
	name, err := n.lastingName()
	if err != nil {
		return err
	}
	config, allowed, err := n.exporter(name, settings, log)
	if err != nil {
		return err
	}
	server, err := ganesha.New(config)
	if err != nil {
		return err
	}
	if err := registerAll(n.registry, append(n.provisioning.Collectors(), &nfsCollector{server, log})...); err != nil {
		return err
	}
	n.health.Ready("nfs", func(context.Context) error {
		if !server.Ready() {
			return errors.New("the NFS server does not answer; it is being started")
		}
		return nil
	})
	n.health.Ready("pool", func(context.Context) error {
		if away := n.away.Load(); away != nil {
			return *away
		}
		return nil
	})
	return runAll(ctx, []part{n.serve(log), func(ctx context.Context) error { return n.serveNFS(ctx, server, allowed, settings, log) }})
}

// serveNFS serves a published directory, or volumes.
func (n *nfs) serveNFS(ctx context.Context, server *ganesha.Server, allowed *allowedClients, s export.Settings, log *slog.Logger) (err error) {
	if n.publish != "" {
		parts := n.followAlone(server, allowed, log)
		if err := n.publishOne(ctx, server, s); err != nil {
			return err
		}
		return runAll(ctx, parts)
	}
	parts, end, err := n.serveVolumes(ctx, server, allowed, s, log)
	defer func() { err = errors.Join(err, n.stop(ctx, end)) }() // when Ganesha has closed the volumes
	if err != nil {
		return err
	}
	return runAll(ctx, parts)
}

// exporter returns the exporter, and the part that keeps the clients current: nil where --clients names them.
func (n *nfs) exporter(name string, s export.Settings, log *slog.Logger) (c ganesha.Config, allowed *allowedClients, err error) {
	c = ganesha.Config{
		RunDir: filepath.Join(n.runDir, "ganesha"), RecoveryDir: filepath.Join(n.data, "recovery"), Name: name,
		Port: uint16(n.port), Grace: n.grace, Log: log,
		Clients: s.Clients, // also of volumes whose labels name none
	}
	if n.followsClients() {
		if allowed, err = n.newAllowedClients(log); err != nil {
			return c, nil, err
		}
		c.Clients = allowed.first()
	}
	if n.host.IsValid() {
		c.Neighbours, err = ganesha.Neighbours(n.host)
	}
	return c, allowed, err
}

func (n *nfs) stop(ctx context.Context, end func(context.Context) error) error {
	if end == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.stopTimeout)
	defer cancel()
	return end(ctx)
}

// publishOne serves the files of one claim. The identity of the file system is that of the server, which has no other.
func (n *nfs) publishOne(ctx context.Context, server *ganesha.Server, s export.Settings) error {
	dir, err := filepath.EvalSymlinks(n.publish)
	if err != nil {
		return fmt.Errorf("--publish: %w", err)
	}
	clients := s.Clients
	if n.access == string(v1beta1.NFSNone) {
		clients = []string{loopback}
	}
	return server.Put(ctx, ganesha.Export{
		ID: 1, Path: dir, Pseudo: "/" + n.publishName, Filesystem: "1.1", Squash: s.Squash, ReadOnly: true, Clients: clients,
		AnonUID: s.AnonUID, AnonGID: s.AnonGID,
	})
}

// followAlone serves, and watches other objects, which also works without an API server.
func (n *nfs) followAlone(server *ganesha.Server, allowed *allowedClients, log *slog.Logger) []part {
	c, err := n.connect(nfsManager, log)
	var servers *provisioner.Servers
	if err == nil {
		servers, err = provisioner.NewServers(n.identity, n.namespace, c.holdfast, log)
	}
	if err != nil {
		log.Warn("the number of clients is not reported in the NFSServer, spec.debug has no effect, and the list of clients that may mount is not updated", "error", err)
		return []part{server.Run}
	}
	follow, err := n.following(server, c, servers, log)
	if err != nil {
		log.Warn("other objects are not watched", "error", err)
	}
	return append(follow, allowed.running(server, servers))
}

// directory makes one of our own below --data.
func (n *nfs) directory(name string) (string, error) {
	dir := filepath.Join(n.data, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("--data: %w", err)
	}
	return dir, nil
}

// lastingName is the name of the server to its clients, wherever it runs. Another cluster may have a server of the same
// name; one that starts with empty data is another server. One that publishes has no data of its own.
func (n *nfs) lastingName() (string, error) {
	if n.publish != "" && n.uid != "" {
		return n.node() + "." + n.uid, nil
	}
	dir, err := n.directory("server")
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "id")
	id, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(id) == 0 {
		id = []byte(strings.ToLower(rand.Text()))
		err = nodeops.ReplaceFile(file, id)
	}
	if err != nil {
		return "", fmt.Errorf("--data: %w", err)
	}
	return n.node() + "." + string(id), nil
}

func registerAll(registry *prometheus.Registry, all ...prometheus.Collector) error {
	for _, c := range all {
		if err := registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}
