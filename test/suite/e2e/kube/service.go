package kube

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Service gives the pods with a label one address, whose port 80 is the given one of theirs.
func (s *Space) Service(name, key, value string, port int32) *corev1.Service {
	s.t.Helper()
	made, err := s.Client.CoreV1().Services(s.Namespace).Create(s.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{key: value},
			Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(port)}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatalf("service %s: %v", name, err)
	}
	return made
}
