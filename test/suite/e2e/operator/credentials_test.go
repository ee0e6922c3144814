package operator

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// pairs are the secrets that are made of the referenced one, by how its keys begin.
var pairs = map[string]string{
	"csiProvision": "csi-provisioner-secret", "csiControllerPublish": "csi-controller-publish-secret",
	"csiNodePublish": "csi-node-publish-secret", "csiControllerExpand": "csi-controller-expand-secret",
}

func credentials() map[string]string {
	data := map[string]string{"username": "reader", "password": "of the API"}
	for prefix := range pairs {
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
	if _, err := secrets.Create(a.t.Context(), want, metav1.CreateOptions{}); err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() {
		if err := secrets.Delete(context.WithoutCancel(a.t.Context()), name, metav1.DeleteOptions{}); err != nil {
			a.t.Error(err)
		}
	})
}

func TestCredentials_EachBecomesASecretThatTheClassesName(t *testing.T) {
	hostfs.Long(t)
	a := administer(t)
	data := credentials()
	a.secret("credentials", data)
	a.change(func(spec *v1beta1.StorageClusterSpec) {
		spec.SecretRef = &v1beta1.SecretReference{Name: "credentials"}
		spec.CSI.Credentials.Provision, spec.CSI.Credentials.ControllerPublish = true, true
		spec.CSI.Credentials.NodePublish, spec.CSI.Credentials.ControllerExpand = true, true
	})
	class, err := a.Client.StorageV1().StorageClasses().Get(t.Context(), "holdfast", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"provisioner", "controller-publish", "node-publish", "controller-expand"} {
		name, namespace := class.Parameters["csi.storage.k8s.io/"+role+"-secret-name"], class.Parameters["csi.storage.k8s.io/"+role+"-secret-namespace"]
		if name != "csi-"+role+"-secret" || namespace != kube.System {
			t.Errorf("the class names %s/%s for %s", namespace, name, role)
		}
	}
	a.awaitPairs(data)

	s := begin(t)
	_, other := twoNodes(t)
	use(s, "data", kube.OnNode(other)) // each call that takes a secret gets it
	s.Grow("data", "32Mi")

	data["csiProvisionPassword"] = "another"
	a.secret("credentials", data)
	a.awaitPairs(data)

	delete(data, "csiNodePublishUsername")
	a.secret("credentials", data)
	a.await("to name the key that is missing", func(c *v1beta1.StorageCluster) bool {
		return says(c, v1beta1.ProgressingCondition, "InvalidSpec", "spec.csi.credentials.nodePublish", "csiNodePublishUsername")
	})
	data["csiNodePublishUsername"] = "it is back"
	a.secret("credentials", data)
	a.awaitReconciled()
	a.awaitPairs(data)

	a.change(func(spec *v1beta1.StorageClusterSpec) { spec.CSI.Credentials.NodePublish = false })
	kube.AwaitNone(a.Space, a.Client.CoreV1().Secrets(kube.System), kube.Named("csi-node-publish-secret"), "the secret that is not requested")
}

// awaitPairs waits until each secret has its pair of the referenced one.
func (a *admin) awaitPairs(data map[string]string) {
	a.t.Helper()
	secrets := a.Client.CoreV1().Secrets(kube.System)
	for prefix, name := range pairs {
		kube.AwaitOne(a.Space, secrets, name, fmt.Sprintf("to hold the pair %s", prefix), func(s *corev1.Secret) (bool, error) {
			return len(s.Data) == 2 && string(s.Data["username"]) == data[prefix+"Username"] && string(s.Data["password"]) == data[prefix+"Password"], nil
		})
	}
}

func TestCredentials_MissingSecretIsNamedAndUsedWhenCreated(t *testing.T) {
	a := administer(t)
	a.ask(func(spec *v1beta1.StorageClusterSpec) {
		spec.SecretRef = &v1beta1.SecretReference{Name: "comes-later"}
		spec.CSI.Credentials.Provision = true
	})
	a.await("to name the secret that is missing", func(c *v1beta1.StorageCluster) bool {
		return c.Status.Phase == v1beta1.ClusterDegraded && says(c, v1beta1.ProgressingCondition, "InvalidSpec", "spec.secretRef", kube.System+"/comes-later")
	})
	s := begin(t) // what runs goes on
	s.Claim("data", "64Mi")
	s.Run("user", kube.Mount("data", "/data"), kube.Script("touch /data/file"))
	a.secret("comes-later", credentials())
	a.awaitReconciled()
	kube.AwaitOne(a.Space, a.Dynamic.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(kube.System), "csi-provisioner-secret", "to be made",
		func(*unstructured.Unstructured) (bool, error) { return true, nil })
}
