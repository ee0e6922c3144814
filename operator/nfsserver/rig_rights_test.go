package nfsserver

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
)

// installedRights are the account of the controller and what it may do, as they are installed.
func installedRights(t *testing.T) (all []*unstructured.Unstructured) {
	t.Helper()
	text := check.Got(os.ReadFile("../../deploy/base/controller-rbac.yaml"))(t)
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(o); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
}

func resourceOf(o *unstructured.Unstructured) schema.GroupVersionResource {
	plural, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	return plural
}

// asController is a connection that may do what the controller may, and no more.
func (r *rig) asController() *rest.Config {
	r.Helper()
	objects := dynamic.NewForConfigOrDie(r.config)
	for _, o := range installedRights(r.T) {
		client := dynamic.ResourceInterface(objects.Resource(resourceOf(o)))
		if o.GetKind() != "ClusterRole" && o.GetKind() != "ClusterRoleBinding" {
			client = objects.Resource(resourceOf(o)).Namespace(realapi.Namespace)
		}
		check.Got(client.Apply(r.Context(), o.GetName(), o, metav1.ApplyOptions{FieldManager: "test", Force: true}))(r)
		r.Cleanup(func() { _ = client.Delete(background, o.GetName(), metav1.DeleteOptions{}) })
	}
	config := rest.CopyConfig(r.config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + realapi.Namespace + ":holdfast-controller",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + realapi.Namespace, "system:authenticated"},
	}
	return config
}
