package kube

import (
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// imitation is a cluster that remembers, without controllers.
func imitation(t *testing.T) (*Cluster, *fake.Clientset) {
	t.Helper()
	client := fake.NewClientset(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node1"},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	})
	client.PrependReactor("create", "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
		made := action.(clienttesting.CreateAction).GetObject().(*corev1.Namespace)
		made.Name = made.GenerateName + "abcde"
		return false, nil, client.Tracker().Add(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: made.Name}})
	})
	lists := map[schema.GroupVersionResource]string{
		snapshots: "VolumeSnapshotList", snapshotContents: "VolumeSnapshotContentList",
		corev1.SchemeGroupVersion.WithResource("secrets"): "SecretList",
	}
	client.Resources = []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "secrets", Kind: "Secret", Namespaced: true, Verbs: metav1.Verbs{"list"}},
	}}}
	return &Cluster{
		Client: client, Dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists), dir: t.TempDir(), run: "this",
	}, client
}

// obeying makes an imitation delete pods and claims together, as a real cluster does.
func obeying(client *fake.Clientset) {
	for resource, kind := range map[string]string{"pods": "Pod", "persistentvolumeclaims": "PersistentVolumeClaim"} {
		client.PrependReactor("delete-collection", resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
			in := action.GetNamespace()
			list, err := client.Tracker().List(action.GetResource(), corev1.SchemeGroupVersion.WithKind(kind), in)
			if err != nil {
				return true, nil, err
			}
			return true, nil, meta.EachListItem(list, func(item runtime.Object) error {
				return client.Tracker().Delete(action.GetResource(), in, item.(Object).GetName())
			})
		})
	}
}

func usesAVolume(c *Cluster) func(testing.TB) {
	return func(t testing.TB) {
		s := c.Space(t)
		s.Claim("data", "1Gi")
		s.Pod("user", Mount("data", "/data"))
	}
}

func noNamespaces(t *testing.T, client *fake.Clientset) {
	t.Helper()
	left, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) > 0 {
		t.Errorf("left are %v, %v", left.Items, err)
	}
}

func TestSpace_TestWithARemainingVolumeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Setenv(artifactsVariable, t.TempDir())
		c, client := imitation(t)
		obeying(client)
		check.OK(t, client.Tracker().Add(&corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "stays"},
			Spec:       corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "it-abcde", Name: "data"}},
		}))
		failed := try(t, "TestIt", usesAVolume(c))
		for _, want := range []string{"removing namespace it-abcde", "seen last: persistentvolume stays", "what the cluster knows is in "} {
			if !failed.failed || !strings.Contains(failed.said.String(), want) {
				t.Errorf("there is no %q in %s", want, failed.said.String())
			}
		}
		noNamespaces(t, client)
	})
}
