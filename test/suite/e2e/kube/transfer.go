package kube

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// copies selects what Holdfast has in its own namespace while it copies a volume into another pool.
var copies = metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=volume-copy"}

// CopyPod waits until a pod that copies a volume runs that is another than one of before, and returns it.
func (s *Space) CopyPod(before types.UID) *corev1.Pod {
	s.t.Helper()
	running := func(p *corev1.Pod) bool {
		return p.UID != before && len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Running != nil
	}
	all := Await(s, s.Client.CoreV1().Pods(System), copies, "a pod that copies", func(all []*corev1.Pod) (bool, error) {
		return slices.ContainsFunc(all, running), nil
	})
	return all[slices.IndexFunc(all, running)]
}

// EndCopyPod deletes a pod that copies a volume, as a drain does.
func (s *Space) EndCopyPod(p *corev1.Pod) {
	s.t.Helper()
	check.OK(s.t, s.Client.CoreV1().Pods(p.Namespace).Delete(s.t.Context(), p.Name, metav1.DeleteOptions{}))
}

// NothingCopied waits until nothing is left of any copy but the volumes.
func (s *Space) NothingCopied() {
	s.t.Helper()
	AwaitNone(s, s.Client.CoreV1().Pods(System), copies, "the pods that copy")
	AwaitNone(s, s.Client.CoreV1().PersistentVolumeClaims(System), copies, "the claims of copies")
	AwaitNone(s, s.Client.CoreV1().PersistentVolumes(), copies, "the PersistentVolumes of copies")
}
