package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	testclient "k8s.io/client-go/testing"

	ourfake "github.com/holdfast-storage/holdfast/api/client/clientset/fake"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/report/facts"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

const home = "holdfast-system"

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{core.LastAppliedConfigAnnotation: "password"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "long"}}}
}

func persistent(name, driver string) *core.PersistentVolume {
	return &core.PersistentVolume{ObjectMeta: meta("", name), Spec: core.PersistentVolumeSpec{PersistentVolumeSource: core.PersistentVolumeSource{CSI: &core.CSIPersistentVolumeSource{Driver: driver}}}}
}

func claim(namespace, name, volume string) *core.PersistentVolumeClaim {
	return &core.PersistentVolumeClaim{ObjectMeta: meta(namespace, name), Spec: core.PersistentVolumeClaimSpec{VolumeName: volume}}
}

func pending(namespace, name, class string) *core.PersistentVolumeClaim {
	c := claim(namespace, name, "")
	c.Spec.StorageClassName = &class
	return c
}

func event(namespace, name, about, of string) *core.Event {
	return &core.Event{ObjectMeta: meta(namespace, name), InvolvedObject: core.ObjectReference{Kind: about, Namespace: namespace, Name: of}}
}

func configuration(t *testing.T, more ...runtime.Object) (Config, *dynamicfake.FakeDynamicClient) {
	t.Helper()
	kinds := runtime.NewScheme()
	check.OK(t, core.AddToScheme(kinds))
	check.OK(t, storage.AddToScheme(kinds))
	check.OK(t, v1beta1.AddToScheme(kinds))
	w, lists := &writer{}, map[schema.GroupVersionResource]string{}
	for _, r := range w.resources() {
		lists[r.GroupVersionResource] = r.Resource + "List"
	}
	volume := &v1beta1.Volume{ObjectMeta: meta("", "pvc-1")}
	cluster := &v1beta1.StorageCluster{ObjectMeta: meta("", "holdfast")}
	controller := &core.Pod{ObjectMeta: meta(home, "controller"), Status: core.PodStatus{ContainerStatuses: []core.ContainerStatus{{Name: "holdfast", RestartCount: 1}}}}
	controller.Spec.Containers = []core.Container{{Name: "holdfast", Env: []core.EnvVar{{Name: "HTTPS_PROXY", Value: "https://me:hunter2@proxy"}}}}
	controller.Labels = map[string]string{v1beta1.NameLabel: v1beta1.AppName}
	objects := append(more, volume, cluster, controller,
		&core.Secret{ObjectMeta: meta(home, "access"), Data: map[string][]byte{"password": []byte("hunter2")}},
		persistent("pvc-1", v1beta1.DriverName), persistent("foreign-one", "other.example"),
		claim("shop", "orders", "pvc-1"), claim("shop", "of-others", "foreign-one"),
		&core.ConfigMap{ObjectMeta: meta(home, "sh.helm.release.v1.mine"), Data: map[string]string{"release": "password"}},
		&core.Node{ObjectMeta: meta("", "n1"), Status: core.NodeStatus{VolumesInUse: []core.UniqueVolumeName{"foreign-one"}, Images: []core.ContainerImage{{Names: []string{"foreign-one"}}}}},
		&storage.StorageClass{ObjectMeta: meta("", "holdfast"), Provisioner: v1beta1.DriverName}, pending("shop", "waits", "holdfast"), pending("shop", "of-others-too", "local-path"),
		event("shop", "of-the-claim", "PersistentVolumeClaim", "orders"), event("shop", "of-a-pod", "Pod", "web"), event(home, "of-ours", "Pod", "controller"))
	for i, o := range objects {
		known, _, err := kinds.ObjectKinds(o)
		check.OK(t, err)
		u := &unstructured.Unstructured{Object: check.Got(runtime.DefaultUnstructuredConverter.ToUnstructured(o))(t)}
		u.SetGroupVersionKind(known[0])
		objects[i] = u
	}
	dynamic := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, objects...)
	return Config{
		Clients:   facts.Clients{Holdfast: ourfake.NewSimpleClientset(volume, cluster), Kubernetes: fake.NewSimpleClientset(controller), Dynamic: dynamic},
		Namespace: home, Version: "v1", LogLines: 10, Now: time.Unix(1, 0),
	}, dynamic
}

// files unpacks an archive.
func files(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	r := tar.NewReader(check.Got(gzip.NewReader(bytes.NewReader(archive)))(t))
	all := map[string]string{}
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		check.OK(t, err)
		all[strings.TrimPrefix(h.Name, "holdfast-support/")] = string(check.Got(io.ReadAll(r))(t))
	}
}

func TestBundle_HasReportsObjectsAndLogsOfHoldfastAndNothingOfOthers(t *testing.T) {
	c, _ := configuration(t)
	var archive bytes.Buffer
	if missing, err := Write(t.Context(), &archive, c); err != nil || len(missing) > 0 {
		t.Fatal(missing, err)
	}
	all := files(t, archive.Bytes())
	for name, snippets := range map[string][]string{
		"about.txt": {"holdfast v1"}, "status.txt": {"StorageCluster holdfast"}, "doctor.txt": {"controller"},
		"objects/volumes.yaml": {"name: pvc-1"}, "objects/storageclusters.yaml": {"name: holdfast"}, "objects/pods.yaml": {"name: controller"}, "objects/nodes.yaml": {"name: n1"},
		"objects/persistentvolumes.yaml": {"name: pvc-1"}, "objects/persistentvolumeclaims.yaml": {"name: orders", "name: waits"}, "objects/events.yaml": {"name: of-the-claim", "of-ours"},
		"logs/" + home + "/controller/holdfast.log": {"fake logs"}, "logs/" + home + "/controller/holdfast.previous.log": {"fake logs"},
	} {
		for _, snippet := range snippets {
			if !strings.Contains(all[name], snippet) {
				t.Errorf("%s has no %q: %s", name, snippet, all[name])
			}
		}
	}
	for name, content := range all {
		for _, secret := range []string{"hunter2", "password", "foreign-one", "of-others", "of-a-pod", "managedFields"} {
			if strings.Contains(content, secret) {
				t.Errorf("%s has %q", name, secret)
			}
		}
	}
}

func TestBundle_FailsWhereNothingCanBeRead(t *testing.T) {
	c, dynamic := configuration(t)
	refuse := func(testclient.Action) (bool, runtime.Object, error) {
		return true, nil, fmt.Errorf("connection refused")
	}
	dynamic.PrependReactor("*", "*", refuse)
	c.Kubernetes.(*fake.Clientset).PrependReactor("*", "*", refuse)
	c.Holdfast.(*ourfake.Clientset).PrependReactor("*", "*", refuse)
	if _, err := Write(t.Context(), io.Discard, c); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("it ends with %v", err)
	}
}

func TestBundle_SaysWhatItCouldNotRead(t *testing.T) {
	c, dynamic := configuration(t)
	dynamic.PrependReactor("list", "leases", func(testclient.Action) (bool, runtime.Object, error) {
		return true, nil, fmt.Errorf("leases are forbidden")
	})
	var archive bytes.Buffer
	missing, err := Write(t.Context(), &archive, c)
	if err != nil || len(missing) != 1 || !strings.Contains(missing[0], "leases are forbidden") {
		t.Errorf("missing are %q, %v", missing, err)
	}
	if about := files(t, archive.Bytes())["about.txt"]; !strings.Contains(about, "leases are forbidden") {
		t.Errorf("it says %s", about)
	}
}
