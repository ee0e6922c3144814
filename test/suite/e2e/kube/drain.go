package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/kube/podstatus"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// Drain keeps new pods off a node and evicts all that are there but those of DaemonSets, as kubectl drain does, and does
// not wait for their end. The end of the test lets pods onto the node again.
func (s *Space) Drain(node string) {
	s.t.Helper()
	s.Cordon(node)
	pods := check.Got(s.Client.CoreV1().Pods("").List(s.t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node}))(s.t)
	for _, p := range pods.Items {
		if owner := metav1.GetControllerOf(&p); owner == nil || owner.Kind != "DaemonSet" {
			s.Evict(p.Namespace, p.Name)
		}
	}
}

// Cordon keeps new pods off a node, and returns what lets them onto it again. The end of the test does if the test has not.
func (s *Space) Cordon(node string) (uncordon func()) {
	s.t.Helper()
	set := func(ctx context.Context, unschedulable bool) error {
		patch := fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, unschedulable)
		_, err := s.Client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	s.t.Cleanup(func() { check.Report(s.t, set(context.WithoutCancel(s.t.Context()), false)) })
	check.OK(s.t, set(s.t.Context(), true))
	return func() {
		s.t.Helper()
		check.OK(s.t, set(s.t.Context(), false))
	}
}

// Evict asks for a pod's end in the way that minds disruption budgets, again and again while one forbids it.
func (s *Space) Evict(namespace, pod string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), Patience)
	defer cancel()
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: namespace}}
	for {
		err := s.Client.CoreV1().Pods(namespace).EvictV1(ctx, eviction)
		switch {
		case err == nil, apierrors.IsNotFound(err):
			return
		case !apierrors.IsTooManyRequests(err):
			s.t.Fatalf("eviction of pod %s/%s: %v", namespace, pod, err)
		}
		select {
		case <-ctx.Done():
			s.t.Fatalf("eviction of pod %s/%s: %v", namespace, pod, errors.Join(ctx.Err(), err))
		case <-time.After(again):
		}
	}
}

// NodePod waits until Holdfast's pod on a node is ready, and is not the one with the given UID, and returns it.
func (s *Space) NodePod(node string, not types.UID) *corev1.Pod {
	s.t.Helper()
	var found *corev1.Pod
	selector := metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=node", FieldSelector: "spec.nodeName=" + node}
	Await(s, s.Client.CoreV1().Pods(System), selector, "Holdfast's pod on "+node+" to be ready", func(pods []*corev1.Pod) (bool, error) {
		found = nil
		for _, p := range pods {
			if p.UID != not && podstatus.IsReady(p) {
				found = p
			}
		}
		return found != nil, nil
	})
	return found
}

// ReplaceNodePod has another of Holdfast's pods made on the node of this one, and waits until that is ready.
func (s *Space) ReplaceNodePod(pod *corev1.Pod) *corev1.Pod {
	s.t.Helper()
	exact := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	check.OK(s.t, s.Client.CoreV1().Pods(pod.Namespace).Delete(s.t.Context(), pod.Name, exact))
	return s.NodePod(pod.Spec.NodeName, pod.UID)
}

// OnHost runs a shell script in Holdfast's pod on a node, which sees the node's pools, mounts and loop devices, and
// returns what it printed.
func (s *Space) OnHost(node, script string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), Patience)
	defer cancel()
	return check.Got(s.ExecIn(ctx, System, s.NodePod(node, "").Name, "holdfast", "sh", "-ec", script))(s.t)
}
