package apply

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

var (
	// ErrForeign is the error about an object that has the name of a desired one and was created by another client. It is
	// not changed.
	ErrForeign = errors.New("it exists and was not created by Holdfast, so it is not changed: delete it or give the new one another name, " +
		"or give it to Holdfast with the label " + ManagedByLabel + "=" + FieldManager)
	// ErrLeaving is the error about an object that is being deleted. It is recreated afterwards.
	ErrLeaving = errors.New("it is being deleted and will be recreated when it is gone")
	// ErrUnknownKind is the error about an object whose kind the API server does not serve.
	ErrUnknownKind = errors.New("the API server does not know this kind")
)

// ContestedError is the error about an object that other clients change repeatedly.
type ContestedError struct{ By []string }

func (e *ContestedError) Error() string {
	return fmt.Sprintf("it is changed repeatedly by %s: configure that client not to change it", strings.Join(e.By, ", "))
}

// The rate limit of repairs of an object that other clients change: the burst, and the number per second.
const (
	repairBurst     = 30
	repairPerSecond = 0.2
)

type record struct {
	desired *unstructured.Unstructured
	result  *unstructured.Unstructured // the object as the API server returned it
	at      time.Time
	marked  bool
	repairs flowcontrol.PassiveRateLimiter
}

// contendedRetry is the delay before an object is checked again that another client was changing.
const contendedRetry = 100 * time.Millisecond

// cacheGrace is how long an applied object may be missing in the cache before it counts as deleted.
const cacheGrace = 10 * time.Second

// Outcome is the result of an Apply.
type Outcome struct {
	Changed  []Ref // created or repaired
	Failures []Failure
	// Again is the delay after which to apply again even if nothing changes; 0 means never.
	Again time.Duration
}

// Err joins the failures into one error.
func (o Outcome) Err() error {
	errs := make([]error, len(o.Failures))
	for i, f := range o.Failures {
		errs[i] = f
	}
	return errors.Join(errs...)
}

// And merges two outcomes.
func (o Outcome) And(other Outcome) Outcome {
	return Outcome{
		Changed: slices.Concat(o.Changed, other.Changed), Failures: slices.Concat(o.Failures, other.Failures),
		Again: kube.Sooner(o.Again, other.Again),
	}
}

// Apply applies the desired objects in the given order. A failure does not stop the others. Objects that are unchanged
// since their last apply cost no request. One with a UID is not created: it may have just been deleted.
func (s *Set) Apply(ctx context.Context, objects []*unstructured.Unstructured) Outcome {
	return s.applyAll(ctx, objects, nil, false)
}

// Spared has predicates of objects that must not be overwritten in some states. A predicate gets the object that would
// be overwritten; if another client changes it at that moment, it is not overwritten, and the next Apply decides again.
type Spared map[Ref]func(live *unstructured.Unstructured) bool

// ApplySparing is Apply except for objects whose predicate in spared returns true.
func (s *Set) ApplySparing(ctx context.Context, objects []*unstructured.Unstructured, spared Spared) Outcome {
	return s.applyAll(ctx, objects, spared, false)
}

// Mark applies metadata to objects of other clients. Objects that do not exist are not created.
func (s *Set) Mark(ctx context.Context, objects []*unstructured.Unstructured) Outcome {
	return s.applyAll(ctx, objects, nil, true)
}

// Refusal returns why the API server would refuse one of the objects for a field, and changes nothing. Objects that are
// as they were last applied cost no request. An err means that this is not known: the API server did not answer.
func (s *Set) Refusal(ctx context.Context, objects []*unstructured.Unstructured) (refusal, err error) {
	for _, o := range objects {
		a := &application{Set: s, desired: o, ref: RefOf(o)}
		if a.watch = s.watch(a.ref.GroupKind); a.watch == nil {
			continue
		}
		live, known := a.cached()
		a.keepHelmRelease(live)
		if known != nil && equalContent(known.desired, a.desired) {
			continue
		}
		// As a creation of one that exists, too: fields that cannot be changed are no reason, as it is replaced.
		_, err := a.client(s.Client, a.ref.Namespace).Create(ctx, a.desired, metav1.CreateOptions{FieldManager: FieldManager, DryRun: []string{metav1.DryRunAll}})
		var status apierrors.APIStatus
		switch {
		case err == nil:
		case !errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError || apierrors.IsTooManyRequests(err):
			return nil, Failure{a.ref, err}
		case namesField(status.Status()):
			return Failure{a.ref, err}, nil
		}
	}
	return nil, nil
}

// namesField says whether a value is not valid. What a policy denies concerns one object alone.
func namesField(status metav1.Status) bool {
	return status.Reason == metav1.StatusReasonInvalid && status.Details != nil &&
		slices.ContainsFunc(status.Details.Causes, func(c metav1.StatusCause) bool { return c.Field != "" })
}

func (s *Set) applyAll(ctx context.Context, objects []*unstructured.Unstructured, spared Spared, mark bool) (out Outcome) {
	if !mark {
		if err := s.recordPlanned(ctx, objects); err != nil {
			for _, o := range objects {
				out.Failures = append(out.Failures, Failure{RefOf(o), err})
			}
			return out
		}
		defer func() { out.Failures = append(out.Failures, s.recordApplied(ctx, objects, out.Failures)...) }()
	}
	for _, o := range objects {
		ref := RefOf(o)
		a := &application{Set: s, desired: withoutUID(o), ref: ref, mark: mark, exists: mark || o.GetUID() != "", spare: spared[ref]}
		changed, err := a.do(ctx)
		if ctx.Err() != nil {
			return out
		}
		one := Outcome{Again: a.again}
		if changed {
			one.Changed = []Ref{ref}
		}
		if err != nil {
			one.Failures = []Failure{{ref, err}}
		}
		out = out.And(one)
	}
	return out
}

func withoutUID(o *unstructured.Unstructured) *unstructured.Unstructured {
	if o.GetUID() == "" {
		return o
	}
	o = o.DeepCopy()
	unstructured.RemoveNestedField(o.Object, "metadata", "uid")
	return o
}

// recordPlanned records in the inventory which objects are about to be created.
func (s *Set) recordPlanned(ctx context.Context, objects []*unstructured.Unstructured) error {
	coming := map[Ref]types.UID{}
	for _, o := range objects {
		if r := RefOf(o); s.Has(r.GroupKind) && (s.Get(r) == nil || s.inventory.isNew(r)) {
			coming[r] = ""
		}
	}
	if len(coming) == 0 {
		return nil
	}
	return s.inventory.change(ctx, coming, nil)
}

// recordApplied records created objects in the inventory, and removes those that are deleted or belong to other
// clients.
func (s *Set) recordApplied(ctx context.Context, objects []*unstructured.Unstructured, failures []Failure) []Failure {
	if ctx.Err() != nil {
		return nil
	}
	made, foreign := map[Ref]types.UID{}, map[Ref]bool{}
	for _, o := range objects {
		if known := s.record(RefOf(o)); known != nil {
			made[RefOf(o)] = known.result.GetUID()
		}
	}
	for _, f := range failures {
		if errors.Is(f, ErrForeign) {
			delete(made, f.Ref)
			foreign[f.Ref] = true
		}
	}
	err := s.inventory.change(ctx, made, func(r Ref, uid types.UID) bool {
		w := s.watch(r.GroupKind)
		return foreign[r] || uid != "" && w != nil && w.get(r.NamespacedName) == nil && s.record(r) == nil
	})
	if err != nil {
		return []Failure{{RefTo("", "ConfigMap", s.InventoryNamespace, InventoryName), err}}
	}
	return nil
}

func (s *Set) record(r Ref) *record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records[r]
}

type application struct {
	*Set
	*watch
	ref     Ref
	desired *unstructured.Unstructured
	mark    bool
	exists  bool // it is not created
	spare   func(live *unstructured.Unstructured) bool
	again   time.Duration

	release *Release // nil if the object belongs to no Helm release
}

func (a *application) do(ctx context.Context) (changed bool, err error) {
	if a.watch = a.Set.watch(a.ref.GroupKind); a.watch == nil {
		return false, ErrUnknownKind
	}
	a.begins()
	defer a.ends()
	live, known := a.cached()
	a.keepHelmRelease(live)
	if live != nil && known != nil && known.upToDate(live, a.desired, a.mark) {
		return false, nil
	}
	if live == nil {
		if at, is := a.absent.Load(a.ref); is && a.mark && time.Since(at.(time.Time)) < absentFor {
			return false, nil
		}
		if live, err = a.read(ctx); err != nil || live == nil && a.exists {
			if err == nil && a.mark {
				a.absent.Store(a.ref, time.Now())
			}
			return false, err
		}
		a.keepHelmRelease(live)
	}
	if live != nil && a.spare != nil && a.spare(live) {
		return false, nil
	}
	if err := a.checkWritable(live, known); err != nil {
		return false, err
	}
	return a.createOrRepair(ctx, live, known)
}

// cached returns the object and the record of its last apply; the object of the record if the cache lags behind.
func (a *application) cached() (live *unstructured.Unstructured, known *record) {
	known, live = a.record(a.ref), a.get(a.ref.NamespacedName)
	switch {
	case live == nil && known != nil && time.Since(known.at) > cacheGrace:
		a.forget(a.ref, nil)
		return nil, nil
	case known != nil && (live == nil || older(live, known.result)):
		if live == nil {
			a.again = cacheGrace + time.Second
		}
		return known.result, known
	}
	return live, known
}

func (a *application) createOrRepair(ctx context.Context, live *unstructured.Unstructured, known *record) (changed bool, err error) {
	result, err := a.write(ctx, live)
	if (a.spare != nil || a.exists && !a.mark) && apierrors.IsConflict(err) {
		a.again = contendedRetry
		return false, nil
	}
	if err != nil {
		return false, err
	}
	a.remember(result, known)
	return live == nil || live.GetResourceVersion() != result.GetResourceVersion(), nil
}

// read reads the object from the API server: without our label it is not in the cache.
func (a *application) read(ctx context.Context) (*unstructured.Unstructured, error) {
	live, err := a.client(a.Client, a.ref.Namespace).Get(ctx, a.ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return live, err
}

func (a *application) checkWritable(live *unstructured.Unstructured, known *record) error {
	switch {
	case live == nil || a.mark:
		return nil
	case !isHoldfasts(live) && (a.Everywhere || !ofManifest(live)):
		return ErrForeign
	case live.GetDeletionTimestamp() != nil:
		return ErrLeaving
	case known != nil && equalContent(known.desired, a.desired) && !known.repairs.TryAccept():
		a.again = time.Duration(float64(time.Second) / repairPerSecond)
		return &ContestedError{By: others(live)}
	}
	return nil
}

// isHoldfasts returns whether an object may be written: it has our label, with which a user may have handed it over, or
// our managed fields, if the label was removed.
func isHoldfasts(o *unstructured.Unstructured) bool {
	return o.GetLabels()[ManagedByLabel] == FieldManager || slices.ContainsFunc(o.GetManagedFields(), isOurs)
}

// namedByUsers are kinds whose names users choose: an object of such a kind is not ours because of its labels.
var namedByUsers = map[string]bool{
	"StorageClass": true, "VolumeSnapshotClass": true, "VolumeGroupSnapshotClass": true,
	"Secret": true, "ConfigMap": true, "Service": true, "Ingress": true,
}

// ofManifest returns whether an object may come from the manifest of this or an earlier release.
func ofManifest(o *unstructured.Unstructured) bool {
	return !namedByUsers[o.GetKind()] && o.GetLabels()[v1beta1.NameLabel] == v1beta1.AppName
}

func isOurs(f metav1.ManagedFieldsEntry) bool { return isOf(f, FieldManager) }

// isOf returns whether an entry records what a manager has applied.
func isOf(f metav1.ManagedFieldsEntry, manager string) bool {
	return f.Manager == manager && f.Operation == metav1.ManagedFieldsOperationApply && f.Subresource == ""
}

// others returns the other managers that have written to an object.
func others(o *unstructured.Unstructured) []string {
	var all []string
	for _, f := range o.GetManagedFields() {
		if !isOurs(f) && f.Subresource == "" && !slices.Contains(all, f.Manager) {
			all = append(all, f.Manager)
		}
	}
	return all
}

func (a *application) write(ctx context.Context, live *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	desired := a.desired.DeepCopy()
	if a.exists {
		desired.SetUID(live.GetUID()) // the apply must fail, not create it, if it has just been deleted
	}
	if a.spare != nil && live != nil {
		desired.SetResourceVersion(live.GetResourceVersion())
	}
	result, err := a.apply(ctx, desired)
	switch {
	case a.mark:
		return result, err
	case err == nil && live != nil:
		return a.takeOver(ctx, result)
	case apierrors.IsInvalid(err) && live != nil:
		return a.replace(ctx, live, err)
	}
	return result, err
}

func (a *application) apply(ctx context.Context, desired *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if a.release == nil {
		return a.applyAs(ctx, FieldManager, desired)
	}
	rest := a.release.rest(desired)
	if !a.mark {
		rendered, err := a.applyAs(ctx, a.release.Manager, a.release.Rendered(desired))
		if err != nil {
			return nil, err
		}
		rest.SetLabels(nil)
		rest.SetUID(rendered.GetUID()) // the apply must fail, not create it without a spec, if it has just been deleted
	}
	return a.applyAs(ctx, FieldManager, rest)
}

func (a *application) applyAs(ctx context.Context, manager string, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return a.client(a.Client, a.ref.Namespace).Apply(ctx, a.ref.Name, o, metav1.ApplyOptions{FieldManager: manager, Force: true})
}

// manager returns the field manager that owns the content of the object.
func (a *application) manager() string {
	if a.release != nil {
		return a.release.Manager
	}
	return FieldManager
}

// absentFor is how long an object that Mark did not find is not looked up again.
const absentFor = 5 * time.Minute

func (a *application) begins() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.applying[a.ref] = nil
}

func (a *application) ends() {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.applying, a.ref)
}

// remember records an object as the API server returned it, unless its deletion was observed during the apply.
func (a *application) remember(result *unstructured.Unstructured, before *record) {
	r := &record{desired: a.desired.DeepCopy(), result: result, at: time.Now(), marked: a.mark}
	if before != nil {
		r.repairs = before.repairs
	} else {
		r.repairs = flowcontrol.NewTokenBucketPassiveRateLimiter(repairPerSecond, repairBurst)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if gone := a.applying[a.ref]; gone == nil || older(gone, result) {
		a.records[a.ref] = r
	}
}

// forget drops the record of an object, unless it is newer than the deleted state.
func (s *Set) forget(r Ref, last *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.records[r]; known != nil && (last == nil || !older(last, known.result)) {
		delete(s.records, r)
	}
	if _, applied := s.applying[r]; applied && last != nil {
		s.applying[r] = last
	}
}
