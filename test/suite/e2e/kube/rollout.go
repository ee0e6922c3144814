package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	holdfast "github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/kube/podstatus"
)

// Eventually asks again and again, which is for states of several kinds of objects at once, until there is no error or
// ctx ends. Then the test fails with the last one.
func (s *Space) Eventually(ctx context.Context, what string, ask func(context.Context) error) bool {
	s.t.Helper()
	err := Until(ctx, ask)
	if err != nil {
		s.t.Errorf("waiting for %s: %v", what, err)
	}
	return err == nil
}

// Until asks again and again until there is no error, or ctx ends. Then it returns the last one.
func Until(ctx context.Context, ask func(context.Context) error) error {
	every := time.NewTicker(again)
	defer every.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-every.C:
		}
	}
}

// RolledOut says what of Holdfast does not run as its objects say. Node pods of before are ended: the DaemonSet leaves
// them until they are deleted, so that an update is a decision.
func (c *Cluster) RolledOut(ctx context.Context) error {
	d, err := c.Client.AppsV1().Deployments(System).Get(ctx, "holdfast-controller", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if n, now := *d.Spec.Replicas, d.Status; now.ObservedGeneration < d.Generation || now.Replicas != n || now.UpdatedReplicas != n || now.AvailableReplicas != n {
		return fmt.Errorf("of %d controllers, %d are new and %d of %d ready", n, now.UpdatedReplicas, now.AvailableReplicas, now.Replicas)
	}
	nodes, err := c.Client.AppsV1().DaemonSets(System).Get(ctx, "holdfast-node", metav1.GetOptions{})
	if err != nil {
		return err
	}
	n, now := nodes.Status.DesiredNumberScheduled, nodes.Status
	switch {
	case now.ObservedGeneration < nodes.Generation:
		return errors.New("the node pods are not looked at yet")
	case now.UpdatedNumberScheduled != n:
		return errors.Join(fmt.Errorf("of %d node pods, %d are new", n, now.UpdatedNumberScheduled), c.endOldNodePods(ctx))
	case now.NumberAvailable != n:
		return fmt.Errorf("of %d node pods, %d are ready", n, now.NumberAvailable)
	}
	return c.onlyReady(ctx)
}

// onlyReady names a pod of Holdfast that is ending or not ready.
func (c *Cluster) onlyReady(ctx context.Context) error {
	pods, err := c.Client.CoreV1().Pods(System).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=holdfast"})
	if err != nil {
		return err
	}
	for _, p := range pods.Items {
		if !podstatus.IsReady(&p) {
			return fmt.Errorf("pod %s is ending or not ready", p.Name)
		}
	}
	return nil
}

// endOldNodePods deletes the node pods that are not of the newest revision.
func (c *Cluster) endOldNodePods(ctx context.Context) error {
	revisions, err := c.Client.AppsV1().ControllerRevisions(System).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=node"})
	if err != nil {
		return err
	}
	newest, number := "", int64(-1)
	for _, r := range revisions.Items {
		if r.Revision > number {
			newest, number = r.Labels["controller-revision-hash"], r.Revision
		}
	}
	pods, err := c.Client.CoreV1().Pods(System).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=node"})
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil && p.Labels["controller-revision-hash"] != newest {
			exact := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}}
			errs = append(errs, holdfast.IgnoreNotFound(c.Client.CoreV1().Pods(System).Delete(ctx, p.Name, exact)))
		}
	}
	return errors.Join(errs...)
}
