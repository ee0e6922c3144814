package volumecopy

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// watch queues a Volume that is populated when it, its temporary source or its pod changes. A temporary source whose Volume is
// gone queues that too.
func (r *Controller) watch() error {
	return errors.Join(
		r.loop.Watch(r.Storage.Watches.Holdfast.Holdfast().V1beta1().Volumes().Informer(), func(o any) []string { return concerned(o.(*v1beta1.Volume)) }),
		r.loop.Watch(r.Storage.Watches.Cluster.Core().V1().Pods().Informer(), func(o any) []string {
			if name := o.(metav1.Object).GetLabels()[v1beta1.CopyLabel]; name != "" {
				return []string{name}
			}
			return nil
		}),
	)
}

func concerned(v *v1beta1.Volume) []string {
	switch name := v.Spec.Labels[v1beta1.CopyLabel]; {
	case name != "" && isTemporary(v):
		return []string{name}
	case v.IsBeingPopulated(): // what is populated has nothing left
		return []string{v.Name}
	}
	return nil
}
