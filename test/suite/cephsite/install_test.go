//go:build ceph

package cephsite

import (
	"context"
	"slices"
	"strings"

	apps "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
)

// install makes the account and the rights that the operator gives the pool, and returns the arguments of its process.
func (s *site) install(config *rest.Config) (args []string) {
	s.Helper()
	cluster := &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "holdfast"}, Spec: v1beta1.StorageClusterSpec{Pools: []v1beta1.PoolSpec{s.pool}}}
	all := check.Got(render.Objects(render.Input{
		Cluster: cluster, Namespace: realapi.Namespace, Has: func(schema.GroupKind) bool { return true },
		CephKeys: map[string][]byte{s.pool.Ceph.SecretRef.Name: []byte(s.key(s.pool.Ceph.User)), s.pool.Ceph.NodeSecretRef.Name: []byte(s.key(s.pool.Ceph.NodeUser))},
	}))(s)
	for _, o := range all {
		switch {
		case o.GetKind() == "Deployment" && o.GetName() == render.CephObjectName(s.pool.Name):
			var d apps.Deployment
			check.OK(s, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d))
			args = d.Spec.Template.Spec.Containers[0].Args
		case isRight(o):
			s.apply(config, o)
		}
	}
	if len(args) == 0 {
		s.Fatal("the operator makes no Deployment of the pool")
	}
	return args
}

// isRight says whether an object lets the pool do something, or keeps it from something.
func isRight(o *unstructured.Unstructured) bool {
	policies := []string{"holdfast-ceph-account", "holdfast-deletion", "holdfast-node-requests"}
	switch o.GetKind() {
	case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
		return slices.Contains(policies, o.GetName())
	case "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding":
		return strings.HasPrefix(o.GetName(), "holdfast-ceph")
	}
	return false
}

// apply writes an object, which goes with the test.
func (s *site) apply(config *rest.Config, o *unstructured.Unstructured) {
	s.Helper()
	kind := o.GroupVersionKind()
	resource := strings.ToLower(kind.Kind) + "s"
	if stem, is := strings.CutSuffix(resource, "ys"); is {
		resource = stem + "ies"
	}
	var objects dynamic.ResourceInterface = dynamic.NewForConfigOrDie(config).Resource(kind.GroupVersion().WithResource(resource))
	if in := o.GetNamespace(); in != "" {
		objects = objects.(dynamic.NamespaceableResourceInterface).Namespace(in)
	}
	if _, err := objects.Apply(s.Context(), o.GetName(), o, metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
		s.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
	s.Cleanup(func() { _ = objects.Delete(context.Background(), o.GetName(), metav1.DeleteOptions{}) })
}
