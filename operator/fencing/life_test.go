package fencing_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/holdfast-storage/holdfast/agent"
	client "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/cluster"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/operator/fencing"
	"github.com/holdfast-storage/holdfast/test/rig/alongside"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/inmemory"
	"github.com/holdfast-storage/holdfast/test/rig/mortal"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
)

func TestMain(m *testing.M) { os.Exit(realapi.Main(m)) }

const (
	gib     = 1 << 30
	fsid    = "11111111-1111-1111-1111-111111111111"
	address = "10.0.0.5:0/1001"
)

// life is a node with a client in a Ceph cluster, the pool there, and two pods that use volumes of it, of which one is chosen.
type life struct {
	*inmemory.Cluster
	node, pool, site string
	kernel           *kernel
	ceph             *ceph
	agent            *agent.Agent // of the node
	stopNode         func()
}

// kernel is that of the node.
type kernel struct {
	mu  sync.Mutex
	has []v1beta1.CephClient
}

func (k *kernel) set(has ...v1beta1.CephClient) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.has = has
}

func (k *kernel) Gone(_ context.Context, c v1beta1.CephClient) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !slices.Contains(k.has, c), nil
}

func (*kernel) Release(context.Context, v1beta1.CephClient) error { return nil }

func (k *kernel) InUse(_ context.Context, volumes []string) (has []string, clients []v1beta1.CephClient, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.has) > 0 {
		has = volumes
	}
	return has, nil, nil
}

// ceph is a pool whose cluster can shut out clients; backend/ceph tests that of a real one.
type ceph struct {
	*inmemory.Host
	mu      sync.Mutex
	blocked map[string]bool
	fails   error // of what it is asked
	partly  error // of what it is asked to shut out, and has in part
}

func (c *ceph) answer(fails, partly error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fails, c.partly = fails, partly
}

func (c *ceph) Fence(_ context.Context, addresses []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range addresses {
		c.blocked[a] = true
	}
	return cmp.Or(c.partly, c.fails)
}

func (c *ceph) Unfence(_ context.Context, addresses []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range addresses {
		delete(c.blocked, a)
	}
	return nil
}

func (c *ceph) Fenced(context.Context) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fails != nil {
		return nil, c.fails
	}
	return slices.Collect(maps.Keys(c.blocked)), nil
}

func (c *ceph) isShutOut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.blocked[address]
}

func newLife(t *testing.T) *life {
	id := rand.String(5)
	w := inmemory.Real(t)
	w.Change = func(c *cluster.Config) { c.Driver = v1beta1.DriverName }
	l := &life{Cluster: w, node: "lost-" + id, pool: "block" + id, kernel: &kernel{}, ceph: &ceph{Host: inmemory.NewHost(gib), blocked: map[string]bool{}}}
	l.site = v1beta1.NodeOfCephPool(l.pool)
	c := &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "fencing-" + id}, Spec: v1beta1.StorageClusterSpec{Pools: []v1beta1.PoolSpec{{
		Name: l.pool, Engine: v1beta1.EngineRBD, Ceph: &v1beta1.CephSpec{
			FSID: fsid, Monitors: []string{"v2:10.0.0.1:3300"}, Pool: "rbd",
			SecretRef: v1beta1.CephSecretReference{Name: "ceph"}, NodeSecretRef: v1beta1.CephSecretReference{Name: "ceph-node"},
		},
	}}}}
	clusters := w.Ours.HoldfastV1beta1().StorageClusters()
	check.Got(clusters.Create(t.Context(), c, metav1.CreateOptions{}))(t)
	t.Cleanup(func() { _ = clusters.Delete(context.Background(), c.Name, metav1.DeleteOptions{}) })
	w.KubernetesNode(l.node)
	w.Cleanup(func() { _ = w.Theirs.CoreV1().Nodes().Delete(context.Background(), l.node, metav1.DeleteOptions{}) })
	w.Start()
	l.run(agent.Config{Node: l.site, Backend: l.ceph})
	l.startNode()
	for _, name := range []string{"chosen", "other"} {
		l.use(name + "-" + id)
	}
	return l
}

// run starts an agent.
func (l *life) run(c agent.Config) (*agent.Agent, func()) {
	l.Helper()
	c.Version, c.Client, c.Kubernetes, c.Log, c.Pools = "1.2.3", l.Ours, l.Theirs, l.Logger, l.Pools
	c.SurveyEvery, c.PublishEvery, c.RetryFirst = 50*time.Millisecond, time.Millisecond, time.Millisecond
	a := check.Got(agent.New(c))(l)
	ctx, cancel := context.WithCancel(context.Background())
	l.Agents[c.Node] = func() {} // to be removed in the end
	return a, alongside.Run(ctx, l, cancel, a.Run)
}

func (l *life) startNode() {
	l.Helper()
	l.agent, l.stopNode = l.run(agent.Config{Node: l.node, Backend: inmemory.NewHost(gib), CephHost: l.kernel})
	l.Until("the first report of the node", func() bool { return l.storageNode(l.node) != nil && len(l.storageNode(l.node).Status.Conditions) > 0 })
}

// use makes a volume, its claim, a pod on the node that uses it, and its VolumeAttachment. The pod is chosen by its name.
func (l *life) use(name string) {
	l.Helper()
	ctx, theirs := l.Context(), l.Theirs
	l.Cleanup(func() { l.remove(name) })
	size := core.ResourceList{core.ResourceStorage: resource.MustParse("1Mi")}
	modes := []core.PersistentVolumeAccessMode{core.ReadWriteOnce}
	check.Got(l.Volumes().Create(ctx, &v1beta1.Volume{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.VolumeSpec{Name: name, Node: l.site, Size: v1beta1.VolumeSize{Required: resource.NewQuantity(1<<20, resource.BinarySI)}},
	}, metav1.CreateOptions{}))(l)
	claim := func(name, persistentVolume string) types.UID {
		c := &core.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: core.PersistentVolumeClaimSpec{
			AccessModes: modes, VolumeName: persistentVolume, StorageClassName: new(""),
			Resources: core.VolumeResourceRequirements{Requests: size},
		}}
		return check.Got(theirs.CoreV1().PersistentVolumeClaims("default").Create(ctx, c, metav1.CreateOptions{}))(l).UID
	}
	mount := func(claim string) core.Volume {
		source := &core.PersistentVolumeClaimVolumeSource{ClaimName: claim}
		return core.Volume{Name: claim, VolumeSource: core.VolumeSource{PersistentVolumeClaim: source}}
	}
	check.Got(theirs.CoreV1().PersistentVolumes().Create(ctx, &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: core.PersistentVolumeSpec{
		Capacity: size, AccessModes: modes, PersistentVolumeReclaimPolicy: core.PersistentVolumeReclaimRetain,
		ClaimRef:               &core.ObjectReference{Namespace: "default", Name: name, UID: claim(name, name)},
		PersistentVolumeSource: core.PersistentVolumeSource{CSI: &core.CSIPersistentVolumeSource{Driver: v1beta1.DriverName, VolumeHandle: name}},
	}}, metav1.CreateOptions{}))(l)
	p := &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: core.PodSpec{
		NodeName: l.node, Containers: []core.Container{{Name: "a", Image: "busybox:1"}}, AutomountServiceAccountToken: new(false),
		Tolerations: []core.Toleration{{Operator: core.TolerationOpExists}}, // Kubernetes deletes it for no taint
		Volumes:     []core.Volume{mount(name)},
	}}
	if strings.HasPrefix(name, "chosen") {
		p.Labels = map[string]string{v1beta1.FencedLabel: "true"}
	} else { // a claim whose author has written the PersistentVolume of another into it
		claim("thief-"+name, "chosen"+strings.TrimPrefix(l.node, "lost"))
		p.Spec.Volumes = append(p.Spec.Volumes, mount("thief-"+name))
	}
	check.Got(theirs.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{}))(l)
	check.Got(theirs.StorageV1().VolumeAttachments().Create(ctx, &storage.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storage.VolumeAttachmentSpec{
		Attacher: v1beta1.DriverName, NodeName: l.node, Source: storage.VolumeAttachmentSource{PersistentVolumeName: &name},
	}}, metav1.CreateOptions{}))(l)
}

func (l *life) remove(name string) {
	ctx, now := context.Background(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	free := []byte(`{"metadata":{"finalizers":null}}`)
	_ = l.Theirs.StorageV1().VolumeAttachments().Delete(ctx, name, now)
	_ = l.Theirs.CoreV1().Pods("default").Delete(ctx, name, now)
	for _, claim := range []string{name, "thief-" + name} {
		_ = l.Theirs.CoreV1().PersistentVolumeClaims("default").Delete(ctx, claim, now)
		_, _ = l.Theirs.CoreV1().PersistentVolumeClaims("default").Patch(ctx, claim, types.MergePatchType, free, metav1.PatchOptions{})
	}
	_ = l.Theirs.CoreV1().PersistentVolumes().Delete(ctx, name, now)
	_, _ = l.Theirs.CoreV1().PersistentVolumes().Patch(ctx, name, types.MergePatchType, free, metav1.PatchOptions{})
}

func (l *life) storageNode(name string) *v1beta1.StorageNode {
	n, err := l.Nodes().Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return n
}

func (l *life) fenced() metav1.Condition {
	n := l.storageNode(l.node)
	if c := meta.FindStatusCondition(n.Status.Conditions, v1beta1.FencedCondition); c != nil {
		return *c
	}
	return metav1.Condition{}
}

func (l *life) awaitReason(reason string) {
	l.Helper()
	l.Until("the reason "+reason+" of the condition Fenced", func() bool { return l.fenced().Reason == reason })
}

// has says which pods and VolumeAttachments there are, by the beginning of their names.
func (l *life) has() string {
	var names []string
	pods, err := l.Theirs.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + l.node})
	attachments, other := l.Theirs.StorageV1().VolumeAttachments().List(context.Background(), metav1.ListOptions{})
	if err = errors.Join(err, other); err != nil {
		return err.Error()
	}
	for _, p := range pods.Items {
		name, _, _ := strings.Cut(p.Name, "-")
		names = append(names, "pod "+name)
	}
	for _, a := range attachments.Items {
		if name, _, _ := strings.Cut(a.Name, "-"); a.Spec.NodeName == l.node {
			names = append(names, "attachment "+name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// pause holds a controller before its first write to an object, until it is to go on, and says when the write after that one was
// answered.
type pause struct {
	object         string
	held, on, gone chan struct{}
	goOn           func()
	writes         int
}

func newPause(object string) *pause {
	p := &pause{object: object, held: make(chan struct{}), on: make(chan struct{}), gone: make(chan struct{})}
	p.goOn = sync.OnceFunc(func() { close(p.on) })
	return p
}

// before holds a write, and returns what to do after it.
func (p *pause) before(q *http.Request) (after func()) {
	switch {
	case p == nil || p.writes == 0 && !strings.HasSuffix(q.URL.Path, "/"+p.object):
		return func() {}
	case p.writes == 0:
		close(p.held)
		<-p.on
	}
	p.writes++
	return func() {
		const next = 2
		if p.writes == next {
			close(p.gone)
		}
	}
}

// judge looks at each write of a controller.
type judge struct {
	life  *life
	next  http.RoundTripper
	pause *pause
}

func (j *judge) RoundTrip(q *http.Request) (*http.Response, error) {
	if mortal.Changes(q) {
		defer j.pause.before(q)()
		if q.Method == http.MethodDelete && !j.life.ceph.isShutOut() {
			j.life.Errorf("%s is deleted before the node is shut out", q.URL.Path)
		}
	}
	return j.next.RoundTrip(q)
}

// lead runs a controller until it was killed after so many writes, or the test ends. A pause may be nil.
func (l *life) lead(writes int, p *pause) (dead <-chan struct{}, stop func()) {
	l.Helper()
	m := mortal.AfterWrites(writes)
	config := rest.CopyConfig(l.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &judge{l, next, p} })
	config = m.Client(config)
	ours, theirs := client.NewForConfigOrDie(config), kubernetes.NewForConfigOrDie(config)
	ctx, cancel := context.WithCancel(context.Background())
	c := check.Got(fencing.New(fencing.Config{
		Client: ours, Kubernetes: theirs, Watches: kube.NewWatches(ctx, ours, theirs, v1beta1.DefaultNamespace), Liveness: l.Backend,
		Driver: v1beta1.DriverName, Events: l.Events, Log: l.Logger,
	}))(l)
	return m.Died(), alongside.Run(ctx, l, cancel, c.Run)
}

// killedAtEveryWrite leads again and again, for one write each, until something is so.
func (l *life) killedAtEveryWrite(what string, done func() bool) {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), 3*time.Minute)
	defer cancel()
	terms := mortal.KilledAtEveryWrite(ctx, func(writes int) (<-chan struct{}, func()) { return l.lead(writes, nil) }, done)
	if !done() {
		l.Fatalf("%s did not come after %d controllers: there are %s", what, terms, l.has())
	}
	l.Logf("%s: after %d controllers", what, terms)
}

// mounts gives the kernel of the node a client, which its agent records.
func (l *life) mounts(address v1beta1.CephAddress) {
	l.Helper()
	c := v1beta1.CephClient{FSID: fsid, ID: "client.4711", Address: address, BootID: "boot-1"}
	l.kernel.set(c)
	check.OK(l, l.agent.RecordCephClient(l.Context(), "v", c))
}

const outOfService = `[{"key":"node.kubernetes.io/out-of-service","effect":"NoSchedule"}]`

func (l *life) taint(taints string) {
	l.Helper()
	patch := fmt.Sprintf(`{"spec":{"taints":%s}}`, taints)
	check.Got(l.Theirs.CoreV1().Nodes().Patch(l.Context(), l.node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))(l)
}

func TestLife_NodeIsShutOutAndLetInAgainByControllersThatAreKilled(t *testing.T) {
	l := newLife(t)
	l.mounts(address)
	l.stopNode()
	l.taint(outOfService)
	l.killedAtEveryWrite("the end of the attachment", func() bool { return l.has() == "attachment other, pod chosen, pod other" })
	_, stop := l.lead(1000, nil)
	l.Until("the end of what was chosen", func() bool { return l.has() == "attachment other, pod other" })
	if is := l.fenced(); is.Status != metav1.ConditionTrue || is.Reason != v1beta1.ReasonFenced || !l.ceph.isShutOut() {
		t.Errorf("the condition is %+v", is)
	}
	for _, reason := range []string{v1beta1.ReasonFencing, v1beta1.ReasonFenced, "Detached"} {
		l.ExpectEvent(reason)
	}
	l.ExpectEvent(v1beta1.ReasonFenced, "the pod is deleted")
	stop()
	if err := l.Backend.CheckDetached(t.Context(), backend.ID(l.pod("other")), l.node); err != nil {
		t.Errorf("the other volume cannot be detached: %v", err)
	}

	l.ceph.answer(errors.New("no quorum"), nil)
	l.killedAtEveryWrite("the pool not being sure any more", func() bool { return l.fenced().Reason == v1beta1.ReasonFencing })
	l.startNode()
	_, stop = l.lead(1000, nil)
	l.taint(`[]`)
	l.ready()
	l.awaitReason(v1beta1.ReasonReleasing)
	if is := l.fenced(); is.Status != metav1.ConditionFalse || !strings.Contains(is.Message, "default/"+l.pod("other")) || !l.ceph.isShutOut() {
		t.Errorf("with a client from before, and while the pool is not sure, the condition is %+v", is)
	}
	if err := l.agent.RecordCephClient(t.Context(), "v", v1beta1.CephClient{FSID: fsid, ID: "client.4712"}); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("a new client of a node that is shut out: %v", err)
	}
	stop()
	l.ceph.answer(nil, nil)
	l.kernel.set()
	l.killedAtEveryWrite("the end of the fence", func() bool { return l.storageNode(l.node).Spec.Fence == nil })
	l.Until("the client being let in", func() bool { return !l.ceph.isShutOut() })
	if is := l.fenced(); is.Status != metav1.ConditionFalse {
		t.Errorf("in the end the condition is %+v", is)
	}
	if site := l.storageNode(l.site); len(site.Spec.Blocklist) > 0 {
		t.Errorf("the pool still keeps out %v", site.Spec.Blocklist)
	}
	if err := l.agent.RecordCephClient(t.Context(), "v", v1beta1.CephClient{FSID: fsid, ID: "client.4712"}); err != nil {
		t.Errorf("a new client of a node that is back: %v", err)
	}
}

// A leader that was suspended for longer than its Lease goes on with what it has decided.
func TestLife_ControllerThatWasPausedEndsNoLaterFence(t *testing.T) {
	l := newLife(t)
	lost := func() {
		t.Helper()
		l.mounts(address)
		l.stopNode()
		l.taint(outOfService)
		l.awaitReason(v1beta1.ReasonFenced)
	}
	_, stop := l.lead(1000, nil)
	lost()
	first := l.storageNode(l.node).Spec.Fence.RequestedAt
	stop()
	old := newPause(l.site)
	l.lead(1000, old)
	t.Cleanup(old.goOn)
	l.kernel.set()
	l.startNode()
	l.taint(`[]`)
	l.ready()
	l.Until("the decision that the node is let in", func() bool { return isClosed(old.held) })
	_, stop = l.lead(1000, nil)
	l.Until("the end of the fence", func() bool { return l.storageNode(l.node).Spec.Fence == nil && !l.ceph.isShutOut() })
	lost()
	stop()
	second := l.storageNode(l.node).Spec.Fence
	old.goOn()
	l.Until("what the controller writes then", func() bool { return isClosed(old.gone) })
	site, node := l.storageNode(l.site), l.storageNode(l.node)
	if e := site.Spec.BlocklistOf(l.node); e == nil || !e.RequestedAt.After(first.Time) || !equality.Semantic.DeepEqual(node.Spec.Fence, second) || !l.ceph.isShutOut() {
		t.Errorf("the pool keeps out %+v, the fence is %+v", site.Spec.Blocklist, node.Spec.Fence)
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (l *life) pod(name string) string { return name + strings.TrimPrefix(l.node, "lost") }

// ready does what the kubelet would do.
func (l *life) ready() {
	l.Helper()
	l.Until("the node being ready", func() bool {
		n, err := l.Theirs.CoreV1().Nodes().Get(l.Context(), l.node, metav1.GetOptions{})
		if err == nil {
			now := metav1.Now()
			n.Status.Conditions = []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now, Reason: "KubeletReady"}}
			_, err = l.Theirs.CoreV1().Nodes().UpdateStatus(l.Context(), n, metav1.UpdateOptions{})
		}
		return !apierrors.IsConflict(err) && err == nil
	})
}

func TestLife_NodeThatIsBackBeforeItWasShutOutKeepsAll(t *testing.T) {
	for name, test := range map[string]struct {
		address v1beta1.CephAddress
		partly  error // of the pool
		reason  string
	}{
		"its client has no address":           {"", nil, v1beta1.ReasonNotFenced},
		"not all of a cluster have confirmed": {address, errors.New("osd.1 does not answer"), v1beta1.ReasonFencing},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLife(t)
			l.ceph.answer(nil, test.partly)
			l.mounts(test.address)
			l.lead(1000, nil)
			l.taint(outOfService)
			l.awaitReason(test.reason)
			l.Until("the pool having done its part", func() bool { return test.partly == nil || l.ceph.isShutOut() })
			l.taint(`[]`)
			l.ready()
			l.awaitReason(v1beta1.ReasonWithdrawn)
			l.Until("the end of the fence", func() bool { return l.storageNode(l.node).Spec.Fence == nil })
			l.Until("the client being let in", func() bool { return !l.ceph.isShutOut() })
			if has := l.has(); has != "attachment chosen, attachment other, pod chosen, pod other" {
				t.Errorf("it has %s", has)
			}
		})
	}
}
