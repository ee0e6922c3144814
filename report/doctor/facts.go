package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/report/status"
)

// The kinds of what is read, as they are named to people.
const (
	claims          = "claims"
	classes         = "storage classes"
	clusters        = "StorageClusters"
	csiNodes        = "CSINodes"
	daemonSets      = "DaemonSets"
	definitions     = "definitions of kinds"
	drivers         = "CSIDrivers"
	namespaces      = "namespace"
	nodes           = "nodes"
	policies        = "admission policies"
	pods            = "pods"
	secrets         = "secret of spec.secretRef"
	servers         = "NFSServers"
	snapshotClasses = "snapshot classes"
	snapshots       = "snapshots"
	storageNodes    = "StorageNodes"
	jobs            = "node jobs"
	upgrades        = "upgrades"
	volumes         = "volumes"
	warnings        = "events"
)

// Facts are what was read from the API server at one time.
type Facts struct {
	Namespace string // of Holdfast
	Driver    string
	Now       time.Time

	Clusters        []v1.StorageCluster
	StorageNodes    []v1.StorageNode
	Volumes         []v1.Volume
	Snapshots       []v1.Snapshot
	Servers         []v1.NFSServer
	Jobs            []v1.NodeJob
	Upgrades        []v1.StorageUpgrade
	DaemonSets      []string // the names of all
	Nodes           []core.Node
	CSINodes        []storage.CSINode
	Drivers         []storage.CSIDriver
	Classes         []storage.StorageClass
	Claims          []core.PersistentVolumeClaim // of all namespaces
	Pods            []core.Pod                   // of the namespace of Holdfast, and of those with claims that wait
	InlineUsers     []string                     // NAMESPACE/NAME of pods with inline ephemeral volumes, where none are allowed
	Warnings        []core.Event
	Home            *core.Namespace // the namespace of Holdfast; nil if it does not exist
	Secret          *core.Secret    // that the StorageCluster names; nil if it does not exist
	Policies        []string        // of Holdfast, and their bindings, as KIND NAME
	NoPolicies      bool            // the API server knows no such kind
	Borrowers       []string        // pods of all namespaces that have loop devices lent, or will, as NAMESPACE/NAME
	Definitions     map[string]*unstructured.Unstructured
	SnapshotClasses []unstructured.Unstructured
	GroupClasses    []unstructured.Unstructured

	Hidden map[string]error // what could not be read, and why
}

// Clients are the ways to the API server.
type Clients struct {
	Holdfast   holdfast.Interface
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface
}

// Gather reads what the checks look at. What may not be read is Hidden; an error says that nothing could be.
func Gather(ctx context.Context, c Clients, namespace, driver string) (*Facts, error) {
	g := &gathering{Clients: c, Facts: &Facts{
		Namespace: namespace, Driver: driver, Now: time.Now(), Definitions: map[string]*unstructured.Unstructured{}, Hidden: map[string]error{},
	}}
	reads := []func(context.Context){
		g.ours, g.cluster, g.network, g.storage, g.home, g.secret, g.kinds, g.waiting, g.inlineUsers, g.limits, g.borrowers,
	}
	for _, read := range reads {
		read(ctx)
		if g.down != nil {
			return nil, fmt.Errorf("the API server does not answer: %w", g.down)
		}
	}
	return g.Facts, nil
}

type gathering struct {
	Clients
	*Facts
	down error // no answer at all
}

// read keeps an error. That a kind or an object does not exist is none: there is nothing of it.
func (g *gathering) read(what string, err error) bool {
	if apierrors.IsNotFound(err) {
		return false
	}
	if status := apierrors.APIStatus(nil); err != nil && !errors.As(err, &status) {
		g.down = cmp.Or(g.down, err)
	}
	if err != nil {
		g.Hidden[what] = err
	}
	return err == nil
}

var all = metav1.ListOptions{}

func (g *gathering) ours(ctx context.Context) {
	kinds := g.Holdfast.HoldfastV1()
	if list, err := kinds.StorageClusters().List(ctx, all); g.read(clusters, err) {
		g.Clusters = list.Items
	}
	if list, err := kinds.StorageNodes().List(ctx, all); g.read(storageNodes, err) {
		g.StorageNodes = list.Items
	}
	if list, err := kinds.Volumes().List(ctx, all); g.read(volumes, err) {
		g.Volumes = list.Items
	}
	if list, err := kinds.Snapshots().List(ctx, all); g.read(snapshots, err) {
		g.Snapshots = list.Items
	}
	if list, err := kinds.NFSServers(metav1.NamespaceAll).List(ctx, all); g.read(servers, err) {
		g.Servers = list.Items
	}
	if list, err := kinds.NodeJobs().List(ctx, all); g.read(jobs, err) {
		g.Jobs = list.Items
	}
	if list, err := kinds.StorageUpgrades().List(ctx, all); g.read(upgrades, err) {
		g.Upgrades = list.Items
	}
}

func (g *gathering) cluster(ctx context.Context) {
	if list, err := g.Kubernetes.CoreV1().Nodes().List(ctx, all); g.read(nodes, err) {
		g.Nodes = list.Items
	}
	if list, err := g.Kubernetes.CoreV1().PersistentVolumeClaims("").List(ctx, all); g.read(claims, err) {
		g.Claims = list.Items
	}
	if list, err := g.Kubernetes.CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "type=" + core.EventTypeWarning}); g.read(warnings, err) {
		g.Warnings = list.Items
	}
}

func (g *gathering) storage(ctx context.Context) {
	kinds := g.Kubernetes.StorageV1()
	if list, err := kinds.StorageClasses().List(ctx, all); g.read(classes, err) {
		g.Classes = list.Items
	}
	if list, err := kinds.CSINodes().List(ctx, all); g.read(csiNodes, err) {
		g.CSINodes = list.Items
	}
	if list, err := kinds.CSIDrivers().List(ctx, all); g.read(drivers, err) {
		g.Drivers = list.Items
	}
}

func (g *gathering) home(ctx context.Context) {
	if home, err := g.Kubernetes.CoreV1().Namespaces().Get(ctx, g.Namespace, metav1.GetOptions{}); g.read(namespaces, err) {
		g.Home = home
	}
	g.podsOf(ctx, g.Namespace)
}

func (g *gathering) podsOf(ctx context.Context, namespace string) {
	if list, err := g.Kubernetes.CoreV1().Pods(namespace).List(ctx, all); g.read(pods, err) {
		g.Pods = append(g.Pods, list.Items...)
	}
}

func (g *gathering) secret(ctx context.Context) {
	name := kube.SecretName(g.served(), g.Namespace)
	if name.Name == "" {
		return
	}
	if s, err := g.Kubernetes.CoreV1().Secrets(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{}); g.read(secrets, err) {
		g.Secret = s
	}
}

var (
	definitionResource    = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	snapshotClassResource = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotclasses"}
	groupClassResource    = schema.GroupVersionResource{Group: "groupsnapshot.storage.k8s.io", Version: "v1", Resource: "volumegroupsnapshotclasses"}
)

// kinds reads the definitions one by one: those of others are many, and large.
func (g *gathering) kinds(ctx context.Context) {
	for _, name := range wantedDefinitions() {
		if d, err := g.Dynamic.Resource(definitionResource).Get(ctx, name, metav1.GetOptions{}); g.read(definitions, err) {
			g.Definitions[name] = d
		}
	}
	if g.Definitions[snapshotClassDefinition] != nil {
		if list, err := g.Dynamic.Resource(snapshotClassResource).List(ctx, all); g.read(snapshotClasses, err) {
			g.SnapshotClasses = list.Items
		}
	}
	if g.Definitions[groupClassDefinition] != nil {
		if list, err := g.Dynamic.Resource(groupClassResource).List(ctx, all); g.read(snapshotClasses, err) {
			g.GroupClasses = list.Items
		}
	}
}

// waiting reads the pods of namespaces where a claim waits, for they may tell why.
func (g *gathering) waiting(ctx context.Context) {
	seen := map[string]bool{g.Namespace: true}
	for i := range g.Claims {
		if c := &g.Claims[i]; c.Status.Phase == core.ClaimPending && !seen[c.Namespace] {
			seen[c.Namespace] = true
			g.podsOf(ctx, c.Namespace)
		}
	}
}

func (f *Facts) served() *v1.StorageCluster { return status.Served(f.Clusters) }

// withCSI says whether Kubernetes is to reach the driver at all.
func (f *Facts) withCSI() bool {
	c := f.served()
	return c == nil || c.Spec.CSI.Enable == nil || *c.Spec.CSI.Enable
}

// lastWarning about an object; nil if there is none.
func (f *Facts) lastWarning(kind, namespace, name string) *core.Event {
	var last *core.Event
	for i := range f.Warnings {
		e := &f.Warnings[i]
		o := e.InvolvedObject
		if o.Kind == kind && o.Namespace == namespace && o.Name == name && (last == nil || status.When(e).After(status.When(last))) {
			last = e
		}
	}
	return last
}
