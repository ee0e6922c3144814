package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// Deletion has the options of a deletion.
type Deletion struct {
	// Reason is stored in the request.
	Reason string
	// Yes skips the confirmation.
	Yes bool
	// Namespace refuses what was made for a claim in another one. Empty: any.
	Namespace string
}

const longestReason = 1024

// DeleteVolume removes a volume with its data, unless a claim uses it.
func (a *Admin) DeleteVolume(ctx context.Context, name string, d Deletion) error {
	r, err := a.toDelete(ctx, volumes, name, d)
	if err != nil {
		return err
	}
	facts, err := a.volumeFacts(ctx, name)
	if err != nil {
		return err
	}
	all := []*record{r}
	if err := a.confirm(ctx, all, facts.lines, d); err != nil {
		return err
	}
	if facts, err = a.volumeFacts(ctx, name); err != nil { // it may have been adopted while the user was asked
		return err
	}
	before := a.trashBefore(ctx, r)
	if err := a.delete(ctx, volumes, all, d); err != nil {
		return err
	}
	if err := a.printDeleted(ctx, r, before); err != nil {
		return err
	}
	for _, pv := range facts.left {
		a.sayf("PersistentVolume %s still names it: kubectl delete persistentvolume %s", pv, pv)
	}
	return a.unsaid
}

// toDelete reads an object and checks all that can be checked before the confirmation.
func (a *Admin) toDelete(ctx context.Context, k kind, name string, d Deletion) (*record, error) {
	if n := utf8.RuneCountInString(d.Reason); n > longestReason {
		return nil, fmt.Errorf("the reason has %d characters; at most %d are kept", n, longestReason)
	}
	o, err := k.get(ctx, a.Holdfast, name)
	switch {
	case err != nil && k.name == volumes.name:
		return nil, a.absent(ctx, name, err)
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no snapshot %s: holdfast snapshots list shows those that exist", name)
	case err != nil:
		return nil, fmt.Errorf("snapshot %s could not be read: %w", name, err)
	}
	r := recordOf(o)
	if r.request != nil && !r.requested {
		return nil, fmt.Errorf("%s has a request to delete another object, of UID %s, which was copied with it and cannot be changed. "+
			"Forget the object, which leaves the data: kubectl delete %s.%s %s; it is written again without that request, and then can be deleted",
			r, r.request.UID, k.resource, v1beta1.GroupName, name)
	}
	if err := a.checkNamespace(ctx, r, d.Namespace); err != nil {
		return nil, err
	}
	return r, a.mayDelete(ctx, k.resource, name)
}

// checkNamespace fails unless a Volume, or the one that a Snapshot is a copy of, was made for a claim in that namespace.
func (a *Admin) checkNamespace(ctx context.Context, r *record, namespace string) error {
	if namespace == "" {
		return nil
	}
	claim := r.ClaimRef
	if r.SourceRef != nil {
		v, err := a.Holdfast.HoldfastV1beta1().Volumes().Get(ctx, r.SourceRef.Name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("volume %s, of which %s is a copy, could not be read, so the namespace of its claim is not known: %w", r.SourceRef.Name, r, err)
		}
		claim = v.Spec.ClaimRef
	}
	switch {
	case claim == nil:
		return fmt.Errorf("%s was made for no claim, so for none in namespace %s", r, namespace)
	case claim.Namespace != namespace:
		return fmt.Errorf("%s was made for claim %s, which is not in namespace %s", r, claim, namespace)
	}
	return nil
}

func (a *Admin) delete(ctx context.Context, k kind, all []*record, d Deletion) error {
	who, err := a.whoami(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := a.limited(ctx)
	defer cancel()
	for _, r := range all {
		if err := a.requestDeletion(ctx, k, r, who, d.Reason); err != nil {
			return err
		}
		err := k.remove(ctx, a.Holdfast, r.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &r.uid}})
		if kube.IgnoreGone(err) != nil { // deleted or replaced concurrently: the wait detects it
			return fmt.Errorf("the request to delete %s is on record, but the object could not be deleted; run this again: %w", r, err)
		}
	}
	for _, r := range all {
		if err := a.awaitGone(ctx, k, r); err != nil {
			return err
		}
	}
	return nil
}

// confirm shows what is going to be deleted, and makes the user type its name.
func (a *Admin) confirm(ctx context.Context, all []*record, lines []string, d Deletion) error {
	for _, r := range all {
		a.sayf("%s", describe(r))
	}
	for _, line := range lines {
		a.sayf("  %s", line)
	}
	if a.unsaid != nil || d.Yes {
		return a.unsaid
	}
	name := all[0].Name
	if a.Confirm == nil {
		return fmt.Errorf("%s is not deleted: there is no terminal to ask on; give --yes if you are sure", name)
	}
	answer, err := a.Confirm(ctx, fmt.Sprintf("Type %s to delete it with its data: ", name))
	if err != nil {
		return fmt.Errorf("%s is not deleted: %w", name, err)
	}
	if strings.TrimSpace(answer) != name {
		return fmt.Errorf("%s is not deleted: the answer was %.80q", name, answer)
	}
	return nil
}

func describe(r *record) string {
	text := fmt.Sprintf("%s: %s, %s used, on %s", r, size(r.Size), size(r.Used), r.Node)
	if r.Pool != "" {
		text += " in pool " + r.Pool
	}
	if r.SourceRef != nil {
		text += ", of volume " + r.SourceRef.Name
	}
	return fmt.Sprintf("%s, made %s, %s", text, stamp(r.made), r.Phase)
}

// requestDeletion writes the request with the user who makes it, unless the object has one.
func (a *Admin) requestDeletion(ctx context.Context, k kind, r *record, who, reason string) error {
	if r.requested {
		return nil
	}
	patch, err := v1beta1.NewDeletionRequest(r.uid, who, reason).MergePatch()
	if err != nil {
		return err
	}
	err = k.patch(ctx, a.Controller, r.Name, patch)
	switch {
	case apierrors.IsNotFound(err):
		return nil // already deleted
	case apierrors.IsConflict(err):
		return fmt.Errorf("%s was deleted and recreated as another object; look at it and run this again: %w", r, err)
	case err != nil:
		return a.explain(fmt.Errorf("the request to delete %s could not be written: %w", r, err))
	}
	return nil
}

func (a *Admin) awaitGone(ctx context.Context, k kind, r *record) error {
	err := a.follow(ctx, k.follow(a.Holdfast, r.Name), func(o runtime.Object) (bool, string, error) {
		if o == nil {
			return true, "", nil
		}
		now := recordOf(o)
		return false, fmt.Sprintf("%s removes %s (%s)", now.Node, now, now.Condition), r.notReplaced(o)
	})
	if errors.Is(err, errTimeout) {
		return fmt.Errorf("%w. The request stays, and is carried out when that is resolved", err)
	}
	return err
}

// notReplaced fails if the object of that name has another UID: an agent that does not carry out a request writes the
// object again.
func (r *record) notReplaced(o runtime.Object) error {
	if o == nil || recordOf(o).uid == r.uid {
		return nil
	}
	return fmt.Errorf("the request to delete %s was not carried out, and the object was written again: see the condition Protected of the StorageCluster "+
		"(kubectl describe storageclusters.holdfast.dev); when it is True, run this again", r)
}

// staysGone fails if one of the objects is written again, which takes an agent a moment.
func (a *Admin) staysGone(ctx context.Context, k kind, all ...*record) error {
	ctx, cancel := context.WithTimeoutCause(ctx, goneWait, errTimeout)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	for _, r := range all {
		g.Go(func() error {
			absent := false
			err := a.follow(ctx, k.follow(a.Holdfast, r.Name), func(o runtime.Object) (bool, string, error) {
				absent = o == nil
				return false, "", r.notReplaced(o)
			})
			if absent && errors.Is(err, errTimeout) {
				return nil
			}
			return err
		})
	}
	return g.Wait()
}

func (a *Admin) sayDeleted(r *record) { a.sayf("%s is deleted", strings.ToLower(r.kind)+" "+r.Name) }

// trashBefore returns when an earlier volume of that name was deleted; zero if the trash has none.
func (a *Admin) trashBefore(ctx context.Context, r *record) time.Time {
	n, err := a.Holdfast.HoldfastV1beta1().StorageNodes().Get(ctx, r.Node, metav1.GetOptions{})
	if err != nil || trashed(n, r.Name) == nil {
		return time.Time{} // an error only affects what is printed afterwards
	}
	return trashed(n, r.Name).DeletionTime.Time
}

// awaitTrash returns the entry of a deleted volume, or nil if the trash does not show it in time.
func (a *Admin) awaitTrash(ctx context.Context, r *record, before time.Time) (entry *v1beta1.TrashedVolume, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, trashWait, errTimeout)
	defer cancel()
	err = a.followNode(ctx, r.Node, func(n *v1beta1.StorageNode) (bool, string, error) {
		if n == nil {
			return true, "", nil
		}
		if t := trashed(n, r.Name); t != nil && !t.DeletionTime.Time.Equal(before) {
			entry = t
		}
		return entry != nil, "the trash of " + r.Node, nil
	})
	if errors.Is(err, errTimeout) {
		err = nil
	}
	return entry, err
}

// printDeleted prints that the volume is deleted, which its entry in the trash proves, and until when it can be restored.
func (a *Admin) printDeleted(ctx context.Context, r *record, before time.Time) error {
	entry, err := a.awaitTrash(ctx, r, before)
	if err != nil {
		return err
	}
	if entry == nil {
		if err := a.staysGone(ctx, volumes, r); err != nil {
			return err
		}
	}
	a.sayDeleted(r)
	if entry == nil {
		a.sayf("the trash of %s does not show it: where a pool keeps no trash, or needs the space, it is removed for good; "+
			"holdfast volumes trash shows what can be restored", r.Node)
		return nil
	}
	a.sayf("it is in the trash of %s until %s, or until its space is needed; to get it back: holdfast volumes restore %s",
		r.Node, stamp(entry.ExpirationTime.Time), r.Name)
	return nil
}
