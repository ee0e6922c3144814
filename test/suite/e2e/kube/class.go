package kube

import (
	"context"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// Class makes a class with some parameters, each a key and a value, that is named after the test, and returns its name. The
// end of the test deletes it.
func (s *Space) Class(name, provisioner string, parameters ...string) string {
	s.t.Helper()
	c := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: s.Namespace + "-" + name},
		Provisioner: provisioner, Parameters: map[string]string{},
		VolumeBindingMode: new(storagev1.VolumeBindingImmediate),
	}
	for i := 0; i+1 < len(parameters); i += 2 {
		c.Parameters[parameters[i]] = parameters[i+1]
	}
	classes := s.Client.StorageV1().StorageClasses()
	check.Got(classes.Create(s.t.Context(), c, metav1.CreateOptions{}))(s.t)
	s.t.Cleanup(func() {
		check.Report(s.t, classes.Delete(context.WithoutCancel(s.t.Context()), c.Name, metav1.DeleteOptions{}))
	})
	return c.Name
}
