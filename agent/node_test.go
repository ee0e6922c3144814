package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func (r *rig) node() *v1beta1.StorageNode {
	n, err := r.nodes.Get(r.Context(), node, metav1.GetOptions{})
	if err != nil {
		return &v1beta1.StorageNode{}
	}
	return n
}

func TestStorageNode_ReportsPoolsAndCapacity(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.withVolumes("a")
		r.withSnapshot("s", "a")
		wait.Until(r, "the counts", func() bool {
			p := r.node().Status.Pools
			return len(p) == 1 && p[0].Volumes == 1 && p[0].Snapshots == 1 && p[0].Promised.Value() == 16*mib
		})
		s := r.node().Status
		p := s.Pools[0]
		if s.Version != "1.2.3" || p.Name != "memory" || p.Path != "/srv/memory" || p.Engine != v1beta1.EngineImage || p.Message != "" ||
			p.Capacity.Value() != 1<<40 || p.Available.Value() != 1<<40-16*mib || p.Smallest.Value() != mib || p.Largest.Value() != 1<<40-16*mib {
			r.Errorf("it says %+v", s)
		}
		if s.Columns.Pools != "1/1" || s.Columns.Volumes != 1 || s.Columns.Capacity != "1Ti" {
			r.Errorf("people read %+v", s.Columns)
		}
		expectCondition(r, s.Conditions, v1beta1.ReadyCondition, metav1.ConditionTrue, v1beta1.ReasonReady)
		r.remove("a")
		r.gone("a")
		wait.Until(r, "the room given back", func() bool { p := r.node().Status.Pools[0]; return p.Volumes == 0 && p.Promised.Value() == 0 })
	})
}

func TestStorageNode_IsOfItsGenerationFromTheFirstStatus(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.change = func(c *Config) { c.SurveyEvery = time.Hour }
		changes := check.Got(r.nodes.Watch(r.Context(), metav1.ListOptions{}))(r)
		defer changes.Stop()
		r.begin()
		for change := range changes.ResultChan() {
			n := change.Object.(*v1beta1.StorageNode)
			if len(n.Status.Conditions) == 0 {
				continue
			}
			expectGeneration(r, n)
			break
		}
		patch := `{"spec":{"discard":[{"kind":"Volume","name":"none","uid":"u1","requestedBy":"a test","requestedAt":"2026-11-24T03:00:00.000000Z"}]}}`
		r.patchNode(patch)
		var n *v1beta1.StorageNode
		wait.Until(r, "the status of the changed spec", func() bool { n = r.node(); return n.Generation > 1 && n.Status.ObservedGeneration == n.Generation })
		expectGeneration(r, n)
	})
}

// expectGeneration fails unless a status and all its conditions are about the object's generation.
func expectGeneration(t testing.TB, n *v1beta1.StorageNode) {
	t.Helper()
	if n.Status.ObservedGeneration != n.Generation {
		t.Errorf("its generation is %d, that of its status %d", n.Generation, n.Status.ObservedGeneration)
	}
	for _, c := range n.Status.Conditions {
		if c.ObservedGeneration != n.Generation {
			t.Errorf("its generation is %d, that of its condition %s %d", n.Generation, c.Type, c.ObservedGeneration)
		}
	}
}

func TestStorageNode_ReportsWhetherVolumesElsewhereCanBeUsed(t *testing.T) {
	for condition, reason := range map[string]string{v1beta1.SharedVolumesCondition: v1beta1.ReasonNoNFSClient, v1beta1.RBDVolumesCondition: v1beta1.ReasonNoCephClient, v1beta1.CephFSVolumesCondition: v1beta1.ReasonNoCephClient} {
		t.Run(condition, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				var mu sync.Mutex
				lacks := errors.New("the kernel has no client")
				lacking := func() (string, error) { mu.Lock(); defer mu.Unlock(); return reason, lacks }
				r.change = func(c *Config) {
					if c.SharedVolumes = lacking; condition != v1beta1.SharedVolumesCondition {
						c.SharedVolumes, c.CephVolumes = nil, map[string]func() (string, error){condition: lacking}
					}
				}
				r.begin()
				if c := r.condition(r.ofNode, condition, metav1.ConditionFalse, reason); c.Message != lacks.Error() {
					r.Errorf("it says %q", c.Message)
				}
				if !meta.IsStatusConditionTrue(r.ofNode(), v1beta1.ReadyCondition) {
					r.Error("for want of that, it is not ready")
				}
				mu.Lock()
				lacks = nil
				mu.Unlock()
				if c := r.condition(r.ofNode, condition, metav1.ConditionTrue, v1beta1.ReasonReady); c.Message != "" {
					r.Errorf("it says %q", c.Message)
				}
			})
		})
	}
}

func TestStorageNode_ForgetsWhatIsNoLongerChecked(t *testing.T) {
	a := &Agent{abilities: []*ability{{condition: v1beta1.SharedVolumesCondition}}}
	s := &v1beta1.StorageNodeStatus{Conditions: []metav1.Condition{
		{Type: v1beta1.ReadyCondition}, {Type: v1beta1.SharedVolumesCondition}, {Type: v1beta1.RBDVolumesCondition, Status: metav1.ConditionFalse},
	}}
	a.addAbilities(s)
	if len(s.Conditions) != 2 || meta.FindStatusCondition(s.Conditions, v1beta1.RBDVolumesCondition) != nil {
		t.Errorf("it reports %v", s.Conditions)
	}
}

func TestStorageNode_UnknownAddressesAreLoggedOncePerReason(t *testing.T) {
	var log bytes.Buffer
	err := errors.New("no network")
	a := &Agent{Config: Config{Addresses: func() ([]string, error) { return []string{"10.0.0.7"}, err }}, log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, err = range []error{err, err, errors.New("forbidden"), nil, err, err} {
		a.addresses(&v1beta1.StorageNodeStatus{})
	}
	want := []string{"no network", "forbidden", "known again", "no network"}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != len(want) {
		t.Fatalf("the log is %q, want lines with %q", lines, want)
	}
	for i, line := range lines {
		if !strings.Contains(line, want[i]) {
			t.Errorf("line %d is %s, want %q in it", i+1, line, want[i])
		}
	}
}

func TestStorageNode_ReportsTheAddressesOfTheNode(t *testing.T) {
	inBubble(t, func(r *rig) {
		var mu sync.Mutex
		addresses, failure := []string{"10.0.0.7", "10.9.8.1"}, error(nil)
		r.change = func(c *Config) {
			c.Addresses = func() ([]string, error) { mu.Lock(); defer mu.Unlock(); return slices.Clone(addresses), failure }
		}
		r.begin()
		has := func(err error, all ...string) {
			mu.Lock()
			addresses, failure = all, err
			mu.Unlock()
			r.agent.node.change()
		}
		reported := func(all ...string) {
			r.Helper()
			wait.Until(r, fmt.Sprint("the report of ", all), func() bool { return slices.Equal(r.node().Status.Addresses, all) })
		}
		reported("10.0.0.7", "10.9.8.1")
		has(nil, "10.0.0.7", "10.9.8.1", "fd00::1")
		reported("10.0.0.7", "10.9.8.1", "fd00::1")
		has(errors.New("no network"))
		r.ask("a")
		wait.Until(r, "other news", func() bool { p := r.node().Status.Pools; return len(p) == 1 && p[0].Volumes == 1 })
		reported("10.0.0.7", "10.9.8.1", "fd00::1") // still, while they are not known
		has(nil, "10.0.0.8")
		reported("10.0.0.8")
		wait.Until(r, "the loss of it", func() bool { // as by an API server whose kind is of the release before
			n := r.node()
			n.Status.Addresses = nil
			_, err := r.nodes.UpdateStatus(r.Context(), n, metav1.UpdateOptions{})
			return err == nil
		})
		r.agent.node.change()
		reported("10.0.0.8")
	})
}

func TestStorageNode_FailingPoolKeepsItsLastCapacityAndReportsTheReason(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.host.set(func() { r.host.broken = fmt.Errorf("%w: /srv/memory is not mounted", backend.ErrUnavailable) })
		wait.Until(r, "the message", func() bool { return r.node().Status.Pools[0].Message != "" })
		s := r.node().Status
		if s.Pools[0].Capacity.Value() != 1<<40 || s.Columns.Pools != "0/1" {
			r.Errorf("it says %+v", s)
		}
		expectCondition(r, s.Conditions, v1beta1.ReadyCondition, metav1.ConditionFalse, v1beta1.ReasonPoolFailing)
		r.restart() // the numbers are those of the object now
		if got := r.node().Status.Pools[0].Capacity.Value(); got != 1<<40 {
			r.Errorf("after a restart the pool has %d bytes", got)
		}
		r.host.set(func() { r.host.broken = nil })
		wait.Until(r, "the pool back", func() bool { return r.node().Status.Pools[0].Message == "" })
		expectCondition(r, r.ofNode(), v1beta1.ReadyCondition, metav1.ConditionTrue, v1beta1.ReasonReady)
	})
}

func TestStorageNode_WarnsOfARefusalWhileThePoolIsUsed(t *testing.T) {
	for condition, test := range map[string]struct {
		refuse func(*host, error)
		events [2]string
		other  string
	}{
		v1beta1.KeyRefusedCondition: {
			func(h *host, why error) { h.warns = why }, [...]string{"KeyRefused", "KeyAccepted"}, v1beta1.NodeUserRefusedCondition,
		},
		v1beta1.NodeUserRefusedCondition: {
			func(h *host, why error) { h.nodes = why }, [...]string{"NodeUserRefused", "NodeUserAccepted"}, v1beta1.KeyRefusedCondition,
		},
	} {
		t.Run(condition, func(t *testing.T) {
			withAgent(t, func(r *rig) {
				warning := func() *metav1.Condition { return meta.FindStatusCondition(r.ofNode(), condition) }
				wait.Until(r, "its report", func() bool { return meta.IsStatusConditionTrue(r.ofNode(), v1beta1.ReadyCondition) })
				if warning() != nil {
					r.Errorf("without a reason it warns: %v", warning())
				}
				r.host.set(func() { test.refuse(r.host, errors.New("Ceph refuses client.a")) })
				wait.Until(r, "the warning", func() bool {
					c := warning()
					return c != nil && c.Status == metav1.ConditionTrue && c.Message == "Ceph refuses client.a"
				})
				r.expectEvent(test.events[0])
				n := r.node()
				other := meta.FindStatusCondition(n.Status.Conditions, test.other)
				if !meta.IsStatusConditionTrue(n.Status.Conditions, v1beta1.ReadyCondition) || n.Status.Pools[0].Message != "" || other != nil {
					r.Errorf("the pool cannot be used any more, or more is refused: %+v", n.Status)
				}
				r.withVolumes("a")
				r.host.set(func() { test.refuse(r.host, nil) })
				wait.Until(r, "the end of the warning", func() bool { c := warning(); return c.Status == metav1.ConditionFalse && c.Message == "" })
				r.expectEvent(test.events[1])
			})
		})
	}
}

func TestStorageNode_ReportsThatItHasNoPool(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.change = func(c *Config) { c.Pools = nil }
		r.begin()
		s := r.node().Status
		c := expectCondition(r, s.Conditions, v1beta1.ReadyCondition, metav1.ConditionFalse, v1beta1.ReasonNoPool)
		if len(s.Pools) != 0 || s.Columns.Pools != "0/0" || s.Version != "1.2.3" || !strings.Contains(c.Message, "nodeSelectorTerms") {
			r.Errorf("it says %+v", s)
		}
		r.change = nil
		r.restart() // a label gave it one
		wait.Until(r, "the pool", func() bool { return r.node().Status.Columns.Pools == "1/1" })
		expectCondition(r, r.ofNode(), v1beta1.ReadyCondition, metav1.ConditionTrue, v1beta1.ReasonReady)
	})
}

func TestStorageNode_WrittenOffOrDeletedIsReportedAliveAgainWithItsVolumes(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.change = func(c *Config) { c.SurveyEvery = time.Hour }
		r.begin()
		wait.Until(r, "the mark", func() bool {
			n := r.node()
			n.Status.Conditions = []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionUnknown, Reason: v1beta1.ReasonNodeDown}}
			_, err := r.nodes.UpdateStatus(r.Context(), n, metav1.UpdateOptions{})
			return err == nil
		})
		wait.Until(r, "a sign of life", func() bool { return !writtenOff(r.node().Status.Conditions) })
		r.withVolumes("a")
		r.writeStatus("a", func(s *v1beta1.VolumeStatus) {
			s.Phase = v1beta1.PhaseLost
			s.Conditions[0] = metav1.Condition{Type: v1beta1.ReadyCondition, Status: metav1.ConditionUnknown, Reason: v1beta1.ReasonNodeGone}
		})
		r.phase("a", v1beta1.PhaseReady)
		expectCondition(r, r.ofVolume("a")(), v1beta1.ReadyCondition, metav1.ConditionTrue, v1beta1.ReasonReady)
		check.OK(r, r.nodes.Delete(r.Context(), node, metav1.DeleteOptions{}))
		wait.Until(r, "a new record", func() bool { return len(r.node().Status.Pools) == 1 })
	})
}

func TestStorageNode_WrongStatusIsCorrected(t *testing.T) {
	withAgent(t, func(r *rig) {
		r.ask("a")
		v := r.phase("a", v1beta1.PhaseReady)
		right := v.Status
		for what, wrong := range map[string]func(*v1beta1.VolumeStatus){
			"phase":       func(s *v1beta1.VolumeStatus) { s.Phase = v1beta1.PhaseFailed },
			"size":        func(s *v1beta1.VolumeStatus) { s.Size = size(mib) },
			"pool":        func(s *v1beta1.VolumeStatus) { s.Pool = "another" },
			"mode":        func(s *v1beta1.VolumeStatus) { s.Mode = v1beta1.ModeBlock },
			"file system": func(s *v1beta1.VolumeStatus) { s.FSType = "another" },
			"all of it":   func(s *v1beta1.VolumeStatus) { *s = v1beta1.VolumeStatus{} },
		} {
			r.writeStatus("a", wrong)
			wait.Until(r, "the right "+what, func() bool {
				s := r.volume("a").Status
				return s.Phase == right.Phase && s.Size != nil && s.Size.Cmp(*right.Size) == 0 && s.Pool == right.Pool && s.Mode == right.Mode && s.FSType == right.FSType
			})
		}
	})
}

func TestLease_IsRenewedWhenTheStatusCannotBeWritten(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.begin()
		leases := r.leases.CoordinationV1().Leases(v1beta1.DefaultNamespace)
		renewed := func(what string, since time.Time) (at time.Time) {
			r.Helper()
			wait.Until(r, what, func() bool {
				l, err := leases.Get(r.Context(), v1beta1.LeasePrefix+node, metav1.GetOptions{})
				if err != nil || *l.Spec.HolderIdentity != node || time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second != DefaultLease {
					return false
				}
				at = l.Spec.RenewTime.Time
				return at.After(since)
			})
			return at
		}
		first := renewed("a Lease", time.Time{})
		second := renewed("a renewal", first)
		check.OK(r, leases.Delete(r.Context(), v1beta1.LeasePrefix+node, metav1.DeleteOptions{}))
		renewed("a new Lease", second)
		r.restart()
		renewed("the next agent's Lease", second)
	})
}

func TestAgent_BadConfigurationIsRefused(t *testing.T) {
	withAgent(t, func(r *rig) {
		for what, change := range map[string]func(*Config){
			"no node":    func(c *Config) { c.Node = "" },
			"a bad node": func(c *Config) { c.Node = "Node_A" },
			"no backend": func(c *Config) { c.Backend = nil },
			"no client":  func(c *Config) { c.Client = nil },
		} {
			c := r.agent.Config
			change(&c)
			if _, err := New(c); err == nil {
				r.Errorf("%s: accepted", what)
			}
		}
	})
}

func TestAgent_StopsWhileTheAPIIsUnreachable(t *testing.T) {
	r := newRig(t).begin()
	r.stop()
	r.api.Close()
	a := check.Got(New(r.agent.Config))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := a.Run(ctx); err == nil {
		t.Error("it began without knowing its objects")
	}
}
