// Package facts reads what the API server has of a cluster's storage, once, and judges the objects of Holdfast, so that
// all reports about a cluster agree.
package facts

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/operator/render"
)

// The kinds of what is read, as they are named to people.
const (
	Claims          = "claims"
	Classes         = "storage classes"
	Clusters        = "StorageClusters"
	CSINodes        = "CSINodes"
	DaemonSets      = "DaemonSets"
	Definitions     = "definitions of kinds"
	Drivers         = "CSIDrivers"
	Jobs            = "node jobs"
	Namespaces      = "namespace"
	Nodes           = "nodes"
	Pods            = "pods"
	Policies        = "admission policies"
	Secrets         = "secret of spec.secretRef"
	Servers         = "NFSServers"
	SnapshotClasses = "snapshot classes"
	Snapshots       = "snapshots"
	StorageNodes    = "StorageNodes"
	Upgrades        = "upgrades"
	Volumes         = "volumes"
	Warnings        = "events"
)

// Required are the kinds without which nothing can be said about a cluster's storage.
var Required = []string{Clusters, StorageNodes, Volumes, Snapshots}

// Facts are what was read from the API server at one time.
type Facts struct {
	Namespace string // of Holdfast
	Driver    string
	Now       time.Time

	Clusters     []*v1beta1.StorageCluster
	StorageNodes []*v1beta1.StorageNode
	Volumes      []*v1beta1.Volume
	Snapshots    []*v1beta1.Snapshot
	Servers      []*v1beta1.NFSServer
	Jobs         []*v1beta1.NodeJob
	Upgrades     []*v1beta1.StorageUpgrade
	Warnings     []*core.Event

	// What All reads beside these.
	DaemonSets      []string // the names of all
	Nodes           []*core.Node
	CSINodes        []*storage.CSINode
	Drivers         []*storage.CSIDriver
	Classes         []*storage.StorageClass
	Claims          []*core.PersistentVolumeClaim // of all namespaces
	Pods            []*core.Pod                   // of the namespace of Holdfast, and of those with claims that wait
	InlineUsers     []string                      // NAMESPACE/NAME of pods with inline ephemeral volumes
	Borrowers       []string                      // NAMESPACE/NAME of pods that have loop devices allocated, or will
	Home            *core.Namespace               // the namespace of Holdfast; nil if it does not exist
	Secret          *core.Secret                  // that the StorageCluster names; nil if it does not exist
	Policies        []string                      // of Holdfast, and their bindings, as KIND NAME
	Definitions     map[string]*unstructured.Unstructured
	SnapshotClasses []*unstructured.Unstructured
	GroupClasses    []*unstructured.Unstructured

	Hidden  map[string]error // what could not be read, and why
	Unknown map[string]error // kinds that the API server does not know
}

// Unread is an error if a required kind could not be read, or the API server does not know it.
func (f *Facts) Unread() error {
	for _, kind := range Required {
		if err := cmp.Or(f.Hidden[kind], f.Unknown[kind]); err != nil {
			return fmt.Errorf("the %s could not be read (is Holdfast installed here?): %w", kind, err)
		}
	}
	return nil
}

// NotInstalled says that the API server knows none of the required kinds.
func (f *Facts) NotInstalled() bool {
	return !slices.ContainsFunc(Required, func(kind string) bool { return f.Unknown[kind] == nil })
}

// Served is the StorageCluster that the operator serves; nil without any.
func (f *Facts) Served() *v1beta1.StorageCluster { return v1beta1.Served(f.Clusters) }

// WithCSI says whether Kubernetes is to reach the driver at all.
func (f *Facts) WithCSI() bool {
	c := f.Served()
	return c == nil || render.WithCSI(&c.Spec)
}

// LastWarning about an object; nil if there is none.
func (f *Facts) LastWarning(kind, namespace, name string) (last *core.Event) {
	for _, e := range f.Warnings {
		o := e.InvolvedObject
		if o.Kind == kind && o.Namespace == namespace && o.Name == name && (last == nil || kube.LastOccurrence(e).After(kube.LastOccurrence(last))) {
			last = e
		}
	}
	return last
}
