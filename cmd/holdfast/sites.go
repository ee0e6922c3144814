//go:build linux && !client

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/holdfast-storage/holdfast/api/convert"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/local"
	"github.com/holdfast-storage/holdfast/backend/local/disk"
	"github.com/holdfast-storage/holdfast/nodeops"
)

// sites turns the pools of this node into the configuration of the storage.
func (n *node) sites(pools []v1beta1.PoolSpec, log *slog.Logger) (all []local.Site) {
	host := &disk.Host{
		Dir: n.stateDir, Node: n.driver.NodeID, Cluster: clusterID(n.clients.kubernetes), Log: log, Proc: n.hostProc(),
		Attached: attachedByOthers(n.clients.kubernetes, n.driver.NodeID, n.driver.Name),
	}
	if err := host.NoteDevices(); err != nil {
		log.Error("on this node only disks that paths or model name are used", "error", err)
	}
	for _, p := range pools {
		all = append(all, site(p, host))
	}
	return all
}

// clusterID identifies a cluster, regardless of what is installed in it.
func clusterID(c kubernetes.Interface) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		system, err := c.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return string(system.UID), nil
	}
}

// site never fails: an invalid pool is out of reach for that reason.
func site(p v1beta1.PoolSpec, host *disk.Host) local.Site {
	s := local.Site{PoolConfig: local.PoolConfig{
		Name: p.Name, Engine: convert.ToEngine(p.Engine), Path: cmp.Or(p.Path, host.Place(p.Name)), RequireMount: p.RequireMount,
	}}
	var wrong []error
	var err error
	if s.Overcommit, err = p.OvercommitTimes(); err != nil {
		wrong = append(wrong, fmt.Errorf("overcommit %w", err))
	}
	if s.Reserved, err = p.ReservedRoom(); err != nil {
		wrong = append(wrong, fmt.Errorf("reserved %w", err))
	}
	if len(p.NodeSelectorTerms) > 0 {
		if _, err = nodeaffinity.NewNodeSelector(&core.NodeSelector{NodeSelectorTerms: p.NodeSelectorTerms}); err != nil {
			wrong = append(wrong, fmt.Errorf("nodeSelectorTerms: %w", err))
		}
	}
	if p.Devices != nil && (p.Path != "" || p.RequireMount) {
		wrong = append(wrong, fmt.Errorf("it has devices, and the path %q or requireMount %t; it may have one of them", p.Path, p.RequireMount))
	}
	if p.TrashRetention != nil {
		retention, err := p.TrashRetention.Or(0)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("trashRetention: %w", err))
		}
		s.TrashRetention = backend.TrashRetention(retention)
	}
	problem := errors.Join(wrong...)
	inSpec, number := v1beta1.InSpec(p.Name)
	s.Reach = func(ctx context.Context, e backend.PoolExpectation) error {
		switch {
		case problem != nil:
			return problem
		case p.Devices == nil:
			return host.Directory(s.Name, s.Path, e)
		case number > 1 && e.MayBegin() && !host.HasDisk(v1beta1.OfDevice(inSpec, number-1)):
			return backend.BecauseOf(backend.NoDisk, fmt.Errorf("pool %s has no disk yet, and gets one first", v1beta1.OfDevice(inSpec, number-1)))
		}
		return host.Mount(ctx, s.Name, deviceSelector(p.Devices), e)
	}
	return s
}

func deviceSelector(d *v1beta1.DeviceSelector) nodeops.DeviceSelector {
	s := nodeops.DeviceSelector{Paths: d.Paths, Model: d.Model, Rotational: d.Rotational}
	if d.MinSize != nil {
		s.MinSize = d.MinSize.Value()
	}
	return s
}
