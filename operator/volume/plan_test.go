package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/cluster"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

type change = func(*v1beta1.Volume)

// volumeOf is one for the claim shop/c, changed.
func volumeOf(changes ...change) *v1beta1.Volume {
	v := &v1beta1.Volume{
		ObjectMeta: metav1.ObjectMeta{Name: "v", UID: "v", Finalizers: []string{v1beta1.AgentFinalizer}},
		Spec: v1beta1.VolumeSpec{Node: "a", ClaimRef: v1beta1.ReferenceTo("shop/c"), Labels: map[string]string{
			v1beta1.ClaimNameLabel: "c", v1beta1.ClaimNamespaceLabel: "shop", v1beta1.PersistentVolumeLabel: "pv",
		}},
	}
	for _, change := range changes {
		change(v)
	}
	return v
}

func made(v *v1beta1.Volume) {
	v.Status.CreationTime, v.Status.Phase = new(metav1.NowMicro()), v1beta1.PhaseReady
}
func deleted(v *v1beta1.Volume) { v.DeletionTimestamp = new(metav1.Now()) }
func requested(v *v1beta1.Volume) {
	v.Spec.Deletion = v1beta1.NewDeletionRequest(v.UID, "a test", "")
}
func adopted(v *v1beta1.Volume)      { v.Labels = map[string]string{v1beta1.AdoptedLabel: "true"} }
func goesWithNode(v *v1beta1.Volume) { v.Spec.OnNodeLoss = v1beta1.DeleteOnNodeLoss }
func released(v *v1beta1.Volume)     { v.Finalizers = nil }
func unreadable(v *v1beta1.Volume) {
	if err := json.Unmarshal([]byte(`{"spec":{"shared":"x"}}`), v); err != nil || v.Unreadable() == nil {
		panic(fmt.Sprintf("it can be read: %v", err))
	}
}

func keeps(claim *core.PersistentVolumeClaim) change {
	return func(v *v1beta1.Volume) {
		data, err := json.Marshal(again(claim))
		if err != nil {
			panic(err)
		}
		v.Annotations = map[string]string{renewalAnnotation: string(data)}
	}
}

func claimOf(uid types.UID, volume string) *core.PersistentVolumeClaim {
	return &core.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c", UID: uid}, Spec: core.PersistentVolumeClaimSpec{VolumeName: volume}}
}

func TestPlan_OfWhatIsOnASilentNode(t *testing.T) {
	down, gone := outage{v1beta1.ReasonNodeDown, "silent"}, outage{v1beta1.ReasonNodeGone, "deleted"}
	marked := func(p outage) change {
		return func(v *v1beta1.Volume) { p.mark(&v.Status.Conditions, 1) }
	}
	phase := func(p v1beta1.Phase) change { return func(v *v1beta1.Volume) { v.Status.Phase = p } }
	other := &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: "node-b"}}
	for name, test := range map[string]struct {
		changes          []change
		outage           outage
		movedTo          *v1beta1.StorageNode
		volume, snapshot action
	}{
		"down":                             {[]change{made}, down, nil, mark, mark},
		"down, marked":                     {[]change{made, marked(down)}, down, nil, leave, leave},
		"down, and then gone":              {[]change{made, marked(down)}, gone, nil, mark, mark},
		"gone, marked, still said ready":   {[]change{made, marked(gone)}, gone, nil, mark, mark},
		"gone, marked and unreachable":     {[]change{made, marked(gone), phase(v1beta1.PhaseUnreachable)}, gone, nil, leave, leave},
		"gone, marked and lost before":     {[]change{made, marked(gone), phase(v1beta1.PhaseLost)}, gone, nil, leave, leave},
		"gone, goes with its node":         {[]change{made, goesWithNode}, gone, nil, giveUp, mark},
		"down, goes with its node":         {[]change{made, goesWithNode}, down, nil, mark, mark},
		"gone, never made":                 {[]change{goesWithNode}, gone, nil, mark, mark},
		"gone, deleted on request":         {[]change{made, deleted, requested}, gone, nil, giveUp, giveUp},
		"gone, given up before":            {[]change{made, deleted, requested, released}, gone, nil, leave, giveUp},
		"gone, deleted without a request":  {[]change{made, deleted}, gone, nil, mark, mark},
		"gone, deleted before it was made": {[]change{deleted}, gone, nil, giveUp, giveUp},
		"down, deleted on request":         {[]change{made, deleted, requested}, down, nil, mark, mark},
		"cannot be decoded":                {[]change{unreadable}, gone, nil, report, report},
		"on another node now":              {[]change{made, goesWithNode}, gone, other, handOver, handOver},
	} {
		v := volumeOf(test.changes...)
		if got := test.outage.volumeAction(v, test.movedTo); got != test.volume {
			t.Errorf("%s: the volume gets action %d, want %d", name, got, test.volume)
		}
		s := &v1beta1.Snapshot{ObjectMeta: v.ObjectMeta, Decoding: v.Decoding, Spec: v1beta1.SnapshotSpec{Deletion: v.Spec.Deletion}}
		s.Status.CreationTime, s.Status.Phase, s.Status.Conditions = v.Status.CreationTime, v.Status.Phase, v.Status.Conditions
		if got := test.outage.snapshotAction(s, test.movedTo); got != test.snapshot {
			t.Errorf("%s: the snapshot gets action %d, want %d", name, got, test.snapshot)
		}
	}
}

// summary is what a plan does, in its order, for comparison.
func (p nodePlan) summary() (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	events := func(events []event) {
		for _, e := range events {
			about := fmt.Sprintf("%T", e.about)
			add("event %s %s", about[strings.LastIndex(about, ".")+1:], e.reason)
		}
	}
	for _, r := range p.renewals {
		add("renewal: delete %t, create %t, finish %t", r.delete != nil, r.create != nil, r.finish)
	}
	if p.node != nil {
		add("mark node %s", p.outage.reason)
	}
	for _, s := range p.volumes {
		events(s.events)
		add("volume: %s, keep claim %t", []string{"leave", "report", "hand over", "give up", "mark " + string(s.object.Status.Phase)}[s.action], s.claim != nil)
	}
	for _, s := range p.snapshots {
		events(s.events)
		add("snapshot: %d", s.action)
	}
	if p.forget != nil {
		add("forget")
	}
	if p.again > 0 {
		add("again after %s", p.again)
	}
	if p.err != nil {
		add("error")
	}
	return all
}

func TestPlan_OfANode(t *testing.T) {
	old, next := claimOf("1", "pv"), claimOf("2", "")
	ending := old.DeepCopy()
	ending.DeletionTimestamp = new(metav1.Now())
	ofPod := old.DeepCopy()
	ofPod.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Controller: new(true)}}
	agent := &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	node := &core.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	shutDown := &core.Node{Spec: core.NodeSpec{Taints: []core.Taint{{Key: core.TaintNodeOutOfService}}}}
	given := volumeOf(made, deleted, requested, released, keeps(old))
	inPool := func(v *v1beta1.Volume) { v.Status.PoolID = "disk" }
	const down = "silent"
	busy := agent.DeepCopy()
	busy.Spec.Discard = []v1beta1.Discard{{}}
	writes := agent.DeepCopy() // or may, to a volume in a Ceph cluster
	writes.Status.CephClients = []v1beta1.CephClient{{FSID: "f", ID: "client.1"}}
	fenced := writes.DeepCopy()
	fenced.Status.Conditions = []metav1.Condition{{Type: v1beta1.FencedCondition, Status: metav1.ConditionTrue}}
	claim := func(c *core.PersistentVolumeClaim) map[types.UID]*core.PersistentVolumeClaim {
		return map[types.UID]*core.PersistentVolumeClaim{"v": c}
	}
	one := func(changes ...change) []*v1beta1.Volume { return []*v1beta1.Volume{volumeOf(changes...)} }
	for name, test := range map[string]struct {
		o    nodeObserved
		want []string
	}{
		"alive":        {nodeObserved{storageNode: agent, node: node, volumes: one(made)}, nil},
		"in doubt":     {nodeObserved{storageNode: agent, volumes: one(made, goesWithNode), down: down, doubt: time.Minute}, []string{"again after 1m0s"}},
		"down":         {nodeObserved{storageNode: agent, node: node, volumes: one(made), down: down}, []string{"mark node NodeDown", "volume: mark Ready, keep claim false"}},
		"down, empty":  {nodeObserved{storageNode: agent, node: node, down: down}, []string{"mark node NodeDown"}},
		"a server":     {nodeObserved{name: "shop.files.nfs.holdfast.dev", storageNode: agent, down: down}, []string{"mark node NodeDown"}},
		"gone, empty":  {nodeObserved{storageNode: agent, down: down}, []string{"mark node NodeGone", "forget"}},
		"gone, busy":   {nodeObserved{storageNode: busy, down: down}, []string{"mark node NodeGone"}},
		"gone, writes": {nodeObserved{storageNode: writes, down: down}, []string{"mark node NodeGone"}},
		"gone, fenced": {nodeObserved{storageNode: fenced, down: down}, []string{"mark node NodeGone", "forget"}},
		"no record":    {nodeObserved{down: down}, nil},
		"shut down":    {nodeObserved{node: shutDown, volumes: one(made), down: down}, []string{"event Volume NodeGone", "volume: mark Unreachable, keep claim false"}},
		"unmade, gone": {nodeObserved{volumes: one(), down: down}, []string{"volume: mark , keep claim false"}},

		"given up": {
			nodeObserved{volumes: one(made, goesWithNode), claims: claim(old), down: down},
			[]string{"event Volume VolumeGivenUp", "event ObjectReference VolumeGivenUp", "volume: give up, keep claim true"},
		},
		"given up, without a claim": {
			nodeObserved{volumes: one(made, goesWithNode), down: down}, []string{"event Volume VolumeGivenUp", "volume: give up, keep claim false"},
		},
		"given up, reported": {
			nodeObserved{volumes: one(made, goesWithNode), claims: claim(old), down: down, reported: map[types.UID]bool{"v": true}},
			[]string{"volume: give up, keep claim true"},
		},
		"given up, claim of a pod": {
			nodeObserved{volumes: one(made, goesWithNode), claims: claim(ofPod), down: down, reported: map[types.UID]bool{"v": true}},
			[]string{"volume: give up, keep claim false"},
		},
		"given up, claim of another volume": {
			nodeObserved{volumes: one(made, goesWithNode), claims: claim(next), down: down, reported: map[types.UID]bool{"v": true}},
			[]string{"volume: give up, keep claim false"},
		},
		"moved": {
			nodeObserved{volumes: one(made, inPool), moved: map[string]*v1beta1.StorageNode{"disk": agent}, down: down},
			[]string{"event Volume PoolMoved", "event ObjectReference PoolMoved", "event StorageNode PoolMoved", "volume: hand over, keep claim false"},
		},
		"moved, and its object was written by an agent": {
			nodeObserved{volumes: one(made, inPool, adopted), moved: map[string]*v1beta1.StorageNode{"disk": agent}, down: down},
			[]string{"event Volume PoolMoved", "event StorageNode PoolMoved", "volume: hand over, keep claim false"},
		},
		"moved, reported": {
			nodeObserved{volumes: one(made, inPool), moved: map[string]*v1beta1.StorageNode{"disk": agent}, down: down, reported: map[types.UID]bool{"v": true}},
			[]string{"volume: hand over, keep claim false"},
		},

		"renewal, not begun":    {nodeObserved{volumes: []*v1beta1.Volume{given}, claims: claim(old), down: down}, []string{"renewal: delete true, create false, finish false", "again after 20s"}},
		"renewal, in use":       {nodeObserved{volumes: []*v1beta1.Volume{given}, claims: claim(ending), down: down}, []string{"renewal: delete false, create false, finish false", "again after 20s"}},
		"renewal, ended":        {nodeObserved{volumes: []*v1beta1.Volume{given}, down: down}, []string{"renewal: delete false, create true, finish true"}},
		"renewal, by another":   {nodeObserved{volumes: []*v1beta1.Volume{given}, claims: claim(next), down: down}, []string{"renewal: delete false, create false, finish true"}},
		"renewal, node is back": {nodeObserved{volumes: []*v1beta1.Volume{given}}, []string{"renewal: delete false, create true, finish true"}},
		"renewal, not given up": {nodeObserved{volumes: one(made, keeps(old))}, []string{"renewal: delete false, create false, finish true"}},
		"renewal, not yet given up": {
			nodeObserved{volumes: one(made, goesWithNode, keeps(old)), down: down, reported: map[types.UID]bool{"v": true}},
			[]string{"volume: give up, keep claim false"},
		},
		"renewal, of what was edited": {
			nodeObserved{volumes: one(made, deleted, requested, released, func(v *v1beta1.Volume) { v.Annotations = map[string]string{renewalAnnotation: "?"} })},
			[]string{"again after 20s", "error"},
		},
	} {
		if test.o.name == "" {
			test.o.name = "a"
		}
		if got := planNode(test.o).summary(); !slices.Equal(got, test.want) {
			t.Errorf("%s: the plan is\n\t%s, want\n\t%s", name, strings.Join(got, "\n\t"), strings.Join(test.want, "\n\t"))
		}
	}
}

func TestPlan_OutageKeepsThatAVolumeIsIncomplete(t *testing.T) {
	v := volumeOf(made, func(v *v1beta1.Volume) {
		v.Status.Conditions = []metav1.Condition{
			{Type: v1beta1.ReadyCondition, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonIncomplete},
			{Type: v1beta1.CompleteCondition, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonIncomplete},
		}
	})
	p := planNode(nodeObserved{name: "a", volumes: []*v1beta1.Volume{v}, down: "silent"})
	if o := p.volumes[0].object; o.Status.Phase != v1beta1.PhaseUnreachable || !o.IsIncomplete() {
		t.Errorf("it becomes %+v", o.Status)
	}
}

func TestPlan_OfPoolsThatMoved(t *testing.T) {
	n := func(name string, pools ...v1beta1.Pool) *v1beta1.StorageNode {
		return &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1beta1.StorageNodeStatus{Pools: pools}}
	}
	was := n("a", v1beta1.Pool{ID: "disk", Generation: 3})
	for name, test := range map[string]struct {
		others []*v1beta1.StorageNode
		want   string // the node that has it
	}{
		"nowhere":                    {nil, ""},
		"opened since":               {[]*v1beta1.StorageNode{n("b", v1beta1.Pool{ID: "disk", Generation: 4})}, "b"},
		"opened before":              {[]*v1beta1.StorageNode{n("b", v1beta1.Pool{ID: "disk", Generation: 3})}, ""},
		"not open":                   {[]*v1beta1.StorageNode{n("b", v1beta1.Pool{ID: "disk", Generation: 4, Message: "damaged"})}, ""},
		"on two":                     {[]*v1beta1.StorageNode{n("b", v1beta1.Pool{ID: "disk", Generation: 4}), n("c", v1beta1.Pool{ID: "disk", Generation: 5})}, ""},
		"on a node that is silent":   {[]*v1beta1.StorageNode{n("silent", v1beta1.Pool{ID: "disk", Generation: 4})}, ""},
		"on a server, which has one": {[]*v1beta1.StorageNode{n("shop.files.nfs.holdfast.dev", v1beta1.Pool{ID: "disk", Generation: 4})}, ""},
	} {
		got := movedPools("a", append(test.others, was), func(node string) bool { return node != "silent" })["disk"]
		if test.want == "" && got != nil || test.want != "" && (got == nil || got.Name != test.want) {
			t.Errorf("%s: the pool is on %+v, want %q", name, got, test.want)
		}
	}
}

func TestPlan_OfUnusedVolumes(t *testing.T) {
	now, born := time.Now(), time.Now().Add(-time.Hour)
	v := func(changes ...change) *v1beta1.Volume {
		return volumeOf(append([]change{func(v *v1beta1.Volume) { v.CreationTimestamp = metav1.NewTime(born) }}, changes...)...)
	}
	for name, test := range map[string]struct {
		candidate    candidate
		age          time.Duration
		bind, remove bool
	}{
		"never bound, claim gone":         {candidate{Volume: v()}, time.Minute, false, true},
		"never bound, claim of another":   {candidate{Volume: v(), claim: claimOf("1", "other")}, time.Minute, false, true},
		"never bound, claim pending":      {candidate{Volume: v(), claim: claimOf("1", "")}, time.Minute, false, false},
		"claim bound to it":               {candidate{Volume: v(), claim: claimOf("1", "pv")}, time.Minute, false, false},
		"never bound, claim gone, young":  {candidate{Volume: v()}, 2 * time.Hour, false, false},
		"has a PersistentVolume":          {candidate{Volume: v(), persistent: true}, time.Minute, true, false},
		"has a PersistentVolume, and old": {candidate{Volume: v(), persistent: true, claim: claimOf("1", "other")}, time.Minute, true, false},
	} {
		p := planGarbage([]candidate{test.candidate}, now, test.age)
		if len(p.bind) == 1 != test.bind || len(p.remove) == 1 != test.remove {
			t.Errorf("%s: binds %d and removes %d", name, len(p.bind), len(p.remove))
		}
	}
	for name, changed := range map[string]change{
		"adopted":            adopted,
		"bound before":       func(v *v1beta1.Volume) { v.Annotations = map[string]string{boundAnnotation: "true"} },
		"without a claim":    func(v *v1beta1.Volume) { v.Spec.Labels = nil },
		"being deleted":      deleted,
		"unreadable":         unreadable,
		"just created":       func(v *v1beta1.Volume) { v.CreationTimestamp = metav1.NewTime(now) },
		"(no change at all)": func(*v1beta1.Volume) {},
	} {
		if got, want := isCandidate(v(changed), now, time.Minute), strings.HasPrefix(name, "("); got != want {
			t.Errorf("%s: a candidate: %t", name, got)
		}
	}
}

func TestPlan_OfFaults(t *testing.T) {
	now := time.Now()
	faulty := func(reason string, age time.Duration) change {
		return func(v *v1beta1.Volume) {
			v.Status.Conditions = []metav1.Condition{{
				Type: v1beta1.HealthyCondition, Status: metav1.ConditionFalse, Reason: reason, Message: "1 error", LastTransitionTime: metav1.NewTime(now.Add(-age)),
			}}
		}
	}
	device := faulty(v1beta1.ReasonDevice, time.Hour)
	for name, test := range map[string]struct {
		volume *v1beta1.Volume
		last   fault
		want   bool
	}{
		"healthy":                            {volumeOf(), fault{}, false},
		"begun before this process":          {volumeOf(device), fault{}, false},
		"begun just before this process":     {volumeOf(faulty(v1beta1.ReasonDevice, time.Minute)), fault{}, true},
		"of a volume of the same name":       {volumeOf(device), fault{"before", ""}, false},
		"new, by a clock that is behind":     {volumeOf(device), fault{"v", ""}, true},
		"of another reason":                  {volumeOf(device), fault{"v", v1beta1.ReasonFileSystem}, true},
		"reported":                           {volumeOf(device), fault{"v", v1beta1.ReasonDevice}, false},
		"of another node, not of the volume": {volumeOf(faulty(v1beta1.ReasonNodeDown, 0)), fault{"v", ""}, false},
		"without a claim":                    {volumeOf(device, func(v *v1beta1.Volume) { v.Spec.ClaimRef = nil }), fault{"v", ""}, false},
	} {
		if got := isNews(test.volume, test.last, now); got != test.want {
			t.Errorf("%s: it is news: %t", name, got)
		}
	}
	pod := func(name string, phase core.PodPhase, source core.VolumeSource) core.Pod {
		return core.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Status: core.PodStatus{Phase: phase},
			Spec: core.PodSpec{Volumes: []core.Volume{{Name: "v", VolumeSource: source}}},
		}
	}
	uses := core.VolumeSource{PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: "p-v"}}
	events := planHealth(volumeOf(device), &core.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "p-v"}}, []core.Pod{
		pod("uses", core.PodRunning, uses), pod("ended", core.PodFailed, uses), pod("other", core.PodRunning, core.VolumeSource{}),
		pod("p", core.PodPending, core.VolumeSource{Ephemeral: &core.EphemeralVolumeSource{}}),
	})
	var about []string
	for _, e := range events {
		about = append(about, e.about.(metav1.Object).GetName())
	}
	if !slices.Equal(about, []string{"p-v", "uses", "p"}) || events[0].message != "volume v: 1 error" || events[1].message != "claim p-v, volume v: 1 error" {
		t.Errorf("the events are %+v", events)
	}
}

func TestPlan_OfWaitingClaims(t *testing.T) {
	const gib = 1 << 30
	now := time.Now()
	only := []core.TopologySelectorTerm{{MatchLabelExpressions: []core.TopologySelectorLabelRequirement{{Key: v1beta1.TopologyKey, Values: []string{"a"}}}}}
	rooms := []room{{"a", gib, nil}, {"b", 5 * gib, nil}, {"c", 0, fmt.Errorf("%w: pool", backend.ErrNotFound)}, {"d", 0, errors.New("down")}}
	refused := errors.New("not in namespace shop")
	claim := &core.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "c"}, Spec: core.PersistentVolumeClaimSpec{
		StorageClassName: new("holdfast"), Resources: core.VolumeResourceRequirements{Requests: core.ResourceList{core.ResourceStorage: resource.MustParse("4Gi")}},
	}}
	for name, test := range map[string]struct {
		class    *class
		last     reminder
		event    string // part of it
		reminded bool
		again    time.Duration
	}{
		"of another driver":        {nil, reminder{}, "", false, 0},
		"fits":                     {&class{rooms: rooms}, reminder{}, "", false, 0},
		"fits where not allowed":   {&class{rooms: rooms, allowed: only}, reminder{}, "4Gi is requested, and no node has that much free in the first pool: a 1Gi.", true, time.Hour},
		"reminded":                 {&class{rooms: rooms[:1]}, reminder{4 * gib, now.Add(-time.Minute)}, "", true, 59 * time.Minute},
		"reminded long ago":        {&class{rooms: rooms[:1]}, reminder{4 * gib, now.Add(-time.Hour)}, "free", true, time.Hour},
		"reminded of another size": {&class{rooms: rooms[:1]}, reminder{gib, now}, "free", true, time.Hour},
		"no pool":                  {&class{pool: "fast", rooms: rooms[2:3]}, reminder{}, `no node has pool "fast". Add it to spec.pools`, true, time.Hour},
		"no pool where allowed":    {&class{pool: "fast", rooms: rooms[2:3], allowed: only}, reminder{}, `no node that the class allows has pool "fast"`, true, time.Hour},
		"node is down":             {&class{rooms: rooms[3:]}, reminder{}, "d (down)", true, time.Hour},
		"server not allowed":       {&class{shared: true, server: "shop/a", disallowed: refused}, reminder{}, "the class names a server that may get no volumes: not in namespace shop.", true, time.Hour},
		"no server allowed":        {&class{shared: true, disallowed: refused}, reminder{}, "no NFS server may get new volumes: not in namespace shop.", true, time.Hour},
		"no such server":           {&class{shared: true, server: "shop/a"}, reminder{}, "the NFS server shop/a, which does not exist", true, time.Hour},
		"no such pool on a server": {&class{shared: true, pool: "fast", disallowed: refused}, reminder{}, `no NFS server has pool "fast"`, true, time.Hour},
		"no server":                {&class{shared: true}, reminder{}, "there is no NFS server. Create an NFSServer.", true, time.Hour},
		"no server has that much":  {&class{shared: true, rooms: []room{{"shop.files.nfs.holdfast.dev", gib, nil}}}, reminder{}, "no NFS server has that much free: shop/files 1Gi.", true, time.Hour},
	} {
		o := waitingObserved{now: now, claims: []*core.PersistentVolumeClaim{claim}, reminded: map[types.UID]reminder{"gone": {}}, remindAfter: time.Hour}
		if test.class != nil {
			o.classes = map[string]*class{"holdfast": test.class}
		}
		if test.last != (reminder{}) {
			o.reminded["c"] = test.last
		}
		p := planWaiting(o)
		var event string
		for _, e := range p.events {
			event += e.message
		}
		if (event != "") != (test.event != "") || !strings.Contains(event, test.event) {
			t.Errorf("%s: the event is %q, want %q", name, event, test.event)
		}
		if got := slices.Collect(maps.Keys(p.reminded)); slices.Contains(got, "c") != test.reminded || slices.Contains(got, "gone") || p.again != test.again {
			t.Errorf("%s: remembers %v, again after %s", name, got, p.again)
		}
	}
}

// Between the plan and the deletion the claim may have got another PersistentVolume.
func TestRenewal_ClaimIsDeletedOnlyWhileItIsBoundToTheVolume(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*core.PersistentVolume)
		gone   bool
	}{
		"bound to it":         {func(*core.PersistentVolume) {}, true},
		"of another claim":    {func(pv *core.PersistentVolume) { pv.Spec.ClaimRef.UID = "2" }, false},
		"of another volume":   {func(pv *core.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "w" }, false},
		"of another driver":   {func(pv *core.PersistentVolume) { pv.Spec.CSI.Driver = "other" }, false},
		"without one of ours": {func(pv *core.PersistentVolume) { pv.Spec.CSI = nil }, false},
	} {
		claim := &core.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c", UID: "1"}, Spec: core.PersistentVolumeClaimSpec{VolumeName: "pv"}}
		pv := &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: core.PersistentVolumeSpec{
			ClaimRef:               &core.ObjectReference{Namespace: "shop", Name: "c", UID: "1"},
			PersistentVolumeSource: core.PersistentVolumeSource{CSI: &core.CSIPersistentVolumeSource{Driver: v1beta1.DriverName, VolumeHandle: "v"}},
		}}
		test.change(pv)
		kubernetes := fake.NewClientset(claim, pv)
		l := &leader{Backend: &cluster.Backend{Config: cluster.Config{Kubernetes: kubernetes}}}
		_ = l.renewClaim(t.Context(), renewal{volume: volumeOf(), delete: claim}) // it goes on to what it reads again, of which there is nothing here
		if _, err := kubernetes.CoreV1().PersistentVolumeClaims("shop").Get(t.Context(), "c", metav1.GetOptions{}); apierrors.IsNotFound(err) != test.gone {
			t.Errorf("%s: afterwards %v", name, err)
		}
	}
}

func TestPlanRenewal_OnlyTheClaimOfTheVolumeIsRecreated(t *testing.T) {
	claim := func(change func(*core.PersistentVolumeClaim)) *core.PersistentVolumeClaim {
		c := &core.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c", UID: "1"}}
		change(c)
		return c
	}
	for name, c := range map[string]struct {
		change func(*core.PersistentVolumeClaim)
		forged bool
	}{
		"as it was":              {change: func(*core.PersistentVolumeClaim) {}},
		"in another namespace":   {func(c *core.PersistentVolumeClaim) { c.Namespace = "bank" }, true},
		"of another name":        {func(c *core.PersistentVolumeClaim) { c.Name = "d" }, true},
		"with another's volume":  {func(c *core.PersistentVolumeClaim) { c.Spec.VolumeName = "pv-2" }, true},
		"with another's content": {func(c *core.PersistentVolumeClaim) { c.Spec.DataSource = &core.TypedLocalObjectReference{Name: "s"} }, true},
		"with a reference":       {func(c *core.PersistentVolumeClaim) { c.Spec.DataSourceRef = &core.TypedObjectReference{Name: "s"} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			text := check.Got(json.Marshal(claim(c.change)))(t)
			v := volumeOf(func(v *v1beta1.Volume) { v.Annotations = map[string]string{renewalAnnotation: string(text)} })
			for _, now := range []*core.PersistentVolumeClaim{nil, claim(func(*core.PersistentVolumeClaim) {})} {
				r, err := planRenewal(v, now)
				if c.forged && (err == nil || r.create != nil || r.delete != nil) || !c.forged && (err != nil || r.create == nil && r.delete == nil) {
					t.Errorf("planned is %+v, %v", r, err)
				}
			}
		})
	}
}
