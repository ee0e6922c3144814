package bench

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

const (
	waits     = storage.VolumeBindingWaitForFirstConsumer
	immediate = storage.VolumeBindingImmediate
	deletes   = core.PersistentVolumeReclaimDelete
	retains   = core.PersistentVolumeReclaimRetain
)

// inBubble runs a test with a simulated cluster in a synctest bubble, with simulated time.
func inBubble(t *testing.T, mode storage.VolumeBindingMode, policy core.PersistentVolumeReclaimPolicy, test func(t *testing.T, p *pretend)) {
	t.Helper()
	utilruntime.ErrorHandlers = nil //nolint:reassign // one sleeps until some time after the last error, even of another bubble
	synctest.Test(t, func(t *testing.T) { test(t, pretendCluster(t, mode, policy)) })
}

// inBoth does so with a class of each binding mode.
func inBoth(t *testing.T, test func(t *testing.T, p *pretend)) {
	t.Helper()
	for _, mode := range []storage.VolumeBindingMode{waits, immediate} {
		t.Run(string(mode), func(t *testing.T) { inBubble(t, mode, deletes, test) })
	}
}

// run measures and closes, and fails if anything of the run remains.
func (p *pretend) run(ctx context.Context, change func(*Config)) (*Result, error) {
	p.t.Helper()
	b := p.bench(change)
	result, err := b.Run(ctx)
	check.Report(p.t, b.Close(context.WithoutCancel(ctx)))
	p.empties()
	return result, err
}

func (p *pretend) bench(change func(*Config)) *Bench {
	p.t.Helper()
	c := config()
	c.Client = p
	change(&c)
	return check.Got(New(c))(p.t)
}

func (p *pretend) empties() {
	p.t.Helper()
	ctx := context.WithoutCancel(p.t.Context())
	namespaces := check.Got(p.CoreV1().Namespaces().List(ctx, metav1.ListOptions{}))(p.t)
	volumes := check.Got(p.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{}))(p.t)
	if len(namespaces.Items) > 0 || len(volumes.Items) != 1 || volumes.Items[0].Spec.PersistentVolumeReclaimPolicy != retains {
		p.t.Errorf("left are the namespaces %v and the volumes %v, and there should be the foreign one as it was", namespaces.Items, volumes.Items)
	}
}

func same(*Config) {}

// expect checks that an error has words, and that it ends with the last.
func expect(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil || !strings.HasSuffix(err.Error(), words[len(words)-1]) {
		t.Errorf("got %v, want an error that ends with %q", err, words[len(words)-1])
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
}

func TestRun_EveryMeasureOfALifeHasItsTime(t *testing.T) {
	const use = startTakes + mountTakes
	type mark struct {
		measure Measure
		takes   time.Duration
	}
	for _, test := range []struct {
		mode   storage.VolumeBindingMode
		atOnce []int
		want   []mark
	}{
		{waits, []int{1, 3}, []mark{
			{PlainPod, startTakes},
			{NewBound, bindTakes},
			{BoundRunning, use},
			{NewRunning, bindTakes + use},
			{BoundPod, use},
			{VolumeGone, removeTakes},
		}},
		{immediate, []int{30, 1}, []mark{{PlainPod, startTakes}, {ClaimBound, bindTakes}, {BoundPod, use}, {VolumeGone, removeTakes}}},
	} {
		inBubble(t, test.mode, deletes, func(t *testing.T, p *pretend) {
			result := check.Got(p.run(t.Context(), func(c *Config) { c.AtOnce, c.Repeat = test.atOnce, 5 }))(t)
			var got, want []string
			for _, n := range test.atOnce {
				samples := map[bool]int{true: 5, false: n}[n == 1]
				for _, m := range test.want {
					takes := seconds(m.takes)
					want = append(want, fmt.Sprint(n, m.measure, samples, takes, takes, takes))
				}
			}
			for _, m := range result.Measurements {
				got = append(got, fmt.Sprint(m.AtOnce, m.Measure, m.Samples, m.Min, m.P50, m.Max))
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %q\nwant %q", got, want)
			}
			if !result.Complete || len(result.Notes)+len(result.Warnings)+len(result.Failures) > 0 {
				t.Errorf("got %+v", result)
			}
			class := Class{"fast", "csi.example.com", test.mode, deletes}
			if result.Class != class || !slices.Equal(result.Cluster.Nodes, []string{"a", "b"}) {
				t.Errorf("the class is said to be %+v, on %v", result.Class, result.Cluster.Nodes)
			}
		})
	}
}

func TestRun_WarmUpUsesAPodOnEachNodeThatTakesPods(t *testing.T) {
	inBubble(t, immediate, deletes, func(t *testing.T, p *pretend) {
		var on []string
		p.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			pod := action.(clienttesting.CreateAction).GetObject().(*core.Pod)
			if pod.Spec.Affinity != nil {
				on = append(on, pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values...)
			}
			return false, nil, nil
		})
		check.Got(p.run(t.Context(), same))(t)
		if slices.Sort(on); !slices.Equal(on, []string{"a", "b"}) {
			t.Errorf("pods were bound to the nodes %v", on)
		}
	})
}

func TestRun_UnboundClaimIsNamedWithItsEvents(t *testing.T) {
	inBoth(t, func(t *testing.T, p *pretend) {
		// The first life is the warm-up, then two lives of one volume follow.
		p.stuck["claim-4-2"] = "no room in pool fast for claim-4-2"
		result, err := p.run(t.Context(), func(c *Config) { c.AtOnce = []int{1, 3, 5} })
		expect(t, err, "3 at once", "1m0s", "1 of 3 did not finish", ")")
		warned := Warning{"PersistentVolumeClaim", "ProvisioningFailed", "no room in pool fast for NAME", 1, 1}
		if result.Complete || !slices.Equal(result.Warnings, []Warning{warned}) {
			t.Errorf("complete %v, warnings %+v", result.Complete, result.Warnings)
		}
		if len(result.Failures) != 1 || !strings.HasSuffix(result.Failures[0].Name, "-4-2") {
			t.Fatalf("failed: %+v", result.Failures)
		}
		if reason := result.Failures[0].Reason; p.mode == immediate && reason != "ProvisioningFailed: no room in pool fast for claim-4-2" {
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
}

func TestRun_PodsThatFitNowhereAreExcludedAndCounted(t *testing.T) {
	inBoth(t, func(t *testing.T, p *pretend) {
		p.room = 4
		result := check.Got(p.run(t.Context(), func(c *Config) { c.AtOnce = []int{6} }))(t)
		for _, m := range result.Measurements {
			want := 4
			if m.Measure == ClaimBound || p.mode == immediate && m.Measure == VolumeGone {
				want = 6
			}
			if m.Samples != want {
				t.Errorf("%s has %d samples, want %d", m.Measure, m.Samples, want)
			}
		}
		notes := strings.Join(result.Notes, "; ")
		if !result.Complete || !strings.HasPrefix(notes, "2 of 6 pods without a claim found no room") || !strings.Contains(notes, "Too many pods") {
			t.Errorf("complete %v, the notes are %q", result.Complete, notes)
		}
	})
}

func TestRun_EndedPodFailsItWithoutWaiting(t *testing.T) {
	inBubble(t, waits, deletes, func(t *testing.T, p *pretend) {
		p.broken["plain-2-1"] = "no such command"
		begun := time.Now()
		result, err := p.run(t.Context(), func(c *Config) { c.Timeout = time.Hour })
		expect(t, err, "plain-2-1 (its container has ended with code 127: StartError: no such command)")
		if took := time.Since(begun); took >= time.Hour || len(result.Failures) != 1 {
			t.Errorf("after %v: %+v", took, result.Failures)
		}
	})
}

func TestRun_VolumesAreRemovedAndReportedThoughTheirClassRetains(t *testing.T) {
	inBubble(t, immediate, retains, func(t *testing.T, p *pretend) {
		result := check.Got(p.run(t.Context(), same))(t)
		if result.Class.ReclaimPolicy != "Retain" || len(result.Notes) != 1 || !strings.Contains(result.Notes[0], "retains") {
			t.Errorf("%+v, %q", result.Class, result.Notes)
		}
		if !slices.ContainsFunc(result.Measurements, func(m Measurement) bool { return m.Measure == VolumeGone }) {
			t.Error("the end of the volumes is not measured")
		}
		p.broken["bound-2-1"] = "no such command"
		if _, err := p.run(t.Context(), same); err == nil {
			t.Error("it has not failed")
		}
	})
}

func TestRun_InterruptedReportsKeepsItsFiguresAndIsRemoved(t *testing.T) {
	inBubble(t, waits, deletes, func(t *testing.T, p *pretend) {
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
	inBubble(t, waits, deletes, func(t *testing.T, p *pretend) {
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

func TestClose_FailureNamesTheCommandThatRemoves(t *testing.T) {
	t.Run("a volume that stays", func(t *testing.T) {
		inBubble(t, immediate, deletes, func(t *testing.T, p *pretend) {
			p.stuck["volume-of-claim-2-1"] = "never"
			b := p.bench(same)
			_, err := b.Run(t.Context())
			expect(t, err, "volumes of deleted claims", ")")
			expect(t, b.Close(t.Context()), "namespace holdfast-bench-x ", ": kubectl delete persistentvolume volume-of-claim-2-1")
		})
	})
	t.Run("interrupted", func(t *testing.T) {
		inBubble(t, immediate, deletes, func(t *testing.T, p *pretend) {
			p.PrependReactor("delete", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
			b := p.bench(same)
			check.Got(b.Run(t.Context()))(t)
			ctx, interrupt := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { interrupt(errors.New("terminated signal received")) })
			expect(t, b.Close(ctx), "terminated signal received", ": kubectl delete namespace holdfast-bench-x --ignore-not-found")
		})
	})
}

func TestRun_WithoutAWatchStillRemovesItsNamespace(t *testing.T) {
	for _, first := range []bool{false, true} {
		t.Run(fmt.Sprintf("its end is seen first: %v", first), func(t *testing.T) {
			inBubble(t, immediate, deletes, func(t *testing.T, p *pretend) {
				p.PrependWatchReactor("events", func(clienttesting.Action) (bool, watch.Interface, error) {
					return true, nil, errors.New("events are forbidden")
				})
				b := p.bench(same)
				_, err := b.Run(t.Context())
				expect(t, err, "watching events: events are forbidden")
				if first {
					check.OK(t, p.CoreV1().Namespaces().Delete(t.Context(), "holdfast-bench-x", metav1.DeleteOptions{}))
					synctest.Wait()
				}
				begun := time.Now()
				expect(t, b.Close(t.Context()), "kubectl delete namespace holdfast-bench-x --ignore-not-found")
				if time.Since(begun) >= time.Minute {
					t.Error("it waited for what it cannot see")
				}
				p.empties()
			})
		})
	}
}

func TestRun_ContinuesAfterAnInterruptionAndNotesIt(t *testing.T) {
	inBubble(t, immediate, deletes, func(t *testing.T, p *pretend) {
		watches := 0
		p.PrependWatchReactor("pods", func(action clienttesting.Action) (bool, watch.Interface, error) {
			watches++
			if watches > 1 {
				return watches < 5, nil, errors.New("busy")
			}
			w, err := p.Tracker().Watch(core.SchemeGroupVersion.WithResource("pods"), action.GetNamespace())
			time.AfterFunc(time.Second, w.Stop)
			return true, w, err
		})
		result := check.Got(p.run(t.Context(), same))(t)
		if len(result.Notes) != 1 || !strings.HasSuffix(result.Notes[0], "so some times are too long: watching pods: busy") || watches != 5 {
			t.Errorf("after %d watches the notes are %q", watches, result.Notes)
		}
	})
}

func TestWatch_ReportsWhatChangedThoughChangesWereLost(t *testing.T) {
	var reported []string
	r := reporter{cache.NewStore(cache.MetaNamespaceKeyFunc), func(o any, gone bool) {
		reported = append(reported, map[bool]string{true: "-"}[gone]+o.(*core.Pod).Name)
	}}
	pod := func(name string) any { return &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	err := errors.Join(r.Replace([]any{pod("a"), pod("b")}, "1"), r.Add(pod("c")), r.Update(pod("b")), r.Delete(pod("c")))
	check.OK(t, errors.Join(err, r.Replace([]any{pod("b"), pod("d")}, "2")))
	if want := []string{"a", "b", "c", "b", "-c", "b", "d", "-a"}; !slices.Equal(reported, want) {
		t.Errorf("got %v, want %v", reported, want)
	}
	s := newSeen("here")
	s.opening["pods"] = true
	for _, watching := range []bool{false, true, false} { // a list, a watch, and a list again
		s.reached("pods", watching, nil)
	}
	if s.blind != nil || s.interrupted == nil || s.interrupted.Error() != "watching pods: changes were lost" {
		t.Errorf("got %v and %v", s.blind, s.interrupted)
	}
}

// pages is a list of volumes in two pages, and a watch that adds one.
type pages struct{ requested []metav1.ListOptions }

func (p *pages) List(_ context.Context, o metav1.ListOptions) (*core.PersistentVolumeList, error) {
	p.requested = append(p.requested, o)
	if o.Continue != "" {
		return &core.PersistentVolumeList{Items: []core.PersistentVolume{*volumeWith("b")}}, nil
	}
	return &core.PersistentVolumeList{ListMeta: metav1.ListMeta{Continue: "a"}, Items: []core.PersistentVolume{*volumeWith("a")}}, nil
}

func (p *pages) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	w := watch.NewFakeWithChanSize(1, false)
	w.Add(volumeWith("c"))
	return w, nil
}

// volumeWith is a volume with all that events need, and more.
func volumeWith(name string) *core.PersistentVolume {
	v := needed(name)
	v.Annotations, v.ManagedFields = map[string]string{"by": "x"}, []metav1.ManagedFieldsEntry{{Manager: "x"}}
	v.Spec.CSI, v.Spec.MountOptions = &core.CSIPersistentVolumeSource{Driver: "x"}, []string{"ro"}
	return v
}

func needed(name string) *core.PersistentVolume {
	return &core.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, DeletionTimestamp: &metav1.Time{Time: time.Unix(1000, 0)}},
		Spec: core.PersistentVolumeSpec{
			ClaimRef: &core.ObjectReference{Namespace: "here", Name: "claim-" + name}, PersistentVolumeReclaimPolicy: retains,
		},
		Status: core.PersistentVolumeStatus{Phase: core.VolumeBound},
	}
}

func TestWatch_ListsVolumesInPagesAndKeepsOfThemWhatEventsNeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		b, from, kept := &Bench{seen: newSeen("here")}, &pages{}, []*core.PersistentVolume(nil)
		follow(ctx, b, "volumes", "", from, func(v *core.PersistentVolume, _ bool, _ time.Time) { kept = append(kept, v) })
		synctest.Wait()
		stop()
		b.watching.Wait()
		if want := []*core.PersistentVolume{needed("a"), needed("b"), needed("c")}; !reflect.DeepEqual(kept, want) {
			t.Errorf("got %+v, want %+v", kept, want)
		}
		for _, o := range from.requested {
			if o.Limit == 0 || o.ResourceVersion != "" {
				t.Errorf("a list was requested with %+v", o)
			}
		}
	})
}

func TestRun_ImpossibleMeasurementIsRefusedBeforeAnythingIsCreated(t *testing.T) {
	for _, test := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.StorageClass = "slow" }, `no storage class "slow"`},
		{func(c *Config) { c.StorageClass = "by-hand" }, "makes no volumes"},
		{func(c *Config) { c.Node = "c" }, `node "c"`},
		{func(c *Config) { c.Node = "cordoned" }, "takes no pods"},
	} {
		inBubble(t, waits, deletes, func(t *testing.T, p *pretend) {
			check.OK(t, p.Tracker().Add(&storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}, Provisioner: noProvisioner}))
			result, err := p.run(t.Context(), test.change)
			if result != nil || err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %+v, %v, want %s", result, err, test.want)
			}
		})
	}
}
