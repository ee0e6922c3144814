package kube

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// ClaimOption changes a claim before it is made.
type ClaimOption func(*corev1.PersistentVolumeClaim)

// Block asks for a device instead of a file system.
func Block(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) }

// OfClass asks for another class than the default one.
func OfClass(class string) ClaimOption {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &class }
}

// Claim makes a claim of the default class for one node's pods; it is bound when the first pod uses it.
func (s *Space) Claim(name, size string, options ...ClaimOption) *corev1.PersistentVolumeClaim {
	s.t.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
			},
		},
	}
	for _, option := range options {
		option(claim)
	}
	return check.Got(s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Create(s.t.Context(), claim, metav1.CreateOptions{}))(s.t)
}

// Volume waits until a claim is bound and returns its volume.
func (s *Space) Volume(claim string) *corev1.PersistentVolume {
	s.t.Helper()
	bound := AwaitOne(s, s.Client.CoreV1().PersistentVolumeClaims(s.Namespace), claim, "to be bound",
		func(c *corev1.PersistentVolumeClaim) (bool, error) { return c.Status.Phase == corev1.ClaimBound, nil })
	return check.Got(s.Client.CoreV1().PersistentVolumes().Get(s.t.Context(), bound.Spec.VolumeName, metav1.GetOptions{}))(s.t)
}

// VolumeID is the name of the Volume of a PersistentVolume, through the driver or plain.
func VolumeID(pv *corev1.PersistentVolume) string {
	if pv.Spec.CSI != nil {
		return pv.Spec.CSI.VolumeHandle
	}
	return pv.Annotations["nfs.holdfast.dev/volume"]
}

// DeleteClaim deletes a claim and waits until it is gone.
func (s *Space) DeleteClaim(name string) {
	s.t.Helper()
	claims := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace)
	check.OK(s.t, claims.Delete(s.t.Context(), name, metav1.DeleteOptions{}))
	AwaitNone(s, claims, Named(name), "claim "+name)
}
