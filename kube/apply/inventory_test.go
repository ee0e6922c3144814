package apply

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// copyOf is what kubectl creates from an object that was read, with all its labels and fields.
func (r *rig) copyOf(o *unstructured.Unstructured, name string) *unstructured.Unstructured {
	r.Helper()
	made := r.live(o).DeepCopy()
	made.SetName(name)
	made.SetUID("")
	made.SetResourceVersion("")
	made.SetManagedFields(applied())
	made = check.Got(r.of(o.GroupVersionKind()).Create(r.Context(), made, metav1.CreateOptions{}))(r)
	r.seen(made)
	return made
}

// applied returns managed fields of an object that the operator has applied.
func applied() []metav1.ManagedFieldsEntry {
	return []metav1.ManagedFieldsEntry{{Manager: FieldManager, Operation: metav1.ManagedFieldsOperationApply}}
}

func nothing(*unstructured.Unstructured) bool { return false }

func TestPrune_LeavesCopiesAloneAndReportsEachOnce(t *testing.T) {
	started(t, func(t *testing.T, r *rig) {
		originals := list(configMap("a", "1"), class("fast", "x"))
		r.apply(originals...)
		var copies []*unstructured.Unstructured
		for _, o := range originals {
			copies = append(copies, r.copyOf(o, "copy"))
		}
		for range 2 {
			if out := r.set.Prune(t.Context(), Keeping(originals)); len(out.Changed) > 0 {
				t.Errorf("pruned were %v", out.Changed)
			}
		}
		for _, o := range copies {
			if r.live(o) == nil {
				t.Errorf("%s is gone", RefOf(o))
			}
			if err := r.set.Delete(t.Context(), o); err != nil || r.live(o) == nil {
				t.Errorf("%s is deleted, or %v", RefOf(o), err)
			}
		}
		r.mu.Lock()
		if len(r.strangers) != len(copies) {
			t.Errorf("reported are %v", r.strangers)
		}
		r.mu.Unlock()
		if listed := r.set.List(); len(listed) != len(originals) {
			t.Errorf("listed are %v", listed)
		}
		if out := r.set.Prune(t.Context(), nothing); len(out.Changed) != len(originals) {
			t.Errorf("of the originals were pruned %v", out.Changed)
		}
	})
}

func TestPrune_LeavesAForeignObjectUnderTheNameOfADeletedOne(t *testing.T) {
	started(t, func(t *testing.T, r *rig) {
		o := class("fast", "x")
		r.apply(o)
		r.seen(o)
		kept := r.live(o).DeepCopy()
		check.OK(t, r.of(classes).Delete(t.Context(), "fast", metav1.DeleteOptions{}))
		r.seen(o)
		kept.SetUID("")
		kept.SetResourceVersion("")
		kept.SetManagedFields(applied())
		check.Got(r.of(classes).Create(t.Context(), kept, metav1.CreateOptions{}))(t)
		r.seen(o)
		if r.set.Prune(t.Context(), nothing); r.live(o) == nil {
			t.Error("it is gone")
		}
	})
}

// The cache has the created object, and the API server already has another one of its name.
func TestPrune_DeletesExactlyTheObjectThatWasLookedAt(t *testing.T) {
	started(t, func(t *testing.T, r *rig) {
		o := class("fast", "x")
		r.apply(o)
		r.seen(o)
		release := r.api.HoldWatches()
		defer release()
		check.OK(t, r.of(classes).Delete(t.Context(), "fast", metav1.DeleteOptions{}))
		theirs := class("fast", "theirs")
		check.Got(r.of(classes).Create(t.Context(), theirs, metav1.CreateOptions{}))(t)
		out := r.set.Prune(t.Context(), nothing)
		if r.live(theirs) == nil || len(out.Failures) > 0 {
			t.Errorf("it was taken for the one that was there before; failures: %v", out.Failures)
		}
	})
}

func TestPrune_TakesWhatAProcessBeforeHasMade(t *testing.T) {
	started(t, func(t *testing.T, r *rig) {
		old := list(configMap("old", "1"), class("old", "x"))
		r.apply(old...)
		r.start()
		if out := r.set.Prune(t.Context(), nothing); len(out.Changed) != len(old) {
			t.Errorf("pruned were %v", out.Changed)
		}
	})
}

// mortal fails all requests once it has created a class.
type mortal struct {
	next http.RoundTripper
	dead bool
}

func (m *mortal) RoundTrip(req *http.Request) (*http.Response, error) {
	if m.dead && req.Method != http.MethodGet {
		return nil, http.ErrServerClosed
	}
	if req.Method == http.MethodPatch && strings.Contains(req.URL.Path, "/storageclasses/") {
		m.dead = true
	}
	return m.next.RoundTrip(req)
}

func TestPrune_TakesWhatAProcessHasMadeThatWasKilledBeforeItCouldSaySo(t *testing.T) {
	started(t, func(t *testing.T, r *rig) {
		r.apply(configMap("a", "1")) // the inventory exists
		config := r.api.Config()
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &mortal{next: next} })
		whole := r.client
		r.client = dynamic.NewForConfigOrDie(config)
		r.start()
		o := class("old", "x")
		if out := r.set.Apply(t.Context(), list(o)); len(out.Failures) == 0 {
			t.Fatal("it was not killed")
		}
		r.client = whole
		live := r.live(o)
		live.SetManagedFields(applied()) // as a real API server keeps them
		check.Got(r.of(classes).Update(t.Context(), live, metav1.UpdateOptions{}))(t)
		r.start()
		r.seen(o)
		if r.set.Prune(t.Context(), nothing); r.live(o) != nil {
			t.Error("it stays for ever")
		}
	})
}

func TestInventory_IsReadAsItWasWritten(t *testing.T) {
	i := &inventory{created: map[Ref]types.UID{RefOf(configMap("a", "")): "1", RefOf(class("fast", "")): ""}}
	read := parseInventory(i.text() + "a line of a later release with more words\n")
	if len(read) != len(i.created) {
		t.Fatalf("read was %v", read)
	}
	for r, uid := range i.created {
		if got, known := read[r]; !known || got != uid {
			t.Errorf("%v is %q, %t", r, got, known)
		}
	}
}
