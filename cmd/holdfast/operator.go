//go:build linux && !client

package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/spf13/pflag"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend/local"
	"github.com/holdfast-storage/holdfast/healthz"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/apply"
	"github.com/holdfast-storage/holdfast/operator/bootstrap"
	"github.com/holdfast-storage/holdfast/operator/cluster"
	"github.com/holdfast-storage/holdfast/operator/definitions"
	"github.com/holdfast-storage/holdfast/operator/nfsserver"
	"github.com/holdfast-storage/holdfast/operator/nodejob"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/operator/snapshots"
	"github.com/holdfast-storage/holdfast/operator/upgrade"
	"github.com/holdfast-storage/holdfast/report/web"
)

// operator reconciles Holdfast itself from the StorageCluster, and serves the API.
type operator struct {
	*kubeAccess
	enabled bool
	alone   bool
	address string  // of the API
	driver  *string // the name of the driver
	pod     *string // the name of this pod
}

func operatorFlags(flags *pflag.FlagSet, k *kubeAccess, driver, pod *string) *operator {
	o := &operator{kubeAccess: k, driver: driver, pod: pod}
	flags.BoolVar(&o.enabled, "operator", true, "reconcile the StorageCluster; disable to manage the objects manually")
	flags.BoolVar(&o.alone, "operator-alone", false, "run only the operator, outside of the cluster: while this runs, the operator in the cluster stands by")
	flags.StringVar(&o.address, "api-address", "", "`address` for the API over HTTPS, such as :5705; none if empty")
	return o
}

// begin finds out the workload and image of this process, and creates the StorageCluster of a new installation.
func (o *operator) begin(ctx context.Context, c *clients, kinds *definitions.Controller, log *slog.Logger) (r render.Release, err error) {
	var own v1beta1.Image
	if *o.pod != "" && !o.alone {
		if own, err = bootstrap.Image(ctx, c.kubernetes, o.namespace, *o.pod); err != nil {
			return r, err
		}
	}
	r = render.NewRelease(own, os.Getenv)
	if err := bootstrap.Define(ctx, c.dynamic, log); err != nil {
		log.Warn("the kinds could not be updated and stay as installed: apply the manifest of this release", "error", err)
	}
	if err := kinds.Restore(ctx); err != nil { // a StorageCluster that will be recreated takes precedence over a new one
		log.Warn("recorded objects are not recreated yet", "error", err)
		return r, nil
	}
	if err := o.first(c, log)(ctx); err != nil {
		log.Warn("no StorageCluster was created: create one", "error", err)
	}
	return r, nil
}

func (o *operator) first(c *clients, log *slog.Logger) func(context.Context) error {
	return func(ctx context.Context) error {
		return bootstrap.Make(ctx, c.kubernetes, c.holdfast, o.namespace, log)
	}
}

// missingKinds creates missing kinds, whether or not this replica leads.
func (o *operator) missingKinds(c *clients, log *slog.Logger) part {
	return func(ctx context.Context) error {
		kinds, err := definitions.New(definitions.Config{
			Client: c.holdfast, Kubernetes: c.kubernetes, Dynamic: c.dynamic, Namespace: o.namespace, OnlyMissing: true, Log: log,
		})
		if err != nil {
			return err
		}
		if err := kinds.Start(ctx); err != nil {
			return nil //nolint:nilerr // it was to end
		}
		return kinds.Run(ctx)
	}
}

// run reconciles Holdfast until ctx ends. Only one process may at a time.
func (o *operator) run(ctx context.Context, c *clients, watches *kube.Watches, log *slog.Logger) error {
	set, err := apply.New(apply.Config{
		Client: c.dynamic, Resources: c.holdfast.Discovery().ServerResourcesForGroupVersion, Kinds: cluster.Kinds(),
		Name: "cluster", Namespace: o.namespace, Stranger: apply.TellOfStranger(c.kubernetes), Log: log,
	})
	if err != nil {
		return err
	}
	sites, err := o.ownedByServers(c, log)
	if err != nil {
		return err
	}
	kinds, err := definitions.New(definitions.Config{
		Client: c.holdfast, Kubernetes: c.kubernetes, Dynamic: c.dynamic, Namespace: o.namespace, Owners: []definitions.Owner{set, sites},
		First: o.first(c, log), Log: log,
	})
	if err != nil {
		return err
	}
	release, err := o.begin(ctx, c, kinds, log)
	if err != nil {
		return err
	}
	clusters, err := cluster.New(cluster.Config{
		Client: c.holdfast, Kubernetes: c.kubernetes, Owned: set, Watches: watches,
		Namespace: o.namespace, Release: release, Snapshots: snapshots.New(c.dynamic, log), Driver: *o.driver, Events: c.events, Log: log,
		Kinds: kinds,
	})
	if err != nil {
		return err
	}
	jobs, err := nodejob.New(nodejob.Config{
		Client: c.holdfast, Kubernetes: c.kubernetes, Watches: watches, Namespace: o.namespace, Release: release, Log: log,
	})
	if err != nil {
		return err
	}
	servers, err := nfsserver.New(nfsserver.Config{
		Client: c.holdfast, Kubernetes: c.kubernetes, Owned: set, Servers: sites, Watches: watches,
		Namespace: o.namespace, Release: release, Whole: kinds.Whole, Events: c.events, Log: log,
	})
	if err != nil {
		return err
	}
	upgrades, err := upgrade.New(upgrade.Config{
		Client: c.holdfast, Kubernetes: c.kubernetes, Owned: set, Watches: watches,
		Namespace: o.namespace, Release: release, Driver: *o.driver, Metadata: local.MetadataVersion, NFS: servers, Log: log,
	})
	if err != nil {
		return err
	}
	watches.Start()
	for _, start := range []part{kinds.Start, set.Start, sites.Start} {
		if err := start(ctx); err != nil {
			if ctx.Err() != nil {
				err = nil // it was to end
			}
			return err
		}
	}
	log.Info("the operator runs", "namespace", o.namespace)
	return runAll(ctx, []part{kinds.Run, clusters.Run, jobs.Run, servers.Run, upgrades.Run})
}

// ownedByServers are the objects of NFS servers, in all namespaces.
func (o *operator) ownedByServers(c *clients, log *slog.Logger) (*apply.Set, error) {
	return apply.New(apply.Config{
		Client: c.dynamic, Resources: c.holdfast.Discovery().ServerResourcesForGroupVersion, Kinds: nfsserver.Kinds(),
		Name: "servers", Everywhere: true, Instance: nfsserver.Label, InventoryNamespace: o.namespace,
		Stranger: apply.TellOfStranger(c.kubernetes), Log: log,
	})
}

// serve is the API of a replica, whether or not it leads.
func (o *operator) serve(c *clients, watches *kube.Watches, health *healthz.Checks, log *slog.Logger) (*web.Server, error) {
	return web.New(web.Config{
		Address: o.address, Namespace: o.namespace, Watches: watches, Kubernetes: c.kubernetes,
		Health: health, Log: log,
	})
}
