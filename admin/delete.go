package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// Deletion has the options of a deletion.
type Deletion struct {
	// Reason is stored in the request.
	Reason string
	// Yes skips the confirmation.
	Yes bool
}

const longestReason = 1024

func (d Deletion) check() error {
	if n := utf8.RuneCountInString(d.Reason); n > longestReason {
		return fmt.Errorf("the reason has %d characters; at most %d are kept", n, longestReason)
	}
	return nil
}

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
	before := a.trashBefore(ctx, r)
	if err := a.delete(ctx, volumes, []*record{r}, facts.lines, d); err != nil {
		return err
	}
	if err := a.printTrash(ctx, r, before); err != nil {
		return err
	}
	for _, pv := range facts.left {
		if err := a.sayf("PersistentVolume %s still names it: kubectl delete persistentvolume %s", pv, pv); err != nil {
			return err
		}
	}
	return nil
}

// toDelete reads an object and checks all that can be checked before the confirmation.
func (a *Admin) toDelete(ctx context.Context, k kind, name string, d Deletion) (*record, error) {
	if err := errors.Join(checkName(strings.ToLower(k.name), name), d.check()); err != nil {
		return nil, err
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
	return r, a.mayDelete(ctx, k.resource, name)
}

// delete asks for a confirmation, writes the requests, deletes the objects, and waits until they are gone.
func (a *Admin) delete(ctx context.Context, k kind, all []*record, lines []string, d Deletion) error {
	if err := a.confirm(ctx, all, lines, d); err != nil {
		return err
	}
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
		err := k.remove(ctx, a.Holdfast, r.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &r.UID}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // deleted or replaced concurrently: the wait detects it
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
		if err := a.sayf("%s", describe(r)); err != nil {
			return err
		}
	}
	for _, line := range lines {
		if err := a.sayf("  %s", line); err != nil {
			return err
		}
	}
	if d.Yes {
		return nil
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
	text := fmt.Sprintf("%s: %s, %s used, on %s", r, size(v1beta1.Bytes(r.size)), size(v1beta1.Bytes(r.used)), r.node)
	if r.pool != "" {
		text += " in pool " + r.pool
	}
	if r.source != nil {
		text += ", of volume " + r.source.Name
	}
	return fmt.Sprintf("%s, made %s, %s", text, stamp(r.CreationTimestamp.Time), r.phase)
}

// requestDeletion writes the request with the user who makes it, unless the object has one.
func (a *Admin) requestDeletion(ctx context.Context, k kind, r *record, who, reason string) error {
	if r.requested {
		return nil
	}
	patch, err := v1beta1.NewDeletionRequest(r.UID, who, reason).MergePatch()
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
		return now.UID != r.UID, fmt.Sprintf("%s removes %s (%s)", now.node, now, now.condition()), nil
	})
	if errors.Is(err, errTimeout) {
		return fmt.Errorf("%w. The request stays, and is carried out when that is resolved", err)
	}
	if err != nil {
		return err
	}
	return a.sayf("%s is deleted", strings.ToLower(r.kind)+" "+r.Name)
}

// trashBefore returns when an earlier volume of that name was deleted; zero if the trash has none.
func (a *Admin) trashBefore(ctx context.Context, r *record) time.Time {
	n, err := a.Holdfast.HoldfastV1beta1().StorageNodes().Get(ctx, r.node, metav1.GetOptions{})
	if err != nil {
		return time.Time{} // it only affects what is printed afterwards
	}
	if t := trashed(n, r.Name); t != nil {
		return t.DeletionTime.Time
	}
	return time.Time{}
}

// printTrash prints until when the volume can be restored.
func (a *Admin) printTrash(ctx context.Context, r *record, before time.Time) error {
	ctx, cancel := context.WithTimeoutCause(ctx, a.TrashWait, errTimeout)
	defer cancel()
	var entry *v1beta1.TrashedVolume
	err := a.followNode(ctx, r.node, func(n *v1beta1.StorageNode) (bool, string, error) {
		if n != nil {
			entry = trashed(n, r.Name)
		}
		found := entry != nil && !entry.DeletionTime.Time.Equal(before)
		return found || n == nil, "the trash of " + r.node, nil
	})
	switch {
	case err != nil && !errors.Is(err, errTimeout):
		return err
	case err != nil || entry == nil:
		return a.sayf("the trash of %s does not show it: where a pool keeps no trash, or needs the space, it is removed for good; "+
			"holdfast volumes trash shows what can be restored", r.node)
	}
	return a.sayf("it is in the trash of %s until %s, or until its space is needed; to get it back: holdfast volumes restore %s",
		r.node, stamp(entry.ExpirationTime.Time), r.Name)
}
