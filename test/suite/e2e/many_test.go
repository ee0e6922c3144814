package e2e

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// class makes a storage class like the default one, but for what change does, and removes it with the test.
func class(t *testing.T, s *kube.Space, change ...func(*storagev1.StorageClass)) string {
	t.Helper()
	classes := s.Client.StorageV1().StorageClasses()
	c := check.Got(classes.Get(t.Context(), "holdfast", metav1.GetOptions{}))(t)
	c.ObjectMeta = metav1.ObjectMeta{GenerateName: s.Namespace + "-"}
	for _, change := range change {
		change(c)
	}
	made := check.Got(classes.Create(t.Context(), c, metav1.CreateOptions{}))(t)
	t.Cleanup(func() {
		check.Report(t, classes.Delete(context.WithoutCancel(t.Context()), made.Name, metav1.DeleteOptions{}))
	})
	return made.Name
}

// atOnce makes a class bind its claims before there is a pod.
func atOnce(c *storagev1.StorageClass) { c.VolumeBindingMode = new(storagev1.VolumeBindingImmediate) }

// onlyOn leaves a class some nodes.
func onlyOn(nodes ...string) func(*storagev1.StorageClass) {
	return func(c *storagev1.StorageClass) {
		c.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{
			{Key: "topology.holdfast.dev/node", Values: nodes},
		}}}
	}
}

// with sets a parameter of a class.
func with(key, value string) func(*storagev1.StorageClass) {
	return func(c *storagev1.StorageClass) { c.Parameters[key] = value }
}

// noVolumes waits until no volume of the test's claims is left as an object, which goes after it has gone from its disk.
func noVolumes(s *kube.Space) {
	kube.Await(s, s.Holdfast("volumes"), metav1.ListOptions{}, "the end of the volumes", func(all []*unstructured.Unstructured) (bool, error) {
		return !slices.ContainsFunc(all, func(v *unstructured.Unstructured) bool {
			of, _, _ := unstructured.NestedString(v.Object, "spec", "claimRef", "namespace")
			return of == s.Namespace
		}), nil
	})
}
