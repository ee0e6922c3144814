package page

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/report/web"
	"github.com/holdfast-storage/holdfast/test/rig/alongside"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/miniapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

const (
	home     = "holdfast-system"
	user     = "reader"
	password = "correct horse"
	gib      = int64(1) << 30
)

// world is a cluster of objects, and the API with the page that shows them.
type world struct {
	*testing.T
	api    *miniapi.Server
	ours   client.Interface
	theirs kubernetes.Interface
	url    string
	dice   *rand.Rand
}

func newWorld(t *testing.T) *world {
	t.Helper()
	browser(t) // without it nothing of this is needed
	api := miniapi.New(t)
	return &world{
		T: t, api: api, ours: client.NewForConfigOrDie(api.Config()), theirs: kubernetes.NewForConfigOrDie(api.Config()),
		dice: rand.New(rand.NewPCG(1, 2)), //nolint:gosec // the same each time
	}
}

// serve starts the API, and waits until the user may come in and all is known.
func (w *world) serve() {
	w.Helper()
	check.Got(w.theirs.CoreV1().Secrets(home).Create(w.Context(), &core.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "access", Namespace: home}, Data: map[string][]byte{"username": []byte(user), "password": []byte(password)},
	}, metav1.CreateOptions{}))(w)
	ctx, cancel := context.WithCancel(context.Background())
	server, err := web.New(web.Config{
		Address: "127.0.0.1:0", Namespace: home, Watches: kube.NewWatches(ctx, w.ours, w.theirs, home), Kubernetes: w.theirs,
		Log: slog.New(slog.NewTextHandler(w.Output(), nil)),
	})
	if err != nil {
		cancel()
		w.Fatal(err)
	}
	alongside.Run(ctx, w, cancel, server.Run)
	w.url = "https://" + server.Address() + "/"
	wait.For(w, "the report", func() error {
		if status, _, report := w.get("api/v1/report", password); status != http.StatusOK || strings.Contains(report, `"hidden":`) {
			return fmt.Errorf("the API answers %d %s", status, report)
		}
		return nil
	})
}

// get asks the API as a program does.
func (w *world) get(path, password string) (status int, header http.Header, body string) {
	w.Helper()
	request := check.Got(http.NewRequestWithContext(w.Context(), http.MethodGet, w.url+path, http.NoBody))(w)
	if password != "" {
		request.SetBasicAuth(user, password)
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // likewise
	response, err := c.Do(request)
	if err != nil {
		return 0, nil, err.Error()
	}
	defer response.Body.Close()
	text := check.Got(io.ReadAll(response.Body))(w)
	return response.StatusCode, response.Header, string(text)
}

// kindOf is the client of a kind.
type kindOf[T any] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	UpdateStatus(context.Context, T, metav1.UpdateOptions) (T, error)
}

// put writes an object, and then the status that it is given.
func put[T any](w *world, kind kindOf[T], o T, give func(made T)) {
	w.Helper()
	made := check.Got(kind.Create(w.Context(), o, metav1.CreateOptions{}))(w)
	give(made)
	check.Got(kind.UpdateStatus(w.Context(), made, metav1.UpdateOptions{}))(w)
}

func quantity(bytes int64) *resource.Quantity { return resource.NewQuantity(bytes, resource.BinarySI) }

func condition(kind string, is metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: is, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(time.Now().Add(-9 * time.Minute))}
}

func (w *world) cluster(phase v1beta1.ClusterPhase, nodes []v1beta1.NodeHealth, conditions ...metav1.Condition) {
	w.Helper()
	c := &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "holdfast"}, Spec: v1beta1.StorageClusterSpec{SecretRef: &v1beta1.SecretReference{Name: "access"}}}
	put(w, w.ours.HoldfastV1beta1().StorageClusters(), c, func(made *v1beta1.StorageCluster) {
		made.Status = v1beta1.StorageClusterStatus{
			Phase: phase, Nodes: nodes, DesiredNodes: int32(len(nodes)), Version: "v1.2.3", Conditions: conditions, ObservedGeneration: made.Generation,
		}
		for _, n := range nodes {
			if n.Ready {
				made.Status.ReadyNodes++
			}
		}
	})
}

// pool has its size, what is promised and what is used of it, in GiB.
func pool(name string, capacity, promised, used int64) v1beta1.Pool {
	return v1beta1.Pool{
		Name: name, ID: name, Path: "/srv/" + name, Engine: v1beta1.EngineImage, Capacity: *quantity(capacity * gib), Promised: *quantity(promised * gib),
		Used: *quantity(used * gib), Available: *quantity(max(capacity-promised, 0) * gib), Smallest: *quantity(1 << 20), Largest: *quantity(max(capacity-promised, 0) * gib),
	}
}

func (w *world) node(name string, ready metav1.ConditionStatus, message string, pools ...v1beta1.Pool) {
	w.Helper()
	w.nodeOf(name, v1beta1.StorageNodeStatus{
		Version: "v1.2.3", Pools: pools, Conditions: []metav1.Condition{condition(v1beta1.ReadyCondition, ready, "Because", message)},
	})
}

func (w *world) nodeOf(name string, status v1beta1.StorageNodeStatus) {
	w.Helper()
	n := &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	put(w, w.ours.HoldfastV1beta1().StorageNodes(), n, func(made *v1beta1.StorageNode) { made.Status = status })
}

// volume is of a claim NAMESPACE/NAME, with its size and use.
func (w *world) volume(name, claim, node, pool string, size, used int64, change ...func(*v1beta1.Volume)) {
	w.Helper()
	v := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.VolumeSpec{Name: name, ClaimRef: v1beta1.ReferenceTo(claim), Node: node, Pool: pool}}
	created := metav1.NewMicroTime(time.Now().Add(-time.Duration(1+w.dice.IntN(60*24*90)) * time.Minute))
	v.Status = v1beta1.VolumeStatus{
		Phase: v1beta1.PhaseReady, Size: quantity(size), Used: quantity(used), Pool: pool, FSType: "ext4", Mode: v1beta1.ModeFilesystem, CreationTime: &created,
	}
	for _, c := range change {
		c(v)
	}
	put(w, w.ours.HoldfastV1beta1().Volumes(), v, func(made *v1beta1.Volume) { made.Status = v.Status })
}

func (w *world) snapshot(name, of, node, pool string, size, used int64) {
	w.Helper()
	s := &v1beta1.Snapshot{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.SnapshotSpec{Name: name, SourceRef: v1beta1.FromVolume(of), Node: node},
	}
	created := metav1.NewMicroTime(time.Now().Add(-time.Duration(1+w.dice.IntN(60*24*9)) * time.Minute))
	put(w, w.ours.HoldfastV1beta1().Snapshots(), s, func(made *v1beta1.Snapshot) {
		made.Status = v1beta1.SnapshotStatus{
			Phase: v1beta1.PhaseReady, Size: quantity(size), Used: quantity(used), Pool: pool, CreationTime: &created,
		}
	})
}

func (w *world) server(namespace, name string, status v1beta1.NFSServerStatus) {
	w.Helper()
	s := &v1beta1.NFSServer{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	put(w, w.ours.HoldfastV1beta1().NFSServers(namespace), s, func(made *v1beta1.NFSServer) {
		made.Status = status
		made.Status.ObservedGeneration = made.Generation
	})
}

func (w *world) warning(namespace, kind, name, reason, message string, times int32, since time.Duration) {
	w.Helper()
	check.Got(w.theirs.CoreV1().Events(namespace).Create(w.Context(), &core.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e", Name: fmt.Sprintf("e%d", w.dice.Uint64()), Namespace: namespace}, Type: core.EventTypeWarning, Reason: reason, Message: message, Count: times,
		InvolvedObject: core.ObjectReference{APIVersion: "v1", Kind: kind, Name: name, Namespace: namespace}, Source: core.EventSource{Component: "holdfast"},
		LastTimestamp: metav1.NewTime(time.Now().Add(-since)),
	}, metav1.CreateOptions{}))(w)
}

func health(ready bool, message string, names ...string) (all []v1beta1.NodeHealth) {
	for _, name := range names {
		all = append(all, v1beta1.NodeHealth{Name: name, Ready: ready, Agent: ready, Version: "v1.2.3", Message: message})
	}
	return all
}

var claims = []string{
	"shop/orders-db", "shop/orders-db-replica", "shop/search-index", "shop/images", "monitoring/prometheus-0", "monitoring/prometheus-1", "monitoring/loki-data",
	"mail/queue", "mail/boxes", "git/repositories", "git/registry", "ci/cache-0", "ci/cache-1", "ci/cache-2", "wiki/pages", "wiki/uploads", "chat/history", "auth/keycloak-db", "backup/staging", "ml/datasets",
}

// town is a cluster of four nodes as it may be anywhere.
func (w *world) town() {
	w.Helper()
	w.place("rack1-a", pool("fast", 480, 310, 214), pool("bulk", 4000, 1800, 1210))
	w.place("rack1-b", pool("fast", 480, 402, 371), pool("bulk", 4000, 2900, 2050))
	w.place("rack2-a", pool("fast", 480, 155, 92), pool("bulk", 4000, 950, 610))
	w.place("rack2-b", pool("fast", 480, 268, 121), pool("bulk", 4000, 3400, 2520))
}

func (w *world) place(name string, pools ...v1beta1.Pool) {
	w.Helper()
	for i, claim := range claims {
		if (i+len(name)+int(name[4])+int(name[6]))%4 > 1 && i%4 != int(name[6]-'a') {
			continue
		}
		size := []int64{2, 5, 10, 20, 50, 100, 200}[w.dice.IntN(7)] * gib
		chosen := &pools[w.dice.IntN(2)]
		chosen.Volumes++
		p := chosen.Name
		id := fmt.Sprintf("pvc-%08x-%s", w.dice.Uint32(), name)
		w.volume(id, claim+"-"+name[4:5]+name[6:], name, p, size, int64(float64(size)*(0.05+0.85*w.dice.Float64())))
		if i%5 == 0 {
			w.snapshot(fmt.Sprintf("snapshot-%08x", w.dice.Uint32()), id, name, p, size, size/9)
			chosen.Snapshots++
		}
	}
	w.node(name, metav1.ConditionTrue, "", pools...)
}

func (w *world) files() {
	w.Helper()
	w.server("shop", "files", v1beta1.NFSServerStatus{
		Phase: v1beta1.NFSRunning, Endpoint: "10.96.12.7:2049", Access: v1beta1.NFSReadWrite, ClaimName: "nfs-files", Node: "rack1-a", Capacity: quantity(200 * gib), Promised: quantity(120 * gib), Exports: 6, Clients: 4,
		Conditions: []metav1.Condition{condition(v1beta1.AvailableCondition, metav1.ConditionTrue, "Running", "")},
	})
	w.server("ml", "datasets", v1beta1.NFSServerStatus{
		Phase: v1beta1.NFSRunning, Endpoint: "10.96.80.31:2049", Path: "/datasets", Access: v1beta1.NFSReadOnly, ClaimName: "datasets", Node: "rack2-b", Capacity: quantity(900 * gib), Promised: quantity(400 * gib), Exports: 1, Clients: 11,
		Conditions: []metav1.Condition{condition(v1beta1.AvailableCondition, metav1.ConditionTrue, "Running", "")},
	})
}

// healthy is that town when all is well, at work.
func (w *world) healthy() {
	w.Helper()
	w.cluster(v1beta1.ClusterRunning, health(true, "", "rack1-a", "rack1-b", "rack2-a", "rack2-b"))
	w.town()
	w.files()
	w.volume("pvc-5d1c0a7e-rack2-a", "ci/cache-3", "rack2-a", "fast", 0, 0, func(v *v1beta1.Volume) { v.Status = v1beta1.VolumeStatus{} })
	w.volume("pvc-77b0e1f2-rack1-a", "shop/reports", "rack1-a", "bulk", 50*gib, 44*gib, func(v *v1beta1.Volume) { v.Spec.Size.Required = quantity(100 * gib) })
	w.job("pull-images", v1beta1.JobRunning, 4, 3)
}

func (w *world) job(name string, phase v1beta1.JobPhase, nodes, done int32) {
	w.Helper()
	put(w, w.ours.HoldfastV1beta1().NodeJobs(), &v1beta1.NodeJob{ObjectMeta: metav1.ObjectMeta{Name: name}}, func(made *v1beta1.NodeJob) {
		made.Status = v1beta1.NodeJobStatus{Phase: phase, DesiredNodes: nodes, SucceededNodes: done}
	})
}

// lost is that town without one of its nodes.
func (w *world) lost() {
	w.Helper()
	gone := "the agent has not renewed its Lease for 9m10s: start the node, or remove it from the cluster if it is gone for good"
	w.cluster(v1beta1.ClusterDegraded, append(health(true, "", "rack1-a", "rack1-b", "rack2-a"), health(false, gone, "rack2-b")...),
		condition(v1beta1.DegradedCondition, metav1.ConditionTrue, "NodesNotReady", "node rack2-b does not work"))
	w.town()
	w.files()
	volumes, nodes := w.ours.HoldfastV1beta1().Volumes(), w.ours.HoldfastV1beta1().StorageNodes()
	list := check.Got(volumes.List(w.Context(), metav1.ListOptions{}))(w)
	damaged := false
	for i := range list.Items {
		v := &list.Items[i]
		switch {
		case v.Spec.Node == "rack2-b":
			v.Status.Phase = v1beta1.PhaseUnreachable
			v.Status.Conditions = []metav1.Condition{condition(v1beta1.ReadyCondition, metav1.ConditionFalse, v1beta1.ReasonNodeDown, "node rack2-b does not answer for 9m10s; the volume comes back with it")}
		case v.Spec.Node == "rack1-b" && !damaged:
			damaged = true
			v.Status.Conditions = []metav1.Condition{condition(v1beta1.HealthyCondition, metav1.ConditionFalse, v1beta1.ReasonFileSystem, "the kernel found 3 errors in its ext4 since 08:14; stop its pods and run fsck, see docs/troubleshooting.md")}
		default:
			continue
		}
		check.Got(volumes.UpdateStatus(w.Context(), v, metav1.UpdateOptions{}))(w)
	}
	n := check.Got(nodes.Get(w.Context(), "rack2-b", metav1.GetOptions{}))(w)
	n.Status.Conditions[0] = condition(v1beta1.ReadyCondition, metav1.ConditionUnknown, v1beta1.ReasonNodeDown, gone)
	n.Status.Pools[1].Used = *quantity(3900 * gib)
	n.Status.Pools[1].Promised, n.Status.Pools[1].Available = *quantity(4400 * gib), *quantity(0)
	check.Got(nodes.UpdateStatus(w.Context(), n, metav1.UpdateOptions{}))(w)
	w.warning("shop", "PersistentVolumeClaim", "orders-db-9", "ProvisioningFailed", "no node has 300Gi left in a pool fast: rack1-a has 170Gi, rack1-b 78Gi, rack2-a 325Gi, which the pod may not use", 14, 40*time.Second)
	w.warning(home, "StorageCluster", "holdfast", "NodesNotReady", "node rack2-b does not work", 1, 9*time.Minute)
	w.warning("mail", "Volume", "pvc-boxes", "Damaged", "the kernel found 3 errors in its ext4", 3, 22*time.Minute)
}
