package apply

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestSet_WithoutRequiredFieldsOrOfOneNamespaceAndAllIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		complete := Config{Client: r.client, Resources: r.discover, Name: "test", InventoryNamespace: namespace}
		both := complete
		both.Namespace, both.Everywhere = namespace, true
		for name, c := range map[string]Config{"nothing": {}, "neither": complete, "both": both} {
			if _, err := New(c); err == nil {
				t.Errorf("%s was taken", name)
			}
		}
	})
}

func TestApply_UnchangedObjectCostsNoRequest(t *testing.T) {
	started(t, func(t *testing.T, r *rig) {
		all := list(configMap("a", "1"), configMap("b", "1"), class("fast", "x"))
		if out := r.apply(all...); len(out.Changed) != 3 {
			t.Errorf("changed were %v", out.Changed)
		}
		r.api.Requests()
		for range 3 { // the cache may lag behind at first
			r.apply(configMap("a", "1"), configMap("b", "1"), class("fast", "x"))
		}
		for _, o := range all {
			r.seen(o)
		}
		r.apply(configMap("a", "1"), configMap("b", "1"), class("fast", "x"))
		r.edit(all[0], `{"metadata":{"labels":{"team":"a"},"annotations":{"seen":"yes"}},"status":{"x":"y"}}`) // fields that the Set does not own
		r.seen(all[0])
		r.api.Requests()
		r.apply(configMap("a", "1"), configMap("b", "1"), class("fast", "x"))
		if n := r.writes(); n != 0 {
			t.Errorf("%d requests", n)
		}
		if out := r.apply(configMap("a", "2"), configMap("b", "1"), class("fast", "x")); len(out.Changed) != 1 || out.Changed[0].Name != "a" {
			t.Errorf("changed were %v", out.Changed)
		}
		if n := r.writes(); n != 1 {
			t.Errorf("%d requests for one change", n)
		}
	})
}

func TestApply_StaleCacheRepeatsNothing(t *testing.T) {
	started(t, func(t *testing.T, r *rig) {
		r.apply(configMap("a", "1"))
		r.seen(configMap("a", "1"))
		release := r.api.HoldWatches()
		r.apply(configMap("a", "2"))
		r.apply(configMap("new", "1"))
		r.api.Requests()
		r.apply(configMap("a", "2"))
		if out := r.apply(configMap("new", "1")); out.Again == 0 {
			t.Error("it does not look again whether the cache has it")
		}
		if n := r.writes(); n != 0 {
			t.Errorf("%d requests", n)
		}
		if got := r.set.Get(RefOf(configMap("a", ""))); got.Object["data"].(map[string]any)["key"] != "2" {
			t.Error("an old state is shown")
		}
		release()
		r.seen(configMap("new", "1"))
	})
}

func TestApply_EditsAndDeletionsAreReportedAndRepaired(t *testing.T) {
	started(t, func(t *testing.T, r *rig) {
		o := configMap("a", "1")
		r.apply(o)
		r.seen(o)
		for _, edit := range []string{
			`{"data":{"key":"hacked"}}`, `{"data":null}`, `{"metadata":{"labels":{"app.kubernetes.io/instance":null}}}`,
		} {
			r.mu.Lock()
			r.notified = nil
			r.mu.Unlock()
			r.edit(o, edit)
			wait.Until(r, "the news of "+edit, func() bool { return r.wasNotified(RefOf(o)) })
			r.apply(configMap("a", "1"))
			live := r.live(o)
			data, _ := live.Object["data"].(map[string]any)
			if data["key"] != "1" || live.GetLabels()[ManagedByLabel] != FieldManager || live.GetLabels()[InstanceLabel] != "holdfast" {
				t.Errorf("after %s: %v", edit, live)
			}
			r.seen(o)
		}
		r.mu.Lock()
		r.notified = nil
		r.mu.Unlock()
		check.OK(t, r.of(configMaps).Delete(t.Context(), "a", metav1.DeleteOptions{}))
		wait.Until(r, "the news of the deletion", func() bool { return r.wasNotified(RefOf(o)) })
		r.apply(configMap("a", "1"))
		if r.live(o) == nil {
			t.Error("it was not made again")
		}
	})
}

func TestApply_ForeignObjectOfTheNameIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		theirs := class("fast", "other.example")
		theirs.SetLabels(nil)
		check.Got(r.of(classes).Create(t.Context(), theirs, metav1.CreateOptions{}))(t)
		r.start()
		out := r.set.Apply(t.Context(), list(class("fast", "x"), class("other", "x"), configMap("a", "1")))
		if len(out.Failures) != 1 || !errors.Is(out.Failures[0], ErrForeign) || out.Failures[0].Name != "fast" || !strings.Contains(out.Err().Error(), "StorageClass fast") {
			t.Errorf("failures: %v", out.Failures)
		}
		if live := r.live(theirs); live.Object["provisioner"] != "other.example" {
			t.Error("it was changed")
		}
		if r.live(class("other", "")) == nil || r.live(configMap("a", "")) == nil {
			t.Error("it kept others from being made")
		}
		r.set.Prune(t.Context(), func(*unstructured.Unstructured) bool { return false })
		if r.live(theirs) == nil {
			t.Error("it was pruned")
		}
		// The label hands the object over.
		r.edit(theirs, `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"holdfast-operator"}}}`)
		r.apply(class("fast", "x"))
		if live := r.live(theirs); live.Object["provisioner"] != "x" {
			t.Error("it was not taken over")
		}
	})
}

func TestApply_SparedObjectIsJudgedWhenItWouldBeOverwritten(t *testing.T) {
	started(t, func(t *testing.T, r *rig) {
		o := configMap("a", "1")
		r.apply(o)
		r.seen(o)
		spared := Spared{RefOf(o): func(live *unstructured.Unstructured) bool { return live.GetLabels()["theirs"] != "" }}
		apply := func() Outcome {
			out := r.set.ApplySparing(t.Context(), list(configMap("a", "2"), configMap("b", "2")), spared)
			check.Report(t, out.Err())
			return out
		}
		release := r.api.HoldWatches()
		r.edit(o, `{"metadata":{"labels":{"theirs":"yes"}}}`)
		if out := apply(); out.Again == 0 {
			t.Error("an object that changed during the apply is not applied again")
		}
		release()
		r.seen(o)
		r.seen(configMap("b", "2"))
		if out := apply(); out.Again != 0 || len(out.Changed) != 0 {
			t.Errorf("of what is spared and what is there already came %+v", out)
		}
		value := func(o *unstructured.Unstructured) any { return r.live(o).Object["data"].(map[string]any)["key"] }
		if value(o) != "1" || value(configMap("b", "")) != "2" {
			t.Errorf("a has %v, b %v", value(o), value(configMap("b", "")))
		}
		r.edit(o, `{"metadata":{"labels":{"theirs":null}}}`)
		r.seen(o)
		apply()
		if value(o) != "2" {
			t.Error("it is spared for ever")
		}
	})
}

func TestApply_ObjectWithAUIDIsChangedAndNeverCreated(t *testing.T) {
	for name, hold := range map[string]bool{"that the cache has": true, "that the cache has no longer": false} {
		t.Run(name, func(t *testing.T) {
			started(t, func(t *testing.T, r *rig) {
				o := configMap("a", "1")
				r.apply(o)
				r.seen(o)
				next := func(value string) *unstructured.Unstructured {
					o := configMap("a", value)
					o.SetUID("of the one that is there")
					return o
				}
				if out := r.apply(next("2")); len(out.Changed) != 1 || r.live(o).Object["data"].(map[string]any)["key"] != "2" {
					t.Errorf("its change ended as %+v", out)
				}
				if out := r.apply(next("2")); len(out.Changed) != 0 {
					t.Errorf("without a change it ended as %+v", out)
				}
				release := func() {}
				if hold {
					release = r.api.HoldWatches()
				}
				defer release()
				check.OK(t, r.of(o.GroupVersionKind()).Delete(t.Context(), "a", metav1.DeleteOptions{}))
				if !hold {
					wait.Until(r, "its deletion being known", func() bool { return r.set.Get(RefOf(o)) == nil })
				}
				if out := r.apply(next("3")); len(out.Changed) != 0 || hold && out.Again == 0 {
					t.Errorf("it ended as %+v", out)
				}
				if r.live(o) != nil {
					t.Error("it was created again")
				}
				if out := r.apply(configMap("a", "3")); !hold && (len(out.Changed) != 1 || r.live(o) == nil) {
					t.Errorf("without a UID it ended as %+v", out)
				}
			})
		})
	}
}

func TestPrune_DeletesOnlyLabelledObjectsThatAreNotDesired(t *testing.T) {
	started(t, func(t *testing.T, r *rig) {
		marked := configMap("marked", "1")
		marked.SetLabels(map[string]string{ManagedByLabel: FieldManager, v1beta1.PartOfLabel: v1beta1.AppName})
		foreign := configMap("foreign", "1")
		foreign.SetLabels(map[string]string{InstanceLabel: "holdfast"})
		for _, o := range list(marked, foreign) {
			check.Got(r.of(o.GroupVersionKind()).Create(t.Context(), o, metav1.CreateOptions{}))(t)
		}
		r.apply(configMap("old", "1"), class("old", "x"))
		wanted := list(configMap("new", "1"), class("new", "x"))
		r.apply(wanted...)
		for _, o := range append(wanted, marked, configMap("old", ""), class("old", "")) {
			r.seen(o)
		}
		out := r.set.Prune(t.Context(), Keeping(wanted))
		var gone []string
		for _, ref := range out.Changed {
			gone = append(gone, ref.String())
		}
		slices.Sort(gone)
		if got := strings.Join(gone, ", "); got != "ConfigMap old, StorageClass old" || len(out.Failures) > 0 {
			t.Errorf("pruned were %s; failures %v", got, out.Failures)
		}
		for _, o := range append(wanted, marked, foreign) {
			if r.live(o) == nil {
				t.Errorf("%s is gone", o.GetName())
			}
		}
	})
}

// Helm deletes a release's objects by their label, and adopts objects that have it.
func TestApply_WhatHelmHasInstalledStaysHelms(t *testing.T) {
	started(t, func(t *testing.T, r *rig) {
		installed := configMap("installed", "0")
		rights := configMap("rights", "1")
		for _, o := range list(installed, rights) {
			o.SetLabels(map[string]string{ManagedByLabel: "Helm", v1beta1.PartOfLabel: v1beta1.AppName, "app.kubernetes.io/name": "holdfast"})
			o.SetAnnotations(map[string]string{"meta.helm.sh/release-name": "holdfast"})
			check.Got(r.of(o.GroupVersionKind()).Create(t.Context(), o, metav1.CreateOptions{}))(t)
			r.seen(o)
		}
		r.edit(installed, `{"metadata":{"labels":{"`+ManagedByLabel+`":"`+FieldManager+`"}}}`) // as an earlier release created it
		r.seen(installed)
		mark := object(configMaps, "rights", nil)
		mark.SetLabels(map[string]string{ManagedByLabel: FieldManager, v1beta1.PartOfLabel: v1beta1.AppName})
		for range 2 {
			r.apply(configMap("installed", "1"))
			check.OK(t, r.set.Mark(t.Context(), list(mark)).Err())
			for _, o := range list(installed, rights) {
				if by := r.live(o).GetLabels()[ManagedByLabel]; by != "Helm" {
					t.Errorf("%s is managed by %s", o.GetName(), by)
				}
				r.seen(o)
			}
		}
		if value := r.live(installed).Object["data"].(map[string]any)["key"]; value != "1" {
			t.Errorf("it holds %v", value)
		}
		r.api.Requests()
		r.apply(configMap("installed", "1"))
		r.set.Mark(t.Context(), list(mark))
		if n := r.writes(); n != 0 {
			t.Errorf("%d requests for an unchanged object", n)
		}
	})
}

func TestMark_ChangesExistingObjectsAndCreatesNone(t *testing.T) {
	started(t, func(t *testing.T, r *rig) {
		installed := configMap("installed", "1")
		installed.SetLabels(nil)
		check.Got(r.of(configMaps).Create(t.Context(), installed, metav1.CreateOptions{}))(t)
		mark := func(name string) *unstructured.Unstructured {
			o := object(configMaps, name, nil)
			o.SetLabels(map[string]string{ManagedByLabel: FieldManager, v1beta1.PartOfLabel: v1beta1.AppName})
			o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "X", Name: "x", UID: "1"}})
			return o
		}
		marks := list(mark("installed"), mark("missing"))
		check.OK(t, r.set.Mark(t.Context(), marks).Err())
		live := r.live(installed)
		if len(live.GetOwnerReferences()) != 1 || live.Object["data"].(map[string]any)["key"] != "1" {
			t.Errorf("it is %v", live)
		}
		if r.live(mark("missing")) != nil {
			t.Error("a mark made an object")
		}
		r.seen(installed)
		r.api.Requests()
		r.set.Mark(t.Context(), marks)
		if n := r.writes(); n != 0 {
			t.Errorf("%d requests for marks that are there, or cannot be", n)
		}
		r.edit(installed, `{"metadata":{"ownerReferences":null}}`)
		r.seen(installed)
		r.set.Mark(t.Context(), marks)
		if len(r.live(installed).GetOwnerReferences()) != 1 {
			t.Error("a mark that was removed is not put back")
		}
	})
}

// late runs a function after the API server has executed a write and before the response arrives.
type late struct {
	next  http.RoundTripper
	after func()
}

func (l *late) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(req)
	if req.Method == http.MethodPatch && strings.HasSuffix(req.URL.Path, "/a") && l.after != nil {
		l.after()
	}
	return resp, err
}

func TestApply_ObjectDeletedBeforeTheResponseIsRepairedAtOnce(t *testing.T) {
	for _, how := range []string{"unlabelled", "deleted"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				answers, config := &late{}, r.api.Config()
				config.Wrap(func(next http.RoundTripper) http.RoundTripper { answers.next = next; return answers })
				others := r.client
				r.client = dynamic.NewForConfigOrDie(config)
				r.start()
				r.client = others
				o, apply := configMap("a", "1"), r.set.Apply
				if how == "unlabelled" {
					apply = r.set.Mark
					found := o.DeepCopy()
					found.SetLabels(nil)
					check.Got(r.of(configMaps).Create(t.Context(), found, metav1.CreateOptions{}))(t)
				}
				answers.after = func() {
					answers.after = nil
					wait.Until(r, "the news of the object", func() bool { return r.wasNotified(RefOf(o)) })
					if how == "unlabelled" {
						r.edit(o, `{"metadata":{"labels":{"`+ManagedByLabel+`":null}}}`)
					} else if err := r.of(configMaps).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
						t.Error(err)
					}
					wait.Until(r, "the news of its end", func() bool { return r.wasNotified(RefOf(o)) })
				}
				apply(t.Context(), list(o))
				if out := apply(t.Context(), list(o)); len(out.Changed) != 1 || r.live(o) == nil || !isHoldfasts(r.live(o)) {
					t.Errorf("changed: %v, %v; it is %v", out.Changed, out.Err(), r.live(o))
				}
			})
		})
	}
}

func TestApply_EarlierOfTwoRequeueTimesCounts(t *testing.T) {
	for _, c := range []struct{ one, other, want time.Duration }{{0, 0, 0}, {5, 0, 5}, {0, 7, 7}, {5, 7, 5}, {7, 5, 5}} {
		if got := (Outcome{Again: c.one}).And(Outcome{Again: c.other}).Again; got != c.want {
			t.Errorf("%d and %d: %d, want %d", c.one, c.other, got, c.want)
		}
	}
}

func TestApply_ObjectThatOthersKeepChangingIsNotFoughtOverForever(t *testing.T) {
	started(t, func(t *testing.T, r *rig) {
		o := configMap("a", "1")
		r.apply(o)
		var contested *ContestedError
		for range repairBurst + 10 {
			r.edit(o, `{"data":{"key":"theirs"}}`)
			r.seen(o)
			out := r.set.Apply(t.Context(), list(configMap("a", "1")))
			if errors.As(out.Err(), &contested) {
				if out.Again <= 0 {
					t.Error("it is not tried again")
				}
				break
			}
			r.seen(o)
		}
		if contested == nil {
			t.Fatal("it goes on at full speed")
		}
		// A change of the spec is applied at once all the same.
		if out := r.set.Apply(t.Context(), list(configMap("a", "2"))); out.Err() != nil {
			t.Error(out.Err())
		}
	})
}

func TestApply_TerminatingObjectIsNotWritten(t *testing.T) {
	started(t, func(t *testing.T, r *rig) {
		o := configMap("a", "1")
		o.SetFinalizers([]string{"example.com/hold"})
		check.Got(r.of(configMaps).Create(t.Context(), o, metav1.CreateOptions{}))(t)
		check.OK(t, r.of(configMaps).Delete(t.Context(), "a", metav1.DeleteOptions{}))
		r.seen(o)
		if out := r.set.Apply(t.Context(), list(configMap("a", "2"))); !errors.Is(out.Err(), ErrLeaving) {
			t.Errorf("got %v", out.Err())
		}
		r.edit(o, `{"metadata":{"finalizers":null}}`)
		r.seen(o)
		r.apply(configMap("a", "2"))
	})
}

func TestSet_KindLearnedLaterIsAppliedAndForgottenKindIsDropped(t *testing.T) {
	started(t, func(t *testing.T, r *rig) {
		volume := object(learned, "v", map[string]any{"spec": map[string]any{"x": "y"}})
		if out := r.set.Apply(t.Context(), list(volume)); !errors.Is(out.Err(), ErrUnknownKind) {
			t.Errorf("got %v", out.Err())
		}
		definition := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "volumes.holdfast.dev"},
			"spec":   map[string]any{"group": "holdfast.dev", "names": map[string]any{"kind": "Volume"}},
			"status": map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}},
		}}
		definitions := r.client.Resource(kube.Definitions)
		check.Got(definitions.Create(t.Context(), definition, metav1.CreateOptions{}))(t)
		wait.Never(r, "a kind that is defined, and not served yet,", time.Minute, func() bool { return r.set.Has(learned.GroupKind()) })
		r.serve("holdfast.dev/v1beta1", metav1.APIResource{Name: "volumes", Kind: "Volume"})
		wait.Until(r, "the kind", func() bool { return r.set.Has(learned.GroupKind()) && r.wasNotified(Ref{}) })
		r.apply(volume)
		check.OK(t, definitions.Delete(t.Context(), "volumes.holdfast.dev", metav1.DeleteOptions{}))
		wait.Until(r, "the end of the kind", func() bool { return !r.set.Has(learned.GroupKind()) && r.wasNotified(Ref{}) })
		if r.set.Get(RefOf(volume)) != nil {
			t.Error("an object of a kind that is gone is shown")
		}
		if r.set.Has(schema.GroupKind{Kind: "ConfigMap"}) == false {
			t.Error("a kind that is built in was given up")
		}
	})
}
