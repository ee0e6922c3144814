package operator

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

func credentials() map[string]string {
	data := map[string]string{"username": "reader", "password": "of the API"}
	for _, prefix := range []string{"csiProvision", "csiControllerPublish", "csiNodePublish", "csiControllerExpand"} {
		data[prefix+"Username"], data[prefix+"Password"] = "user of "+prefix, "password of "+prefix
	}
	return data
}

// secret makes a secret in the namespace of Holdfast, or changes it, and removes it with the test.
func (a *admin) secret(name string, data map[string]string) {
	a.t.Helper()
	secrets := a.Client.CoreV1().Secrets(kube.System)
	want := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data}
	if _, err := secrets.Update(a.t.Context(), want, metav1.UpdateOptions{}); err == nil {
		return
	}
	check.Got(secrets.Create(a.t.Context(), want, metav1.CreateOptions{}))(a.t)
	a.t.Cleanup(func() {
		check.Report(a.t, secrets.Delete(context.WithoutCancel(a.t.Context()), name, metav1.DeleteOptions{}))
	})
}

func TestCredentials_VolumesAreMadeUsedAndGrownWithThem(t *testing.T) {
	hostfs.Long(t)
	a := administer(t)
	a.secret("credentials", credentials())
	a.change(func(spec *v1beta1.StorageClusterSpec) {
		spec.SecretRef = &v1beta1.SecretReference{Name: "credentials"}
		spec.CSI.Credentials.Provision, spec.CSI.Credentials.ControllerPublish = true, true
		spec.CSI.Credentials.NodePublish, spec.CSI.Credentials.ControllerExpand = true, true
	})
	s := begin(t)
	_, other := twoNodes(t)
	use(s, "data", kube.OnNode(other))
	s.Grow("data", "32Mi")
}
