package fencing

import (
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

const (
	cluster1, cluster2 = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
	mine               = v1beta1.CephAddress("10.0.0.5:0/1001")
	boot               = "boot-1"
)

var start = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

func clientIn(fsid string, address v1beta1.CephAddress) v1beta1.CephClient {
	return v1beta1.CephClient{FSID: fsid, ID: "client.4711", Address: address, BootID: boot}
}

// lost is a node with the out-of-service taint, a client in one cluster, a chosen pod and one that is not chosen.
func lost(change ...func(*observed)) observed {
	o := observed{
		name: "a", now: start, configured: true, nodes: 5, silentNodes: 1, silent: 10 * time.Minute, down: "its agent last renewed its Lease 10m0s ago",
		node: &core.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: core.NodeSpec{Taints: []core.Taint{{Key: core.TaintNodeOutOfService}}},
			Status: core.NodeStatus{NodeInfo: core.NodeSystemInfo{BootID: boot}},
		},
		storageNode: &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: v1beta1.StorageNodeStatus{CephClients: []v1beta1.CephClient{clientIn(cluster1, mine)}}},
		sites: []site{
			{&v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: "block.ceph.holdfast.dev"}}, cluster1, nil},
			{&v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: "other.ceph.holdfast.dev"}}, cluster2, nil},
		},
		pods:        []*core.Pod{pod("chosen", map[string]string{v1beta1.FencedLabel: "true"}), pod("other", nil)},
		attachments: []storage.VolumeAttachment{{ObjectMeta: metav1.ObjectMeta{Name: "attachment"}}},
	}
	for _, c := range change {
		c(&o)
	}
	return o
}

func pod(name string, labels map[string]string) *core.Pod {
	return &core.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: labels, CreationTimestamp: metav1.NewTime(start.Add(-time.Hour))}}
}

func silentOnly(after time.Duration) func(*observed) {
	return func(o *observed) { o.node.Spec.Taints, o.after, o.fencing.Namespaces = nil, after, []string{"shop"} }
}

// requested is after the first step.
func requested(o *observed) {
	o.storageNode.Spec.Fence = &v1beta1.Fence{Reason: v1beta1.ReasonNodeGone, RequestedAt: metav1.NewMicroTime(start)}
}

// listed is after the second.
func listed(o *observed) {
	requested(o)
	o.sites[0].Spec.Blocklist = []v1beta1.BlocklistRequest{{Node: "a", Addresses: []v1beta1.CephAddress{mine}, BootID: boot, RequestedAt: metav1.NewMicroTime(start)}}
}

// confirmed is when the pool has answered.
func confirmed(o *observed) {
	listed(o)
	o.sites[0].Status.Blocklist = []v1beta1.BlocklistEntry{{Node: "a", Addresses: []v1beta1.CephAddress{mine}, RequestedAt: new(metav1.NewMicroTime(start))}}
}

// shutOut is when that is recorded.
func shutOut(o *observed) { o.storageNode.Spec.Fence.ShutOutAt = new(metav1.NewMicroTime(start)) }

func later(o *observed) { o.now = start.Add(serversEnd) }

// fenced is after the third.
func fenced(o *observed) {
	confirmed(o)
	shutOut(o)
	meta.SetStatusCondition(&o.storageNode.Status.Conditions, metav1.Condition{Type: v1beta1.FencedCondition, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonFenced})
}

// unsure is after the third, when the pool cannot say any more what it has confirmed.
func unsure(o *observed) {
	fenced(o)
	o.sites[0].Status.Blocklist = []v1beta1.BlocklistEntry{{Node: "a", Unconfirmed: []v1beta1.CephAddress{mine}, RequestedAt: new(metav1.NewMicroTime(start))}}
	meta.SetStatusCondition(&o.storageNode.Status.Conditions, metav1.Condition{Type: v1beta1.FencedCondition, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonFencing})
}

// back is a node that works again, with what its kernel has left.
func back(o *observed) {
	o.node.Spec.Taints, o.down, o.silent, o.silentNodes = nil, "", 0, 0
	o.node.Status.Conditions = []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue}}
}

// removed is a node that will not return.
func removed(o *observed) { o.node, o.storageNode = nil, nil }

func surplus(o *observed) { o.sites[0].surplus = []string{"b", "a"} }

// expiring is after that.
func expiring(o *observed) { o.sites[0].Spec.Blocklist[0].Expire = true }

// volumesOnly is a record that lacks the clients of its volumes.
func volumesOnly(o *observed) {
	o.storageNode.Status.CephClients, o.storageNode.Status.CephVolumes = nil, []string{"v"}
}

// unconfigured is when the StorageCluster is gone or cannot be read.
func unconfigured(o *observed) { o.configured, o.sites = false, nil }

// shown is a plan in words.
func shown(p plan) string {
	var words []string
	if p.fence != nil {
		words = append(words, map[bool]string{true: "fence ", false: "shut out "}[p.fence.ShutOutAt == nil]+p.fence.Reason)
	}
	if p.condition != nil {
		words = append(words, string(p.condition.Status)+" "+p.condition.Reason)
	}
	for _, q := range p.requests {
		if q.entry == nil {
			words = append(words, "drop at "+v1beta1.CephPoolOf(q.site.Name))
			continue
		}
		if q.entry.Expire {
			words = append(words, "expire at "+v1beta1.CephPoolOf(q.site.Name))
			continue
		}
		for _, a := range q.entry.Addresses {
			words = append(words, string(a)+" at "+v1beta1.CephPoolOf(q.site.Name))
		}
	}
	if p.unfence {
		words = append(words, "unfence")
	}
	for _, a := range p.attachments {
		words = append(words, a.Name)
	}
	for _, pod := range p.pods {
		words = append(words, map[bool]string{true: "end ", false: "delete "}[p.gracefully]+pod.Name)
	}
	return strings.Join(words, ", ")
}

func TestPlan_TakesOneStepAfterTheOther(t *testing.T) {
	for name, test := range map[string]struct {
		o    observed
		want string
		says string // in the condition
	}{
		"the taint is trusted at once":                          {lost(func(o *observed) { o.down, o.silent = "", 0 }), "fence NodeGone, False Fencing", "taint node.kubernetes.io/out-of-service"},
		"so is the end of the Node":                             {lost(func(o *observed) { o.node = nil }), "fence NodeGone, False Fencing", "its Node was deleted"},
		"but not while its agent lives":                         {lost(func(o *observed) { o.node, o.silent, o.down = nil, 0, "" }), "", ""},
		"nor when it has just fallen silent":                    {lost(func(o *observed) { o.node, o.silent = nil, time.Second }), "", ""},
		"a node without clients has nothing to lose":            {lost(func(o *observed) { o.storageNode.Status.CephClients = nil }), "", ""},
		"one with volumes has":                                  {lost(volumesOnly), "fence NodeGone, False Fencing", ""},
		"which is not shut out while its clients are not known": {lost(requested, volumesOnly), "False NotFenced", "1 volumes in Ceph clusters, and no client is recorded"},
		"None disables all":                                     {lost(func(o *observed) { o.fencing.Pods, o.disabled = v1beta1.FenceNone, true }), "", ""},
		"None ends what was said of too many": {lost(func(o *observed) {
			o.fencing.Pods, o.disabled = v1beta1.FenceNone, true
			meta.SetStatusCondition(&o.storageNode.Status.Conditions, metav1.Condition{Type: v1beta1.FencedCondition, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonTooManySilent})
		}), "False Withdrawn", "spec.fencing has changed"},
		"silence alone is not enough":    {lost(silentOnly(0)), "", ""},
		"silence that is long enough is": {lost(silentOnly(5 * time.Minute)), "fence NodeDown, False Fencing", "10m0s ago"},
		"the silence of an agent alone is not": {lost(silentOnly(5*time.Minute), func(o *observed) {
			o.node.Status.Conditions = []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue}}
		}), "", ""},
		"but not before its time":          {lost(silentOnly(11 * time.Minute)), "", ""},
		"nor without a pod that is chosen": {lost(silentOnly(5*time.Minute), func(o *observed) { o.pods = o.pods[1:] }), "", ""},
		"nor with the label alone":         {lost(silentOnly(5*time.Minute), func(o *observed) { o.fencing.Namespaces = []string{"other"} }), "", ""},
		"all pods can be chosen": {lost(silentOnly(5*time.Minute), func(o *observed) {
			o.pods, o.fencing = o.pods[1:], v1beta1.FencingSpec{Pods: v1beta1.FenceWithCephVolumes}
		}), "fence NodeDown, False Fencing", ""},
		"half of the nodes may be silent": {lost(silentOnly(5*time.Minute), func(o *observed) { o.nodes, o.silentNodes = 4, 2 }), "fence NodeDown, False Fencing", ""},
		"more than half is no evidence":   {lost(silentOnly(5*time.Minute), func(o *observed) { o.silentNodes = 3 }), "False TooManySilent", "3 of 5 nodes"},
		"the taint is evidence even so":   {lost(func(o *observed) { o.silentNodes = 5 }), "fence NodeGone, False Fencing", ""},
		"the pool is asked":               {lost(requested), "False Fencing, 10.0.0.5:0/1001 at block", "pool block: has not answered yet"},
		"it is asked once":                {lost(listed), "False Fencing", ""},
		"what it says is shown": {lost(listed, func(o *observed) {
			o.sites[0].Status.Blocklist = []v1beta1.BlocklistEntry{{Node: "a", Message: "client.holdfast may not do this"}}
		}), "False Fencing", "client.holdfast may not do this"},
		"some of the clients are not all": {lost(confirmed, func(o *observed) {
			o.storageNode.Status.CephClients = append(o.storageNode.Status.CephClients, clientIn(cluster1, "10.0.0.5:0/1002"))
		}), "False Fencing, 10.0.0.5:0/1001 at block, 10.0.0.5:0/1002 at block", ""},
		"nor is one of two clusters": {lost(confirmed, func(o *observed) {
			o.storageNode.Status.CephClients = append(o.storageNode.Status.CephClients, clientIn(cluster2, "10.0.0.5:0/2001"))
		}), "False Fencing, 10.0.0.5:0/2001 at other", "pool other"},
		"each pool of a cluster answers for its OSDs": {lost(confirmed, func(o *observed) { o.sites[1].fsid = cluster1 }), "False Fencing, 10.0.0.5:0/1001 at other", "pool other: has not answered yet"},
		"a client without an address":                 {lost(confirmed, func(o *observed) { o.storageNode.Status.CephClients[0].Address = "" }), "False NotFenced", "client.4711"},
		"a client of another node": {lost(requested, func(o *observed) {
			o.elsewhere = map[clientAddress]string{{cluster1, mine}: "b"}
		}), "False NotFenced", "also recorded of node b"},
		"a cluster without a pool": {lost(requested, func(o *observed) { o.sites = o.sites[1:] }), "False NotFenced", cluster1},
		"all is confirmed":         {lost(confirmed), "shut out NodeGone, False Fencing", "an NFS server on it has a moment"},
		"its servers may run":      {lost(confirmed, shutOut), "", ""},
		"its servers have ended":   {lost(confirmed, shutOut, later), "True Fenced", "its 1 clients"},
		"an earlier request was": {lost(confirmed, func(o *observed) {
			o.sites[0].Status.Blocklist[0].RequestedAt = new(metav1.NewMicroTime(start.Add(-time.Hour)))
		}), "False Fencing", "has not answered yet"},
		"what a pool lists of an earlier fence is requested by this one": {lost(listed, func(o *observed) {
			o.sites[0].Spec.Blocklist[0].RequestedAt = metav1.NewMicroTime(start.Add(time.Hour)) // by a leader whose clock is ahead
		}), "False Fencing, 10.0.0.5:0/1001 at block", ""},
		"what a pool has confirmed of an earlier fence is, too": {lost(confirmed, func(o *observed) {
			earlier := metav1.NewMicroTime(start.Add(-time.Hour))
			o.sites[0].Spec.Blocklist[0].RequestedAt, o.sites[0].Status.Blocklist[0].RequestedAt = earlier, &earlier
		}), "False Fencing, 10.0.0.5:0/1001 at block", ""},
		"a confirmation without a request": {lost(confirmed, func(o *observed) { o.sites[0].Spec.Blocklist = nil }), "False Fencing, 10.0.0.5:0/1001 at block", ""},
		"all is confirmed again":           {lost(unsure, later, func(o *observed) { o.sites[0].Status.Blocklist[0].Addresses = []v1beta1.CephAddress{mine} }), "True Fenced", ""},
		"only then its pods go":            {lost(fenced), "attachment, delete chosen", ""},
		"what is not confirmed any more":   {lost(fenced, func(o *observed) { o.sites[0].Status.Blocklist = nil }), "False Fencing", ""},
		"a pod from after that stays": {lost(fenced, func(o *observed) {
			o.attachments, o.pods[0].CreationTimestamp = nil, metav1.NewTime(start.Add(time.Minute))
		}), "", ""},
		"it is back before it was shut out": {lost(listed, back), "False Withdrawn, drop at block, drop at other, unfence", ""},
		"its pool is unsure of what was":    {lost(unsure, back), "False Releasing, end chosen", "it still has client.4711"},
		"it is back with its old client":    {lost(fenced, back), "True Releasing, end chosen", "it still has client.4711. These pods use volumes that they cannot reach any more, and must be deleted: shop/other"},
		"its pool has forgotten what was":   {lost(fenced, back, func(o *observed) { o.sites[0].Spec.Blocklist = nil }), "False Releasing, 10.0.0.5:0/1001 at block, end chosen", "it still has client.4711"},
		"its pool was deleted":              {lost(fenced, back, func(o *observed) { o.sites = o.sites[1:] }), "False Releasing, end chosen", "it still has client.4711"},
		"a pool of its cluster was added":   {lost(fenced, back, func(o *observed) { o.sites[1].fsid = cluster1 }), "False Releasing, 10.0.0.5:0/1001 at other, end chosen", "it still has client.4711"},
		"it is back with a new kernel":      {lost(fenced, back, func(o *observed) { o.storageNode.Status.CephClients = nil }), "False Released, drop at block, drop at other, unfence", ""},
		"its agent is not back yet":         {lost(fenced, back, func(o *observed) { o.down, o.attachments = "silent", nil }), "delete chosen", ""},
		"it is disabled in between":         {lost(fenced, func(o *observed) { o.disabled, o.fencing.Pods = true, v1beta1.FenceNone }), "True Releasing", ""},
		"killed between the last two steps": {lost(back, requested, func(o *observed) {
			meta.SetStatusCondition(&o.storageNode.Status.Conditions, metav1.Condition{Type: v1beta1.FencedCondition, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonReleased})
		}), "False Withdrawn, drop at block, drop at other, unfence", ""},
		"the StorageNode was deleted":       {lost(confirmed, func(o *observed) { o.storageNode = nil }), "", ""},
		"and the machine was started again": {lost(confirmed, func(o *observed) { o.storageNode, o.node.Status.NodeInfo.BootID = nil, "boot-2" }), "drop at block", ""},
		"and a month has passed":            {lost(confirmed, func(o *observed) { o.storageNode, o.now = nil, start.Add(orphansLast+time.Second) }), "expire at block", ""},
		"and its pool lists too many":       {lost(confirmed, removed, surplus), "expire at block", ""},
		"which its agent does":              {lost(confirmed, removed, expiring), "", ""},
		"and has done":                      {lost(listed, removed, expiring), "drop at block", ""},
		"what expires is requested again":   {lost(confirmed, expiring, func(o *observed) { o.sites[0].Status.Blocklist = nil }), "False Fencing, 10.0.0.5:0/1001 at block", ""},
		"without a StorageCluster no fence": {lost(unconfigured), "", ""},
		"nor any step of one":               {lost(listed, unconfigured), "", ""},
		"nor its end":                       {lost(fenced, back, unconfigured, func(o *observed) { o.storageNode.Status.CephClients = nil }), "", ""},
		"a pool is no node":                 {lost(func(o *observed) { o.name = "block.ceph.holdfast.dev" }), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := planNode(test.o)
			if got := shown(p); got != test.want {
				t.Errorf("planned is %q, want %q", got, test.want)
			}
			if test.says != "" && (p.condition == nil || !strings.Contains(p.condition.Message, test.says)) {
				t.Errorf("the condition is %+v, which does not say %q", p.condition, test.says)
			}
		})
	}
}

// Its end was missed, as when the object of the pool could not be read.
func TestPlan_NodeThatIsBackLeavesNoEntryOfAnEarlierFence(t *testing.T) {
	earlier := metav1.NewMicroTime(start.Add(-time.Hour))
	p := planNode(lost(listed, back, func(o *observed) { o.sites[0].Spec.Blocklist[0].RequestedAt = earlier }))
	if len(p.requests) != 2 || !slices.Contains(p.requests[0].of, earlier) || !slices.Contains(p.requests[0].of, metav1.NewMicroTime(start)) {
		t.Errorf("the requests are %+v", p.requests)
	}
}

func TestPlan_LooksAgainWhenNothingWillWakeIt(t *testing.T) {
	for name, test := range map[string]struct {
		o    observed
		want time.Duration
	}{
		"before the silence is long enough": {lost(silentOnly(11 * time.Minute)), time.Minute},
		"a chosen pod may come":             {lost(silentOnly(5*time.Minute), func(o *observed) { o.pods = nil }), lookAgain},
		"the others may come back":          {lost(silentOnly(5*time.Minute), func(o *observed) { o.silentNodes = 3 }), lookAgain},
		"a deleted Node falls silent":       {lost(func(o *observed) { o.node, o.silent = nil, time.Second }), lookAgain},
		"its attachments are not watched":   {lost(fenced), lookAgain},
		"the StorageCluster may come back":  {lost(fenced, unconfigured), lookAgain},
	} {
		if got := planNode(test.o).again; got != test.want {
			t.Errorf("%s: again after %s, want %s", name, got, test.want)
		}
	}
}
