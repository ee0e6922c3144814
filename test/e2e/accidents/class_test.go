package accidents

import (
	"context"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// class makes a class for one of the test's claims, named after both.
func (p *precious) class(claim, provisioner string, parameters ...string) {
	p.t.Helper()
	c := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: p.Namespace + "-" + claim},
		Provisioner: provisioner, Parameters: map[string]string{},
		VolumeBindingMode: new(storagev1.VolumeBindingImmediate),
	}
	for i := 0; i+1 < len(parameters); i += 2 {
		c.Parameters[parameters[i]] = parameters[i+1]
	}
	classes := p.Client.StorageV1().StorageClasses()
	if _, err := classes.Create(p.t.Context(), c, metav1.CreateOptions{}); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if err := classes.Delete(context.WithoutCancel(p.t.Context()), c.Name, metav1.DeleteOptions{}); err != nil {
			p.t.Error(err)
		}
	})
}
