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
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		r.ask("a")
		r.phase("a", v1beta1.PhaseReady)
		r.askSnapshot("s", "a", nil)
		r.readySnapshot("s")
		wait.Until(r, "the counts", func() bool {
			p := r.node().Status.Pools
			return len(p) == 1 && p[0].Volumes == 1 && p[0].Snapshots == 1 && p[0].Promised.Value() == 16*mib
		})
		s := r.node().Status
		p := s.Pools[0]
		if s.Version != "1.2.3" || p.Name != "memory" || p.Path != "/srv/memory" || p.Engine != v1beta1.EngineImage || p.Message != "" ||
			p.Capacity.Value() != 1<<40 || p.Available.Value() != 1<<40-16*mib || p.Smallest.Value() != mib || p.Largest.Value() != 1<<40-16*mib {
			t.Errorf("it says %+v", s)
		}
		if s.Columns.Pools != "1/1" || s.Columns.Volumes != 1 || s.Columns.Capacity != "1Ti" {
			t.Errorf("people read %+v", s.Columns)
		}
		expectCondition(t, s.Conditions, v1beta1.ReadyCondition, metav1.ConditionTrue, v1beta1.ReasonReady)
		r.remove("a")
		r.gone("a")
		wait.Until(r, "the room given back", func() bool { p := r.node().Status.Pools[0]; return p.Volumes == 0 && p.Promised.Value() == 0 })
	})
}

func TestStorageNode_IsOfItsGenerationFromTheFirstStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.change = func(c *Config) { c.SurveyEvery = time.Hour }
		changes := check.Got(r.nodes.Watch(t.Context(), metav1.ListOptions{}))(t)
		defer changes.Stop()
		r.begin()
		for change := range changes.ResultChan() {
			n := change.Object.(*v1beta1.StorageNode)
			if len(n.Status.Conditions) == 0 {
				continue
			}
			expectGeneration(t, n)
			break
		}
		patch := `{"spec":{"discard":[{"kind":"Volume","name":"none","uid":"u1","requestedBy":"a test","requestedAt":"2026-11-24T03:00:00.000000Z"}]}}`
		check.Got(r.nodes.Patch(t.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))(t)
		var n *v1beta1.StorageNode
		wait.Until(r, "the status of the changed spec", func() bool { n = r.node(); return n.Generation > 1 && n.Status.ObservedGeneration == n.Generation })
		expectGeneration(t, n)
	})
}

// expectGeneration fails unless a status and all its conditions are about the object's generation.
func expectGeneration(t *testing.T, n *v1beta1.StorageNode) {
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
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				var mu sync.Mutex
				lacks := errors.New("the kernel has no client")
				lacking := func() (string, error) { mu.Lock(); defer mu.Unlock(); return reason, lacks }
				r.change = func(c *Config) {
					if c.SharedVolumes = lacking; condition != v1beta1.SharedVolumesCondition {
						c.SharedVolumes, c.CephVolumes = nil, map[string]func() (string, error){condition: lacking}
					}
				}
				r.begin()
				is := func(status metav1.ConditionStatus, reason, message string) func() bool {
					return func() bool {
						c := meta.FindStatusCondition(r.node().Status.Conditions, condition)
						return c != nil && c.Status == status && c.Reason == reason && c.Message == message
					}
				}
				wait.Until(r, "what it lacks", is(metav1.ConditionFalse, reason, lacks.Error()))
				if !meta.IsStatusConditionTrue(r.node().Status.Conditions, v1beta1.ReadyCondition) {
					t.Error("for want of that, it is not ready")
				}
				mu.Lock()
				lacks = nil
				mu.Unlock()
				wait.Until(r, "what it has by now", is(metav1.ConditionTrue, v1beta1.ReasonReady, ""))
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
		a.addresses(nil)
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
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var mu sync.Mutex
		addresses, failure := []string{"10.0.0.7", "10.9.8.1"}, error(nil)
		r.change = func(c *Config) {
			c.Addresses = func() ([]string, error) { mu.Lock(); defer mu.Unlock(); return slices.Clone(addresses), failure }
		}
		r.begin()
		wait.Until(r, "the addresses", func() bool { return slices.Equal(r.node().Status.Addresses, []string{"10.0.0.7", "10.9.8.1"}) })
		mu.Lock()
		addresses = append(addresses, "fd00::1")
		mu.Unlock()
		r.agent.node.change()
		wait.Until(r, "a new one", func() bool { return len(r.node().Status.Addresses) == 3 })
		mu.Lock()
		addresses, failure = nil, errors.New("no network")
		mu.Unlock()
		r.ask("a")
		wait.Until(r, "other news", func() bool { p := r.node().Status.Pools; return len(p) == 1 && p[0].Volumes == 1 })
		if got := r.node().Status.Addresses; len(got) != 3 {
			t.Errorf("while the addresses are not known, %v are reported", got)
		}
		// As an API server does whose kind is of the release before.
		mu.Lock()
		addresses, failure = []string{"10.0.0.8"}, nil
		mu.Unlock()
		r.agent.node.change()
		wait.Until(r, "another one", func() bool { return slices.Equal(r.node().Status.Addresses, []string{"10.0.0.8"}) })
		wait.Until(r, "the loss of it", func() bool {
			n := r.node()
			n.Status.Addresses = nil
			_, err := r.nodes.UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
			return err == nil
		})
		r.agent.node.change()
		wait.Until(r, "the addresses to be reported again", func() bool { return slices.Equal(r.node().Status.Addresses, []string{"10.0.0.8"}) })
	})
}

func TestStorageNode_FailingPoolKeepsItsLastCapacityAndReportsTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		r.host.set(func() { r.host.broken = fmt.Errorf("%w: /srv/memory is not mounted", backend.ErrUnavailable) })
		wait.Until(r, "the message", func() bool { return r.node().Status.Pools[0].Message != "" })
		s := r.node().Status
		if s.Pools[0].Capacity.Value() != 1<<40 || s.Columns.Pools != "0/1" {
			t.Errorf("it says %+v", s)
		}
		expectCondition(t, s.Conditions, v1beta1.ReadyCondition, metav1.ConditionFalse, v1beta1.ReasonPoolFailing)
		r.restart() // the numbers are those of the object now
		if got := r.node().Status.Pools[0].Capacity.Value(); got != 1<<40 {
			t.Errorf("after a restart the pool has %d bytes", got)
		}
		r.host.set(func() { r.host.broken = nil })
		wait.Until(r, "the pool back", func() bool { return r.node().Status.Pools[0].Message == "" })
		expectCondition(t, r.node().Status.Conditions, v1beta1.ReadyCondition, metav1.ConditionTrue, v1beta1.ReasonReady)
	})
}

func TestStorageNode_NeedsNoPoolWhereThereAreCephPools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.change = func(c *Config) {
			c.Pools, c.CephVolumes = nil, map[string]func() (string, error){v1beta1.RBDVolumesCondition: func() (string, error) { return "", nil }}
		}
		r.begin()
		wait.Until(r, "its report", func() bool {
			return meta.IsStatusConditionTrue(r.node().Status.Conditions, v1beta1.RBDVolumesCondition)
		})
		expectCondition(t, r.node().Status.Conditions, v1beta1.ReadyCondition, metav1.ConditionTrue, v1beta1.ReasonReady)
	})
}

func TestStorageNode_WarnsOfAKeyThatIsRefusedWhileThePoolIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		warning := func() *metav1.Condition {
			return meta.FindStatusCondition(r.node().Status.Conditions, v1beta1.KeyRefusedCondition)
		}
		wait.Until(r, "its report", func() bool { return meta.IsStatusConditionTrue(r.node().Status.Conditions, v1beta1.ReadyCondition) })
		if warning() != nil {
			t.Errorf("without a reason it warns: %v", warning())
		}
		r.host.set(func() { r.host.warns = errors.New("Ceph refuses client.a") })
		wait.Until(r, "the warning", func() bool {
			c := warning()
			return c != nil && c.Status == metav1.ConditionTrue && c.Message == "Ceph refuses client.a"
		})
		r.expectEvent("KeyRefused")
		if n := r.node(); !meta.IsStatusConditionTrue(n.Status.Conditions, v1beta1.ReadyCondition) || n.Status.Pools[0].Message != "" {
			t.Errorf("the pool cannot be used any more: %+v", n.Status)
		}
		r.ask("a")
		r.phase("a", v1beta1.PhaseReady)
		r.host.set(func() { r.host.warns = nil })
		wait.Until(r, "the end of the warning", func() bool { c := warning(); return c.Status == metav1.ConditionFalse && c.Message == "" })
		r.expectEvent("KeyAccepted")
	})
}

func TestStorageNode_SaysThatNodesCannotUseAPoolInWhichVolumesAreMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		warning := func() *metav1.Condition {
			return meta.FindStatusCondition(r.node().Status.Conditions, v1beta1.NodeUserRefusedCondition)
		}
		wait.Until(r, "its report", func() bool { return meta.IsStatusConditionTrue(r.node().Status.Conditions, v1beta1.ReadyCondition) })
		if warning() != nil {
			t.Errorf("without a reason it warns: %v", warning())
		}
		r.host.set(func() { r.host.nodes = errors.New("Ceph refuses client.a-node") })
		wait.Until(r, "the warning", func() bool {
			c := warning()
			return c != nil && c.Status == metav1.ConditionTrue && c.Message == "Ceph refuses client.a-node"
		})
		r.expectEvent("NodeUserRefused")
		if meta.FindStatusCondition(r.node().Status.Conditions, v1beta1.KeyRefusedCondition) != nil {
			t.Error("the key of the pool is said to be refused, too")
		}
		r.ask("a")
		r.phase("a", v1beta1.PhaseReady)
		r.host.set(func() { r.host.nodes = nil })
		wait.Until(r, "the end of the warning", func() bool { c := warning(); return c.Status == metav1.ConditionFalse && c.Message == "" })
		r.expectEvent("NodeUserAccepted")
	})
}

func TestStorageNode_ReportsThatItHasNoPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.change = func(c *Config) { c.Pools = nil }
		r.begin()
		s := r.node().Status
		c := expectCondition(t, s.Conditions, v1beta1.ReadyCondition, metav1.ConditionFalse, v1beta1.ReasonNoPool)
		if len(s.Pools) != 0 || s.Columns.Pools != "0/0" || s.Version != "1.2.3" || !strings.Contains(c.Message, "nodeSelectorTerms") {
			t.Errorf("it says %+v", s)
		}
		r.change = nil
		r.restart() // a label gave it one
		wait.Until(r, "the pool", func() bool { return r.node().Status.Columns.Pools == "1/1" })
		expectCondition(t, r.node().Status.Conditions, v1beta1.ReadyCondition, metav1.ConditionTrue, v1beta1.ReasonReady)
	})
}

func TestStorageNode_IsWrittenOnlyOnChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		r.ask("a")
		r.phase("a", v1beta1.PhaseReady)
		wait.Until(r, "the count", func() bool { return r.node().Status.Pools[0].Volumes == 1 })
		r.api.Requests()
		from := r.host.count("list")
		wait.Until(r, "five surveys", func() bool { r.agent.node.change(); return r.host.count("list") >= from+5 })
		if n := r.api.Requests()["apply storagenodes/status"]; n > 0 {
			t.Errorf("it was written %d times without news", n)
		}
	})
}

func TestStorageNode_MarkedDeadOrDeletedIsReportedAliveAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.change = func(c *Config) { c.SurveyEvery = time.Hour }
		r.begin()
		wait.Until(r, "the mark", func() bool {
			n := r.node()
			n.Status.Conditions = []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionUnknown, Reason: v1beta1.ReasonNodeDown}}
			_, err := r.nodes.UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
			return err == nil
		})
		wait.Until(r, "a sign of life", func() bool { return !writtenOff(r.node().Status.Conditions) })
		check.OK(t, r.nodes.Delete(t.Context(), node, metav1.DeleteOptions{}))
		wait.Until(r, "a new record", func() bool { return len(r.node().Status.Pools) == 1 })
	})
}

func TestVolume_WrittenOffIsReadyAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.change = func(c *Config) { c.SurveyEvery = time.Hour }
		r.begin()
		r.ask("a")
		r.phase("a", v1beta1.PhaseReady)
		r.writeStatus("a", func(s *v1beta1.VolumeStatus) {
			s.Phase = v1beta1.PhaseLost
			s.Conditions[0] = metav1.Condition{Type: v1beta1.ReadyCondition, Status: metav1.ConditionUnknown, Reason: v1beta1.ReasonNodeGone}
		})
		v := r.phase("a", v1beta1.PhaseReady)
		expectCondition(t, v.Status.Conditions, v1beta1.ReadyCondition, metav1.ConditionTrue, v1beta1.ReasonReady)
	})
}

func TestStorageNode_WrongStatusIsCorrected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.begin()
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
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.begin()
		leases := r.leases.CoordinationV1().Leases(v1beta1.DefaultNamespace)
		renewed := func(what string, since time.Time) (at time.Time) {
			t.Helper()
			wait.Until(r, what, func() bool {
				l, err := leases.Get(t.Context(), v1beta1.LeasePrefix+node, metav1.GetOptions{})
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
		check.OK(t, leases.Delete(t.Context(), v1beta1.LeasePrefix+node, metav1.DeleteOptions{}))
		renewed("a new Lease", second)
		r.restart()
		renewed("the next agent's Lease", second)
	})
}

func TestAgent_BadConfigurationIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).begin()
		for what, change := range map[string]func(*Config){
			"no node":    func(c *Config) { c.Node = "" },
			"a bad node": func(c *Config) { c.Node = "Node_A" },
			"no backend": func(c *Config) { c.Backend = nil },
			"no client":  func(c *Config) { c.Client = nil },
		} {
			c := r.agent.Config
			change(&c)
			if _, err := New(c); err == nil {
				t.Errorf("%s: accepted", what)
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
