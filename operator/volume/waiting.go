package volume

import (
	"errors"
	"fmt"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/backend/cluster"
	"github.com/holdfast-storage/holdfast/kube"
)

// surveyEvery bounds how often all waiting claims are looked at.
const surveyEvery = 2 * time.Second

// DefaultRemindAfter is shorter than API servers keep events, which is an hour.
const DefaultRemindAfter = 30 * time.Minute

// class is what decides where the volumes of a StorageClass of this driver may be.
type class struct {
	pool    string
	shared  bool
	server  string
	allowed []core.TopologySelectorTerm // none allows all
	home    v1beta1.Site

	rooms      []room // of the nodes or servers that the parameters allow
	disallowed error  // of a shared class: why the server, or any, may get no volumes
}

// room is what a node or server has free.
type room struct {
	node  string
	bytes int64
	err   error
}

type reminder struct {
	requested int64
	when      time.Time
}

// waitingObserved is all that a plan for waiting claims depends on.
type waitingObserved struct {
	now         time.Time
	claims      []*core.PersistentVolumeClaim // that are pending
	classes     map[string]*class             // by name; only those of this driver
	reminded    map[types.UID]reminder
	remindAfter time.Duration
}

type waitingPlan struct {
	events   []event
	reminded map[types.UID]reminder // of the claims that fit nowhere now
	again    time.Duration
}

// planWaiting plans an event, repeated now and then, for each claim that fits nowhere. The event of the scheduler does
// not say how much is free.
func planWaiting(o waitingObserved) waitingPlan {
	p := waitingPlan{reminded: map[types.UID]reminder{}}
	for _, c := range o.claims {
		class := o.classes[className(c)]
		if class == nil {
			continue
		}
		requested := c.Spec.Resources.Requests.Storage().Value()
		free, fits := class.free(requested)
		if fits {
			continue
		}
		last := o.reminded[c.UID]
		if last.requested != requested || o.now.Sub(last.when) >= o.remindAfter {
			last = reminder{requested, o.now}
			p.events = append(p.events, event{c, "NoRoom", fmt.Sprintf("%s is requested, and %s", readable(requested), class.lacks(free))})
		}
		p.reminded[c.UID] = last
		p.again = kube.Sooner(p.again, max(last.when.Add(o.remindAfter).Sub(o.now), time.Nanosecond))
	}
	return p
}

func className(c *core.PersistentVolumeClaim) string {
	if c.Spec.StorageClassName == nil {
		return ""
	}
	return *c.Spec.StorageClassName
}

// free lists what each node or server has free, and says whether one of them has enough.
func (c *class) free(requested int64) (free []string, fits bool) {
	for _, r := range c.rooms {
		name := v1beta1.SiteOf(r.node).Name
		switch {
		case !c.allows(r.node), errors.Is(r.err, backend.ErrNotFound): // it has no such pool
		case r.err != nil:
			free = append(free, fmt.Sprintf("%s (%v)", name, r.err))
		case r.bytes >= requested && (c.home.Kind != "" || backend.RoundDown(r.bytes) >= requested): // as the scheduler knows it
			return nil, true
		default:
			free = append(free, name+" "+readable(backend.RoundDown(r.bytes)))
		}
	}
	return free, false
}

// allows says whether one of the terms names the node. What they say of other labels is for the scheduler to judge.
func (c *class) allows(node string) bool {
	return len(c.allowed) == 0 || c.home.Kind != "" || slices.ContainsFunc(c.allowed, func(t core.TopologySelectorTerm) bool {
		for _, r := range t.MatchLabelExpressions {
			if r.Key == v1beta1.TopologyKey && !slices.Contains(r.Values, node) {
				return false
			}
		}
		return true
	})
}

// lacks says what is missing where there is only so much free.
func (c *class) lacks(free []string) string {
	switch ceph := c.home.Kind == v1beta1.SiteCephPool; {
	case ceph && len(free) > 0:
		return fmt.Sprintf("%s does not have that much free: %s. Request less, or free space there.", c.home, cluster.Few(free, ", "))
	case ceph:
		return fmt.Sprintf("%s has no agent yet. Look at the pod of Deployment holdfast-ceph-%s.", c.home, c.home.Name)
	case c.shared && len(free) == 0 && c.server != "" && c.disallowed != nil:
		return fmt.Sprintf("the class names a server that may get no volumes: %v.", c.disallowed)
	case c.shared && len(free) == 0 && c.pool == "" && c.disallowed != nil:
		return fmt.Sprintf("no NFS server may get new volumes: %v.", c.disallowed)
	case len(free) > 0 && c.shared:
		return fmt.Sprintf("no NFS server has that much free: %s. Request less, or grow its storage.", cluster.Few(free, ", "))
	case len(free) > 0:
		return fmt.Sprintf("no node has that much free in %s: %s. Request less, or free space.", cluster.PoolInWords(c.pool), cluster.Few(free, ", "))
	case c.server != "":
		return fmt.Sprintf("the class names the NFS server %s, which does not exist. Create it, or use another class.", c.server)
	case c.shared && c.pool != "":
		return fmt.Sprintf("no NFS server has %s. Use a class without the parameter pool.", cluster.PoolInWords(c.pool))
	case c.shared:
		return "there is no NFS server. Create an NFSServer."
	case len(c.allowed) > 0:
		return fmt.Sprintf("no node that the class allows has %s. See its allowedTopologies, and spec.pools of the StorageCluster.", cluster.PoolInWords(c.pool))
	default:
		return fmt.Sprintf("no node has %s. Add it to spec.pools of the StorageCluster, or use another class.", cluster.PoolInWords(c.pool))
	}
}

// readable rounds down to what people compare.
func readable(bytes int64) string {
	return v1beta1.Quantity(max(bytes>>20, 0) << 20).String()
}
