package volumecopy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// slots are those of the copies that run.
type slots struct {
	mu    sync.Mutex
	held  map[types.UID]bool
	tried map[types.UID]try
}

// try is the last of a copy that gave its slot back. One that has a slot again keeps only how often it tried.
type try struct {
	at    time.Time
	why   string
	times int
}

// contender is a copy that has not ended.
type contender struct {
	*v1beta1.Volume
	pod  bool   // it has one, which is not on its way out on a node that is down
	down string // what it waits for that is down
}

// namespace is that of the claim that the copy is for.
func (c contender) namespace() string {
	if c.Spec.ClaimRef == nil {
		return ""
	}
	return c.Spec.ClaimRef.Namespace
}

func (r *Controller) takeSlot(of *v1beta1.Volume) (waits string, wanted bool) {
	if !isUnfinished(of) {
		return "", false
	}
	all, sources, pods := kube.Cached(r.volumes.List), map[types.UID]*v1beta1.Volume{}, map[string][]*core.Pod{}
	for _, v := range all {
		if isTemporary(v) && v.Labels[v1beta1.AdoptedLabel] == "" { // an agent that is silent since may have written any other
			sources[types.UID(v.Spec.Labels[v1beta1.CopyUIDLabel])] = v
		}
	}
	for _, p := range kube.Cached(r.pods.List) {
		pods[p.Labels[v1beta1.CopyLabel]] = append(pods[p.Labels[v1beta1.CopyLabel]], p)
	}
	contends := func(v *v1beta1.Volume) contender {
		c := contender{Volume: v, down: r.whyDown(v, sources[v.UID])}
		for _, p := range pods[v.Name] {
			switch node := p.Spec.NodeName; {
			case attemptOf(v.UID, p) == 0:
			case p.DeletionTimestamp != nil && node != "" && r.Storage.WhyDown(node) != "": // it ends there as soon as the node is back
				c.down = "node " + node + ", where its pod is being deleted, is down"
			default:
				c.pod = true
			}
		}
		return c
	}
	var others []contender
	for _, v := range all {
		if v.UID != of.UID && isUnfinished(v) {
			others = append(others, contends(v))
		}
	}
	return r.slots.take(contends(of), others)
}

// take gives a slot to a copy that has none, and otherwise says why not. A copy has its slot as long as it has a pod, and until
// it ends, gives it back, or waits for what is down. wanted says whether another waits for it.
func (s *slots) take(of contender, others []contender) (waits string, wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unfinished, waiting := map[types.UID]bool{of.UID: true}, []contender{of}
	running, copying := map[string]int{}, 0 // by namespace, and all
	for _, c := range others {
		unfinished[c.UID] = true
		switch {
		case c.pod, s.held[c.UID] && c.down == "":
			running[c.namespace()]++
			copying++
		case c.down != "":
			delete(s.held, c.UID)
		default:
			waiting = append(waiting, c)
		}
	}
	maps.DeleteFunc(s.held, func(uid types.UID, _ bool) bool { return !unfinished[uid] })
	maps.DeleteFunc(s.tried, func(uid types.UID, _ try) bool { return !unfinished[uid] })
	tried := s.tried[of.UID]
	switch {
	case of.pod && tried.why != "":
		return "its pod, which could not start, is being deleted", false
	case of.pod: // another process may have made it
	case of.down != "": // its turn when that is back is by its age
		delete(s.held, of.UID)
		delete(s.tried, of.UID)
		return of.down, false
	case !s.held[of.UID]:
		before, beside := s.before(of, waiting, running)
		if copying+before >= atOnce && (copying < atOnce || copying+beside >= atMost) {
			waits = fmt.Sprintf("%d volumes are copied at a time: %d are being copied, and %d wait before it", atOnce, copying, before)
			if tried.why != "" {
				waits += "; when it last tried, " + tried.why
			}
			return waits, false
		}
	}
	s.held[of.UID] = true
	s.tried[of.UID] = try{times: tried.times}
	return "", copying+1 >= atOnce && len(waiting) > 1
}

// before is how many of those that wait get a slot before one of them. The namespaces have turns, so that one with many copies does
// not keep those of others waiting. In a namespace, those that have not tried yet are first, the oldest of them first, then the one
// whose try is the longest ago; and each try of a copy costs a turn. So one that cannot run keeps none waiting either.
// beside is how many get one of those for namespaces that have none; atMost for a copy that is not the first of such a namespace.
func (s *slots) before(of contender, waiting []contender, running map[string]int) (before, beside int) {
	slices.SortFunc(waiting, s.order)
	turns, turn, first := maps.Clone(running), map[types.UID]int{}, map[types.UID]bool{}
	for _, c := range waiting {
		turn[c.UID], first[c.UID] = turns[c.namespace()]+s.tried[c.UID].times, turns[c.namespace()] == 0
		turns[c.namespace()]++
	}
	if !first[of.UID] {
		beside = atMost
	}
	for _, c := range waiting {
		if cmp.Or(cmp.Compare(turn[c.UID], turn[of.UID]), s.order(c, of)) < 0 {
			before++
			if first[c.UID] {
				beside++
			}
		}
	}
	return before, beside
}

func (s *slots) order(a, b contender) int {
	return cmp.Or(s.tried[a.UID].at.Compare(s.tried[b.UID].at), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// giveBack is for a copy that cannot run now, and has no pod that will.
func (s *slots) giveBack(uid types.UID, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, uid)
	s.tried[uid] = try{time.Now(), why, s.tried[uid].times + 1}
}
