package kube

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// Nodes are the names of the nodes that are ready, in order; of a cluster that was given, those that take any pod.
func (c *Cluster) Nodes(t testing.TB) []string {
	t.Helper()
	nodes := check.Got(c.Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))(t)
	var names []string
	for _, node := range nodes.Items {
		if c.given && !takesPods(&node) {
			continue
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				names = append(names, node.Name)
			}
		}
	}
	return names
}

func takesPods(n *corev1.Node) bool {
	return !n.Spec.Unschedulable && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule })
}

// CutPower ends a node at once, with everything that it had not written to its disk, and returns what boots it again
// and waits until it is ready. The end of the test boots it if the test has not, or not with success.
func (s *Space) CutPower(node string) (boot func()) {
	s.t.Helper()
	s.NeedMachines("to cut the power of a node")
	off := true
	start := func(ctx context.Context) error {
		if !off {
			return nil
		}
		_, err := s.Do(ctx, "start-node", node)
		off = err != nil
		return err
	}
	s.t.Cleanup(func() { check.Report(s.t, start(context.WithoutCancel(s.t.Context()))) })
	check.Got(s.Do(s.t.Context(), "kill-node", node))(s.t)
	return func() {
		s.t.Helper()
		check.OK(s.t, start(s.t.Context()))
	}
}

// OutOfService is the taint by which an administrator says that a node is down for good.
const OutOfService = "node.kubernetes.io/out-of-service"

// DeclareOut puts the taint OutOfService on a node, and returns what takes it away. The end of the test takes it away if
// the test has not.
func (s *Space) DeclareOut(node string) (in func()) {
	s.t.Helper()
	return s.Taint(node, OutOfService, "nodeshutdown")
}

// Taint has all pods leave a node that do not tolerate it, and returns what takes the taint away. The end of the test
// takes it away if the test has not.
func (s *Space) Taint(node, key, value string) (off func()) {
	s.t.Helper()
	taint := corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffectNoExecute}
	s.t.Cleanup(func() { check.Report(s.t, s.setTaint(context.WithoutCancel(s.t.Context()), node, taint, false)) })
	check.OK(s.t, s.setTaint(s.t.Context(), node, taint, true))
	return func() {
		s.t.Helper()
		check.OK(s.t, s.setTaint(s.t.Context(), node, taint, false))
	}
}

func (s *Space) setTaint(ctx context.Context, node string, taint corev1.Taint, on bool) error {
	nodes := s.Client.CoreV1().Nodes()
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n, err := nodes.Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taint.Key })
		if on {
			n.Spec.Taints = append(n.Spec.Taints, taint)
		}
		_, err = nodes.Update(ctx, n, metav1.UpdateOptions{})
		return err
	})
}

// DeleteNode says that a node does not belong to the cluster any more. Its kubelet brings it back when it starts.
func (s *Space) DeleteNode(node string) {
	s.t.Helper()
	s.NeedMachines("to start the kubelet of a node that was deleted")
	check.OK(s.t, s.Client.CoreV1().Nodes().Delete(s.t.Context(), node, metav1.DeleteOptions{}))
}
