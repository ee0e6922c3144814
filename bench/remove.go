package bench

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Close removes the namespace, and waits until it and the volumes of its claims are gone. Its error names what is left
// and the command that removes it.
func (b *Bench) Close(ctx context.Context) error {
	defer b.watching.Wait()
	defer func() { b.stop() }()
	if b.namespace == "" {
		return nil
	}
	b.Log.Info("removing the namespace and the volumes of its claims", "namespace", b.namespace)
	err := b.remove(ctx)
	if err == nil {
		return nil
	}
	return fmt.Errorf("namespace %s is not removed completely: %w; to remove what is left: %s", b.namespace, err, b.command())
}

func (b *Bench) remove(ctx context.Context) error {
	if err := unlessGone(b.Client.CoreV1().Namespaces().Delete(ctx, b.namespace, metav1.DeleteOptions{})); err != nil {
		return err
	}
	if err := b.within(ctx, "the end of the namespace", func() (bool, error) { return b.seen.namespaceGone, nil }); err != nil {
		return err
	}
	// Volumes whose claims are deleted can still be patched to be deleted; no new ones are created by now.
	if err := b.release(ctx); err != nil {
		return err
	}
	return b.within(ctx, "the end of the volumes", func() (bool, error) { return len(b.seen.volumes) == 0, nil })
}

// unlessGone ignores that an object does not exist.
func unlessGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// command returns the command that deletes the objects whose deletion was not observed. If watches failed, it includes
// the namespace in any case.
func (b *Bench) command() string {
	var commands []string
	b.seen.read(func() {
		if !b.seen.namespaceGone || b.seen.blind != nil {
			commands = append(commands, "kubectl delete namespace "+b.namespace+" --ignore-not-found")
		}
		if len(b.seen.volumes) > 0 {
			commands = append(commands, "kubectl delete persistentvolume "+strings.Join(slices.Sorted(maps.Keys(b.seen.volumes)), " "))
		}
	})
	return strings.Join(commands, " && ")
}
