package bootstrap

import (
	"context"
	"fmt"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/operator/render"
)

// Image returns the image that this program runs from, which its pod says; "" where it runs in none.
func Image(ctx context.Context, kube kubernetes.Interface, namespace, pod string) (v1beta1.Image, error) {
	image, _, err := ImageAndSecrets(ctx, kube, namespace, pod)
	return image, err
}

// ImageAndSecrets is Image, with the secrets by which it was pulled.
func ImageAndSecrets(ctx context.Context, kube kubernetes.Interface, namespace, pod string) (v1beta1.Image, []core.LocalObjectReference, error) {
	p, err := kube.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, fmt.Errorf("which image pod %s/%s runs: %w", namespace, pod, err)
	}
	return render.ImageOf(&p.Spec), p.Spec.ImagePullSecrets, nil
}
