//go:build ceph

package cephsite

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// attach writes that a volume is attached to a node, as the controller does, and waits until the process says who has it open.
func (s *site) attach(volume, since string, isOpen bool) {
	s.Helper()
	const node = "no-node"
	volumes := s.holdfast.HoldfastV1beta1().Volumes()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q,%q:%q}}}`, v1beta1.AttachedAnnotation, node, v1beta1.AttachedSinceAnnotation, since)
	check.Got(volumes.Patch(s.Context(), volume, types.MergePatchType, patch, metav1.PatchOptions{}))(s)
	s.until(fmt.Sprintf("what it sees since %s, open: %v", since, isOpen), func() (bool, string) {
		v := check.Got(volumes.Get(s.Context(), volume, metav1.GetOptions{}))(s)
		seen := v.Status.Attached
		return seen != nil && seen.Node == node && seen.Since == since && (seen.Client != "") == isOpen, fmt.Sprintf("%+v", seen)
	})
}

func TestAttached_ClientOfNoNodeThatHasTheImageOpenIsNamed(t *testing.T) {
	s := newSite(t, v1beta1.EngineRBD)
	s.start()
	s.awaitReady()
	v := s.awaitVolume(s.request("a").Name, v1beta1.PhaseReady)
	s.attach(v.Name, "first", false)
	check.OK(t, s.useImage(v, func(file) error {
		s.attach(v.Name, "second", true)
		return nil
	}))
	s.attach(v.Name, "second", false) // it looks again by itself
}
