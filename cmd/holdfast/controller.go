//go:build linux && !client

package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend/cluster"
	"github.com/holdfast-storage/holdfast/driver"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/operator/bootstrap"
	"github.com/holdfast-storage/holdfast/operator/fencing"
	"github.com/holdfast-storage/holdfast/operator/volume"
	"github.com/holdfast-storage/holdfast/operator/volumecopy"
)

func newControllerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Serve the volumes of all nodes of a Kubernetes cluster",
		Long: `The driver's controller services, for the sidecars in the same pod: a volume becomes a Volume object, which the agent of
its node reconciles. Of several replicas one leads. The others answer their sidecars that they are not ready, so that
those wait and need no election of their own.

The leader is also the operator: it reconciles what the StorageCluster specifies, and removes it with the
StorageCluster. From outside of the cluster it runs with --operator-alone.`,
		Example: `  holdfast controller --operator-alone --kubeconfig "$KUBECONFIG"
  holdfast controller --endpoint unix:///csi/csi.sock`,
	}
	c := controllerFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) }
	return cmd
}

// leaseLasts is the duration of the leader's Lease.
const leaseLasts = 30 * time.Second

type controller struct {
	*logging
	*kubeAccess
	*monitoring
	driver              driver.Config
	operator            *operator
	identity            string
	snapshotterEndpoint string
}

func controllerFlags(flags *pflag.FlagSet) *controller {
	c := &controller{logging: logFlags(flags), kubeAccess: kubeFlags(flags), monitoring: monitoringFlags(flags)}
	c.operator = operatorFlags(flags, c.kubeAccess, &c.driver.Name, &c.identity)
	flags.StringVar(&c.driver.Endpoint, "endpoint", "unix:///csi/csi.sock", "the `socket` to serve on")
	flags.StringVar(&c.snapshotterEndpoint, "snapshotter-endpoint", "", "another `socket` for csi-snapshotter, which exists when the kinds of snapshots do")
	flags.StringVar(&c.driver.Name, "driver-name", driver.DefaultName, "`name` of the driver, as StorageClasses have it")
	flags.DurationVar(&c.driver.StopTimeout, "stop-timeout", driver.DefaultStopTimeout, "how long a stop waits for running calls, a `duration`")
	flags.BoolVar(&c.driver.Attach, "attach", false, "serve the calls of external-attacher, for a CSIDriver with attachRequired, as with pools in Ceph clusters")
	flags.StringVar(&c.identity, "identity", "", "`name` of this replica in the Lease; the host's name if empty")
	return c
}

func (c *controller) run(ctx context.Context) error {
	log, err := c.logger()
	if err != nil {
		return err
	}
	clients, err := c.connect(v1beta1.ControllerName, log)
	if err != nil {
		return err
	}
	watches := kube.NewWatches(ctx, clients.holdfast, clients.kubernetes, c.namespace)
	debug, err := c.follow(watches.Holdfast, log)
	if err != nil {
		return err
	}
	if c.operator.alone {
		return c.runAlone(ctx, clients, watches, log, debug)
	}
	storage, work, err := c.storage(clients, watches, log)
	if err != nil {
		return err
	}
	c.driver.Version, c.driver.Log, c.driver.Registerer = version, log, c.registry
	leading := make(chan struct{})
	c.driver.Services, c.driver.Backend, c.driver.Leading = driver.ControllerServices, storage, leading
	d, err := driver.New(c.driver)
	if err != nil {
		return err
	}
	if err := c.checkCSI(c.driver.Endpoint); err != nil {
		return err
	}
	parts := []part{c.monitoring.serve(log), clients.broadcast, logged(log, func(ctx context.Context) error {
		if err := storage.Start(ctx); err != nil {
			return err
		}
		return c.serve(ctx, clients, watches, log, d, work, leading)
	}), logged(log, debug)}
	if c.operator.enabled {
		parts = append(parts, logged(log, c.operator.missingKinds(clients, log)))
	}
	if c.snapshotterEndpoint != "" {
		shown, err := c.showSnapshotter(clients, log)
		if err != nil {
			return err
		}
		parts = append(parts, logged(log, shown))
	}
	if c.operator.address != "" {
		api, err := c.operator.serve(clients, watches, c.health, log)
		if err != nil {
			return fmt.Errorf("--api-address: %w", err)
		}
		c.registry.MustRegister(api.Collector())
		parts = append(parts, logged(log, api.Run))
	}
	return runAll(ctx, parts)
}

// storage serves the volumes of all nodes. In the replica that leads, the work on volumes, on lost nodes and on copies between
// pools runs too.
func (c *controller) storage(clients *clients, watches *kube.Watches, log *slog.Logger) (*cluster.Backend, []part, error) {
	storage, err := cluster.New(cluster.Config{
		Client: clients.holdfast, Kubernetes: clients.kubernetes, Watches: watches, Namespace: c.namespace, Driver: c.driver.Name, Log: log,
	})
	if err != nil {
		return nil, nil, err
	}
	volumes, err := volume.New(volume.Config{Storage: storage, Events: clients.events})
	if err != nil {
		return nil, nil, err
	}
	fences, err := fencing.New(fencing.Config{
		Client: clients.holdfast, Kubernetes: clients.kubernetes, Watches: watches, Liveness: storage, Driver: c.driver.Name, Events: clients.events, Log: log,
	})
	if err != nil {
		return nil, nil, err
	}
	copies, err := volumecopy.New(volumecopy.Config{Storage: storage, Image: c.ownImage(clients), Events: clients.events})
	if err != nil {
		return nil, nil, err
	}
	return storage, []part{volumes.Run, fences.Run, copies.Run}, nil
}

// ownImage finds out what the pods run that copy volumes: what this process runs.
func (c *controller) ownImage(clients *clients) func(context.Context) (v1beta1.Image, []core.LocalObjectReference, error) {
	return func(ctx context.Context) (v1beta1.Image, []core.LocalObjectReference, error) {
		image, secrets, err := bootstrap.ImageAndSecrets(ctx, clients.kubernetes, c.namespace, c.identity)
		if err == nil && image == "" {
			err = fmt.Errorf("the image of this program is not known: in namespace %s there is no pod %q with a container holdfast, as --identity says", c.namespace, c.identity)
		}
		return image, secrets, err
	}
}

// aloneLease is held by an operator that runs alone, outside of the cluster.
const aloneLease = "holdfast-operator"

// runAlone runs the operator without a driver. That of the cluster stands by while it runs.
func (c *controller) runAlone(ctx context.Context, clients *clients, watches *kube.Watches, log *slog.Logger, debug part) error {
	return runAll(ctx, []part{c.monitoring.serve(log), clients.broadcast, logged(log, debug), logged(log, func(ctx context.Context) error {
		return c.lead(ctx, clients, log, aloneLease, []part{func(ctx context.Context) error { return c.operator.run(ctx, clients, watches, log) }})
	})})
}

// serve answers the sidecars, which may start when this replica leads. The Lease is held until the last call has ended.
func (c *controller) serve(ctx context.Context, clients *clients, watches *kube.Watches, log *slog.Logger, d *driver.Driver, work []part, leading chan<- struct{}) error {
	serving, stop := context.WithCancel(ctx)
	defer stop()
	stopped := make(chan struct{})
	return runAll(ctx, []part{
		func(context.Context) error {
			defer close(stopped)
			return d.Run(serving)
		},
		func(ctx context.Context) error {
			defer stop()
			parts := append(slices.Clone(work), func(lease context.Context) error {
				close(leading)
				<-lease.Done()
				stop()
				<-stopped
				return nil
			})
			if c.operator.enabled {
				standby := kube.Standby{Watches: watches, Namespace: c.namespace, Name: aloneLease, Log: log}
				parts = append(parts, func(ctx context.Context) error {
					return standby.Run(ctx, func(ctx context.Context) error { return c.operator.run(ctx, clients, watches, log) })
				})
			}
			return c.lead(ctx, clients, log, v1beta1.ControllerName, parts)
		},
	})
}

// holderOf is the holder of a Lease that an --identity names; that of a pod is its name.
func holderOf(identity string) (string, error) {
	if identity != "" {
		return identity, nil
	}
	return os.Hostname()
}

// lead waits until this replica leads and runs all parts while it does.
func (c *controller) lead(ctx context.Context, clients *clients, log *slog.Logger, leaseName string, parts []part) error {
	identity, err := holderOf(c.identity)
	if err != nil {
		return err
	}
	lease := kube.Lease{Client: clients.kubernetes.CoordinationV1(), Namespace: c.namespace, Name: leaseName, Holder: identity, Lasts: leaseLasts}
	return lease.Lead(ctx, func(ctx context.Context) error {
		log.Info("leading", "identity", identity)
		return runAll(ctx, parts)
	})
}
