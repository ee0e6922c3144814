package facts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/podstatus"
)

// Clients are the ways to the API server.
type Clients struct {
	Holdfast   holdfast.Interface
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface
}

// OfHoldfast reads its objects and the warnings. What may not be read, or is not answered, is Hidden; an error says that
// nothing could be read.
func OfHoldfast(ctx context.Context, c Clients, namespace string) (*Facts, error) {
	g := &gathering{Clients: c, Facts: &Facts{Namespace: namespace}}
	return g.gather(ctx, g.ours, g.warnings)
}

// All reads in addition what its parts and their users are in the cluster. An error says that the API server was down.
func All(ctx context.Context, c Clients, namespace, driver string) (*Facts, error) {
	g := &gathering{Clients: c, Facts: &Facts{Namespace: namespace, Driver: driver}, all: true}
	return g.gather(ctx, g.ours, g.warnings, g.cluster, g.namespaced, g.pods, g.policies, g.kinds)
}

type gathering struct {
	Clients
	*Facts
	all      bool  // is to be read, or nothing
	answered bool  // the API server did once, if only that something is not allowed
	silent   error // no answer at all
}

func (g *gathering) gather(ctx context.Context, reads ...func(context.Context)) (*Facts, error) {
	g.Now, g.Definitions, g.Hidden, g.Unknown = time.Now(), map[string]*unstructured.Unstructured{}, map[string]error{}, map[string]error{}
	for _, read := range reads {
		if read(ctx); g.down() {
			return nil, fmt.Errorf("the API server does not answer: %w", g.silent)
		}
	}
	return g.Facts, nil
}

func (g *gathering) down() bool { return g.silent != nil && (g.all || !g.answered) }

// read keeps an error. That an object does not exist is none.
func (g *gathering) read(kind string, err error) bool {
	if status := apierrors.APIStatus(nil); err == nil || errors.As(err, &status) {
		g.answered = true
	} else {
		g.silent = cmp.Or(g.silent, err)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		g.Hidden[kind] = err
	}
	return err == nil
}

// each calls keep for all objects of a kind, page by page.
func each[T any, L runtime.Object](ctx context.Context, g *gathering, kind string, ask func(context.Context, metav1.ListOptions) (L, error), options metav1.ListOptions, keep func(*T)) {
	if g.down() {
		return
	}
	err := kube.Each(ctx, ask, options, keep)
	if !g.read(kind, err) && apierrors.IsNotFound(err) {
		g.Unknown[kind] = err
	}
}

var everything = metav1.ListOptions{}

func list[T any, L runtime.Object](ctx context.Context, g *gathering, kind string, ask func(context.Context, metav1.ListOptions) (L, error), into *[]*T) {
	each(ctx, g, kind, ask, everything, func(o *T) { *into = append(*into, o) })
}

func (g *gathering) ours(ctx context.Context) {
	kinds := g.Holdfast.HoldfastV1beta1()
	list(ctx, g, Clusters, kinds.StorageClusters().List, &g.Clusters)
	list(ctx, g, StorageNodes, kinds.StorageNodes().List, &g.StorageNodes)
	list(ctx, g, Volumes, kinds.Volumes().List, &g.Volumes)
	list(ctx, g, Snapshots, kinds.Snapshots().List, &g.Snapshots)
	list(ctx, g, Servers, kinds.NFSServers(metav1.NamespaceAll).List, &g.Servers)
	list(ctx, g, Jobs, kinds.NodeJobs().List, &g.Jobs)
	list(ctx, g, Upgrades, kinds.StorageUpgrades().List, &g.Upgrades)
}

func (g *gathering) warnings(ctx context.Context) {
	each(ctx, g, Warnings, g.Kubernetes.CoreV1().Events(metav1.NamespaceAll).List, metav1.ListOptions{FieldSelector: "type=" + core.EventTypeWarning},
		func(e *core.Event) { g.Warnings = append(g.Warnings, e) })
}

func (g *gathering) cluster(ctx context.Context) {
	list(ctx, g, Nodes, g.Kubernetes.CoreV1().Nodes().List, &g.Nodes)
	list(ctx, g, Claims, g.Kubernetes.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll).List, &g.Claims)
	list(ctx, g, Classes, g.Kubernetes.StorageV1().StorageClasses().List, &g.Classes)
	list(ctx, g, CSINodes, g.Kubernetes.StorageV1().CSINodes().List, &g.CSINodes)
	list(ctx, g, Drivers, g.Kubernetes.StorageV1().CSIDrivers().List, &g.Drivers)
	each(ctx, g, DaemonSets, g.Kubernetes.AppsV1().DaemonSets(metav1.NamespaceAll).List, everything,
		func(d *apps.DaemonSet) { g.DaemonSets = append(g.DaemonSets, d.Name) })
}

func (g *gathering) namespaced(ctx context.Context) {
	if home, err := g.Kubernetes.CoreV1().Namespaces().Get(ctx, g.Namespace, metav1.GetOptions{}); g.read(Namespaces, err) {
		g.Home = home
	}
	name := kube.SecretName(g.Served(), g.Namespace)
	if name.Name == "" {
		return
	}
	if s, err := g.Kubernetes.CoreV1().Secrets(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{}); g.read(Secrets, err) {
		g.Secret = s
	}
}

// pods reads those of all namespaces, of which there may be many, and keeps few: those of Holdfast, and those in the
// namespace of a claim that waits, which may say why.
func (g *gathering) pods(ctx context.Context) {
	kept := map[string]bool{g.Namespace: true}
	for _, c := range g.Claims {
		kept[c.Namespace] = kept[c.Namespace] || c.Status.Phase == core.ClaimPending
	}
	each(ctx, g, Pods, g.Kubernetes.CoreV1().Pods(metav1.NamespaceAll).List, everything, func(p *core.Pod) {
		if kept[p.Namespace] {
			g.Pods = append(g.Pods, p.DeepCopy()) // of its own, or it keeps its page
		}
		if podstatus.HasEnded(p) {
			return
		}
		if slices.ContainsFunc(p.Spec.Volumes, func(v core.Volume) bool { return v.CSI != nil && v.CSI.Driver == g.Driver }) {
			g.InlineUsers = append(g.InlineUsers, p.Namespace+"/"+p.Name)
		}
		if slices.ContainsFunc(slices.Concat(p.Spec.InitContainers, p.Spec.Containers), borrows) {
			g.Borrowers = append(g.Borrowers, p.Namespace+"/"+p.Name)
		}
	})
}

func borrows(c core.Container) bool {
	_, has := c.Resources.Limits[v1beta1.LoopSetResource]
	return has
}

// The kinds of the policies of Holdfast.
const (
	PolicyKind  = "ValidatingAdmissionPolicy"
	BindingKind = "ValidatingAdmissionPolicyBinding"
)

func (g *gathering) policies(ctx context.Context) {
	ours := metav1.ListOptions{LabelSelector: v1beta1.PartOfLabel + "=" + v1beta1.AppName}
	kinds := g.Kubernetes.AdmissionregistrationV1()
	each(ctx, g, Policies, kinds.ValidatingAdmissionPolicies().List, ours,
		func(p *admission.ValidatingAdmissionPolicy) { g.Policies = append(g.Policies, PolicyKind+" "+p.Name) })
	each(ctx, g, Policies, kinds.ValidatingAdmissionPolicyBindings().List, ours,
		func(b *admission.ValidatingAdmissionPolicyBinding) {
			g.Policies = append(g.Policies, BindingKind+" "+b.Name)
		})
}

// Kinds of snapshots, by the names of their definitions.
const (
	SnapshotDefinition      = "volumesnapshots.snapshot.storage.k8s.io"
	SnapshotClassDefinition = "volumesnapshotclasses.snapshot.storage.k8s.io"
	ContentDefinition       = "volumesnapshotcontents.snapshot.storage.k8s.io"
	GroupClassDefinition    = "volumegroupsnapshotclasses.groupsnapshot.storage.k8s.io"
)

var (
	snapshotClassResource = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotclasses"}
	groupClassResource    = schema.GroupVersionResource{Group: "groupsnapshot.storage.k8s.io", Version: "v1", Resource: "volumegroupsnapshotclasses"}
)

// kinds reads the definitions one by one: those of others are many, and large.
func (g *gathering) kinds(ctx context.Context) {
	wanted := []string{SnapshotDefinition, SnapshotClassDefinition, ContentDefinition, GroupClassDefinition}
	for _, d := range deploy.Definitions() {
		wanted = append(wanted, d.GetName())
	}
	for _, name := range wanted {
		if d, err := g.Dynamic.Resource(kube.Definitions).Get(ctx, name, metav1.GetOptions{}); g.read(Definitions, err) {
			g.Definitions[name] = d
		}
	}
	if g.Definitions[SnapshotClassDefinition] != nil {
		list(ctx, g, SnapshotClasses, g.Dynamic.Resource(snapshotClassResource).List, &g.SnapshotClasses)
	}
	if g.Definitions[GroupClassDefinition] != nil {
		list(ctx, g, SnapshotClasses, g.Dynamic.Resource(groupClassResource).List, &g.GroupClasses)
	}
}
