package bench

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// The volumeBindingModes.
const (
	waits     = storage.VolumeBindingWaitForFirstConsumer
	immediate = storage.VolumeBindingImmediate
)

// inBubble runs a test with a simulated cluster in a synctest bubble, with simulated time.
func inBubble(t *testing.T, mode storage.VolumeBindingMode, policy core.PersistentVolumeReclaimPolicy, test func(t *testing.T, p *pretend)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, pretendCluster(t, mode, policy)) })
}

// run measures and closes, and fails if anything of the run remains.
func (p *pretend) run(ctx context.Context, change func(*Config)) (*Result, error) {
	p.t.Helper()
	b := p.bench(change)
	result, err := b.Run(ctx)
	if err := b.Close(context.WithoutCancel(ctx)); err != nil {
		p.t.Errorf("removing: %v", err)
	}
	p.empties()
	return result, err
}

func (p *pretend) bench(change func(*Config)) *Bench {
	p.t.Helper()
	c := config()
	c.Client = p
	change(&c)
	b := check.Got(New(c))(p.t)
	return b
}

func (p *pretend) empties() {
	p.t.Helper()
	ctx := context.WithoutCancel(p.t.Context())
	namespaces, err := p.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	p.check(err)
	volumes, err := p.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	p.check(err)
	if len(namespaces.Items) > 0 || len(volumes.Items) != 1 || volumes.Items[0].Spec.PersistentVolumeReclaimPolicy != core.PersistentVolumeReclaimRetain {
		p.t.Errorf("left are the namespaces %v and the volumes %v, and there should be the foreign one as it was", namespaces.Items, volumes.Items)
	}
}

func same(*Config) {}

// figure is the expected measurement.
type figure struct {
	measure Measure
	atOnce  int
	samples int
	each    time.Duration
}

func expect(t *testing.T, r *Result, want []figure) {
	t.Helper()
	var got []figure
	for _, m := range r.Measurements {
		got = append(got, figure{m.Measure, m.AtOnce, m.Samples, time.Duration(m.P50 * Seconds(time.Second)).Round(time.Microsecond)})
		if m.Min != m.Max {
			t.Errorf("%s of %d: %s to %s, in a cluster where all take as long", m.Measure, m.AtOnce, m.Min, m.Max)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestRun_WaitingClassIsMeasuredThroughAllThreeMarks(t *testing.T) {
	inBubble(t, waits, core.PersistentVolumeReclaimDelete, func(t *testing.T, p *pretend) {
		result := check.Got(p.run(t.Context(), same))(t)
		var want []figure
		for _, n := range []struct{ atOnce, samples int }{{1, 2}, {3, 3}} {
			want = append(want,
				figure{PlainPod, n.atOnce, n.samples, startTakes},
				figure{NewBound, n.atOnce, n.samples, bindTakes},
				figure{BoundRunning, n.atOnce, n.samples, startTakes + mountTakes},
				figure{NewRunning, n.atOnce, n.samples, bindTakes + startTakes + mountTakes},
				figure{BoundPod, n.atOnce, n.samples, startTakes + mountTakes},
				figure{VolumeGone, n.atOnce, n.samples, removeTakes})
		}
		expect(t, result, want)
		if !result.Complete || len(result.Notes)+len(result.Warnings)+len(result.Failures) > 0 {
			t.Errorf("got %+v", result)
		}
		if c := result.Class; c != (Class{"fast", "csi.example.com", "WaitForFirstConsumer", "Delete"}) {
			t.Errorf("the class is said to be %+v", c)
		}
		if !slices.Equal(result.Cluster.Nodes, []string{"a", "b"}) {
			t.Errorf("pods may be on %v, and one node is cordoned", result.Cluster.Nodes)
		}
	})
}

func TestRun_ImmediateClassIsMeasuredWithoutAPod(t *testing.T) {
	inBubble(t, immediate, core.PersistentVolumeReclaimDelete, func(t *testing.T, p *pretend) {
		result := check.Got(p.run(t.Context(), func(c *Config) { c.AtOnce, c.Repeat = []int{30, 1}, 5 }))(t)
		var want []figure
		for _, n := range []struct{ atOnce, samples int }{{30, 30}, {1, 5}} {
			want = append(want,
				figure{PlainPod, n.atOnce, n.samples, startTakes},
				figure{ClaimBound, n.atOnce, n.samples, bindTakes},
				figure{BoundPod, n.atOnce, n.samples, startTakes + mountTakes},
				figure{VolumeGone, n.atOnce, n.samples, removeTakes})
		}
		expect(t, result, want)
	})
}

func TestRun_WarmUpUsesAPodOnEachNodeAndIsNotCounted(t *testing.T) {
	inBubble(t, immediate, core.PersistentVolumeReclaimDelete, func(t *testing.T, p *pretend) {
		var on []string
		watching, err := p.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{})
		p.check(err)
		go func() {
			for e := range watching.ResultChan() {
				if pod := e.Object.(*core.Pod); e.Type == "ADDED" && pod.Spec.Affinity != nil {
					on = append(on, pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values...)
				}
			}
		}()
		result, err := p.run(t.Context(), func(c *Config) { c.AtOnce, c.Repeat = []int{1}, 1 })
		watching.Stop()
		synctest.Wait()
		if err != nil || !slices.Equal(slices.Sorted(slices.Values(on)), []string{"a", "b"}) {
			t.Errorf("pods were bound to the nodes %v, %v", on, err)
		}
		for _, m := range result.Measurements {
			if m.Samples != 1 {
				t.Errorf("%s has %d samples", m.Measure, m.Samples)
			}
		}
	})
}

func TestRun_UnboundClaimIsNamedWithItsEvents(t *testing.T) {
	for name, mode := range map[string]storage.VolumeBindingMode{"at once": immediate, "with a pod": waits} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, mode, core.PersistentVolumeReclaimDelete, func(t *testing.T, p *pretend) {
				// The first life is the warm-up, then two lives of one volume follow.
				p.stuck["claim-4-2"] = "no room in pool fast for claim-4-2"
				result, err := p.run(t.Context(), func(c *Config) { c.AtOnce = []int{1, 3, 5} })
				if err == nil || !strings.Contains(err.Error(), "3 at once") || !strings.Contains(err.Error(), "1 of 3 did not finish") || !strings.Contains(err.Error(), "1m0s") {
					t.Errorf("the error is %v", err)
				}
				warned := Warning{"PersistentVolumeClaim", "ProvisioningFailed", "no room in pool fast for NAME", 1, 1}
				if result.Complete || !slices.Equal(result.Warnings, []Warning{warned}) {
					t.Errorf("complete %v, warnings %+v", result.Complete, result.Warnings)
				}
				if len(result.Failures) != 1 || !strings.HasSuffix(result.Failures[0].Name, "-4-2") {
					t.Fatalf("failed: %+v", result.Failures)
				}
				if reason := result.Failures[0].Reason; mode == immediate && reason != "ProvisioningFailed: no room in pool fast for claim-4-2" {
					t.Errorf("the reason is %q", reason)
				}
				for _, m := range result.Measurements {
					if m.AtOnce == 5 {
						t.Error("it went on after the failure")
					}
					if m.AtOnce == 3 && (m.Measure == ClaimBound || m.Measure == NewRunning) && m.Samples != 2 {
						t.Errorf("%d of the two that were bound count", m.Samples)
					}
				}
			})
		})
	}
}

func TestRun_PodsThatFitNowhereAreExcludedAndCounted(t *testing.T) {
	for name, mode := range map[string]storage.VolumeBindingMode{"at once": immediate, "with a pod": waits} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, mode, core.PersistentVolumeReclaimDelete, func(t *testing.T, p *pretend) {
				p.room = 4
				result, err := p.run(t.Context(), func(c *Config) { c.AtOnce = []int{6} })
				if err != nil || !result.Complete {
					t.Fatalf("complete %v: %v", result.Complete, err)
				}
				for _, m := range result.Measurements {
					want := 4
					if m.Measure == ClaimBound || mode == immediate && m.Measure == VolumeGone {
						want = 6
					}
					if m.Samples != want {
						t.Errorf("%s has %d samples, want %d", m.Measure, m.Samples, want)
					}
				}
				if len(result.Notes) == 0 || !strings.HasPrefix(result.Notes[0], "2 of 6 pods without a claim found no room") || !strings.Contains(result.Notes[0], "Too many pods") {
					t.Errorf("the notes are %q", result.Notes)
				}
			})
		})
	}
}

func TestRun_EndedPodFailsItWithoutWaiting(t *testing.T) {
	inBubble(t, waits, core.PersistentVolumeReclaimDelete, func(t *testing.T, p *pretend) {
		p.broken["plain-2-1"] = "StartError"
		begun := time.Now()
		result, err := p.run(t.Context(), func(c *Config) { c.Timeout = time.Hour })
		if err == nil || !strings.Contains(err.Error(), "plain-2-1 (its container has ended with code 127: StartError)") {
			t.Errorf("the error is %v", err)
		}
		if took := time.Since(begun); took >= time.Hour || len(result.Failures) != 1 {
			t.Errorf("after %v: %+v", took, result.Failures)
		}
	})
}

func TestRun_VolumesOfARetainingClassAreRemovedAndReported(t *testing.T) {
	inBubble(t, immediate, core.PersistentVolumeReclaimRetain, func(t *testing.T, p *pretend) {
		result := check.Got(p.run(t.Context(), same))(t)
		if result.Class.ReclaimPolicy != "Retain" || len(result.Notes) != 1 || !strings.Contains(result.Notes[0], "retains") {
			t.Errorf("%+v, %q", result.Class, result.Notes)
		}
		if !slices.ContainsFunc(result.Measurements, func(m Measurement) bool { return m.Measure == VolumeGone }) {
			t.Error("the end of the volumes is not measured")
		}
	})
}

func TestRun_VolumesOfAFailedRunAreRemovedThoughTheirClassRetains(t *testing.T) {
	inBubble(t, immediate, core.PersistentVolumeReclaimRetain, func(t *testing.T, p *pretend) {
		p.broken["bound-2-1"] = "StartError"
		if _, err := p.run(t.Context(), same); err == nil {
			t.Error("it has not failed")
		}
	})
}

func TestRun_InterruptedReportsKeepsItsFiguresAndIsRemoved(t *testing.T) {
	inBubble(t, waits, core.PersistentVolumeReclaimDelete, func(t *testing.T, p *pretend) {
		ctx, interrupt := context.WithCancelCause(t.Context())
		// The warm-up and the first lives take less, and the last one never ends.
		p.stuck["new-4-1"] = "never"
		time.AfterFunc(30*time.Second, func() { interrupt(errors.New("interrupt signal received")) })
		result, err := p.run(ctx, same)
		if err == nil || err.Error() != "ended early: interrupt signal received" {
			t.Errorf("the error is %v", err)
		}
		if result.Complete || len(result.Measurements) == 0 || len(result.Failures) > 0 {
			t.Errorf("got %+v", result)
		}
	})
}

func TestRun_InterruptedWhileCreatedRemovesItsNamespace(t *testing.T) {
	inBubble(t, waits, core.PersistentVolumeReclaimDelete, func(t *testing.T, p *pretend) {
		ctx, interrupt := context.WithCancel(t.Context())
		p.PrependReactor("create", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
			interrupt()
			return false, nil, nil
		})
		if _, err := p.run(ctx, func(c *Config) { c.Client = hurried{p} }); err == nil {
			t.Error("it has measured")
		}
	})
}

// hurried is a client that does not observe a namespace whose creation was canceled.
type hurried struct{ kubernetes.Interface }

func (h hurried) CoreV1() corev1.CoreV1Interface { return hurriedCore{h.Interface.CoreV1()} }

type hurriedCore struct{ corev1.CoreV1Interface }

func (h hurriedCore) Namespaces() corev1.NamespaceInterface {
	return hurriedNamespaces{h.CoreV1Interface.Namespaces()}
}

type hurriedNamespaces struct{ corev1.NamespaceInterface }

func (h hurriedNamespaces) Create(ctx context.Context, n *core.Namespace, o metav1.CreateOptions) (*core.Namespace, error) {
	made, err := h.NamespaceInterface.Create(ctx, n, o)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return made, err
}

func TestRun_RemovalFailureNamesTheCommandThatRemoves(t *testing.T) {
	inBubble(t, immediate, core.PersistentVolumeReclaimDelete, func(t *testing.T, p *pretend) {
		p.stuck["volume-of-claim-2-1"] = "never"
		b := p.bench(same)
		if _, err := b.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "volumes of deleted claims") {
			t.Errorf("the run: %v", err)
		}
		err := b.Close(t.Context())
		if err == nil || !strings.Contains(err.Error(), "namespace holdfast-bench-x ") || !strings.HasSuffix(err.Error(), ": kubectl delete persistentvolume volume-of-claim-2-1") {
			t.Errorf("the removal: %v", err)
		}
	})
}

func TestRun_InterruptedRemovalNamesTheRemainingNamespace(t *testing.T) {
	inBubble(t, immediate, core.PersistentVolumeReclaimDelete, func(t *testing.T, p *pretend) {
		p.PrependReactor("delete", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
		b := p.bench(func(c *Config) { c.AtOnce, c.Repeat = []int{1}, 1 })
		check.Got(b.Run(t.Context()))(t)
		ctx, interrupt := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { interrupt(errors.New("terminated signal received")) })
		err := b.Close(ctx)
		if err == nil || !strings.Contains(err.Error(), "terminated signal received") || !strings.HasSuffix(err.Error(), ": kubectl delete namespace holdfast-bench-x --ignore-not-found") {
			t.Errorf("the removal: %v", err)
		}
	})
}

func TestRun_WithoutAWatchStillRemovesItsNamespace(t *testing.T) {
	for name, before := range map[string]func(t *testing.T, p *pretend){
		"its end comes last": func(*testing.T, *pretend) {},
		"its end is seen first": func(t *testing.T, p *pretend) {
			p.check(p.CoreV1().Namespaces().Delete(t.Context(), "holdfast-bench-x", metav1.DeleteOptions{}))
			synctest.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, immediate, core.PersistentVolumeReclaimDelete, func(t *testing.T, p *pretend) {
				p.PrependWatchReactor("events", func(clienttesting.Action) (bool, watch.Interface, error) {
					return true, nil, errors.New("events are forbidden")
				})
				b := p.bench(same)
				if _, err := b.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "events are forbidden") {
					t.Errorf("the run: %v", err)
				}
				before(t, p)
				begun := time.Now()
				if err := b.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "kubectl delete namespace holdfast-bench-x") {
					t.Errorf("the removal, which cannot be seen: %v", err)
				}
				if time.Since(begun) >= time.Minute {
					t.Error("it waited for what it cannot see")
				}
				p.empties()
			})
		})
	}
}

func TestRun_ImpossibleMeasurementIsRefusedBeforeAnythingIsCreated(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"a class that is not there":     {func(c *Config) { c.StorageClass = "slow" }, `no storage class "slow"`},
		"a class that makes no volumes": {func(c *Config) { c.StorageClass = "by-hand" }, "makes no volumes"},
		"a node that is not there":      {func(c *Config) { c.Node = "c" }, `node "c"`},
		"a node that takes no pods":     {func(c *Config) { c.Node = "cordoned" }, "takes no pods"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, waits, core.PersistentVolumeReclaimDelete, func(t *testing.T, p *pretend) {
				p.check(p.Tracker().Add(&storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}, Provisioner: noProvisioner}))
				result, err := p.run(t.Context(), test.change)
				if result != nil || err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %+v, %v", result, err)
				}
			})
		})
	}
}
