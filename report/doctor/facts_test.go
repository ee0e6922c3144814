package doctor

import (
	"errors"
	"slices"
	"testing"

	admission "k8s.io/api/admissionregistration/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	testclient "k8s.io/client-go/testing"

	ourfake "github.com/holdfast-storage/holdfast/api/client/clientset/fake"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/report/facts"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// installed is a cluster with all that the checks look at.
func installed(t *testing.T) (facts.Clients, *fake.Clientset, *ourfake.Clientset) {
	t.Helper()
	f := well(t)
	wait := claim("waits", "holdfast", core.ClaimPending)
	elsewhere := pod("other", "a")
	elsewhere.Namespace = "shop"
	f.Secret.ObjectMeta = metav1.ObjectMeta{Name: "access", Namespace: home}
	event := warning("Pod", home, "x", "Failed", "m")
	event.Name = "event"
	borrower := pod("borrower", "a")
	borrower.Namespace, borrower.Spec.Containers = "nothing-waits-here", []core.Container{{Resources: core.ResourceRequirements{Limits: core.ResourceList{v1beta1.LoopSetResource: resource.MustParse("1")}}}}
	inline := func(name, driver string) *core.Pod {
		p := pod(name, "a")
		p.Namespace = "nothing-waits-here"
		p.Spec.Volumes = []core.Volume{{Name: "v", VolumeSource: core.VolumeSource{CSI: &core.CSIVolumeSource{Driver: driver}}}}
		return p
	}
	waits := inline("waits", "csi.holdfast.dev")
	waits.Status.Phase = core.PodPending
	ended := inline("ended", "csi.holdfast.dev")
	ended.Spec.Containers, ended.Status.Phase = borrower.Spec.Containers, core.PodSucceeded
	labels := map[string]string{"app.kubernetes.io/part-of": "holdfast"}
	theirs := fake.NewSimpleClientset(
		borrower, waits, inline("runs", "csi.holdfast.dev"), ended, inline("another", "secrets.example"), &admission.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: labels}},
		&admission.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: labels}}, &admission.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "other"}},
		f.Nodes[0], f.Nodes[1], f.CSINodes[0], f.Drivers[0], f.Classes[0], f.Pods[0], elsewhere, f.Home, f.Secret, wait, event,
	)
	ours := ourfake.NewSimpleClientset(f.Clusters[0], f.StorageNodes[0], f.Volumes[0], f.Snapshots[0])
	var objects []runtime.Object
	for _, d := range f.Definitions {
		objects = append(objects, d)
	}
	for _, c := range []struct{ group, kind string }{{"snapshot.storage.k8s.io", "VolumeSnapshotClass"}, {"groupsnapshot.storage.k8s.io", "VolumeGroupSnapshotClass"}} {
		o := &unstructured.Unstructured{Object: map[string]any{"driver": "csi.holdfast.dev"}}
		o.SetGroupVersionKind(schema.GroupVersionKind{Group: c.group, Version: "v1", Kind: c.kind})
		o.SetName("holdfast")
		objects = append(objects, o)
	}
	lists := map[schema.GroupVersionResource]string{
		{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}:          "CustomResourceDefinitionList",
		{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotclasses"}:           "VolumeSnapshotClassList",
		{Group: "groupsnapshot.storage.k8s.io", Version: "v1", Resource: "volumegroupsnapshotclasses"}: "VolumeGroupSnapshotClassList",
	}
	return facts.Clients{Holdfast: ours, Kubernetes: theirs, Dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, objects...)}, theirs, ours
}

func gathered(t *testing.T, c facts.Clients) *Facts {
	t.Helper()
	return check.Got(facts.All(t.Context(), c, home, "csi.holdfast.dev"))(t)
}

// fails is a client that ends with an error, of which a nil one is that the kind does not exist.
func fails(err error) testclient.ReactionFunc {
	return func(a testclient.Action) (bool, runtime.Object, error) {
		if err == nil {
			return true, nil, apierrors.NewNotFound(a.GetResource().GroupResource(), "")
		}
		return true, nil, err
	}
}

func TestAllThatIsLookedAtIsRead(t *testing.T) {
	clients, _, _ := installed(t)
	f := gathered(t, clients)
	if len(f.Hidden) > 0 {
		t.Fatal(f.Hidden)
	}
	own := deploy.Definitions()
	counts := map[string]int{
		facts.Clusters: len(f.Clusters), facts.StorageNodes: len(f.StorageNodes), facts.Volumes: len(f.Volumes), facts.Snapshots: len(f.Snapshots), facts.Nodes: len(f.Nodes) - 1,
		facts.CSINodes: len(f.CSINodes), facts.Drivers: len(f.Drivers), facts.Classes: len(f.Classes), facts.Claims: len(f.Claims), facts.Warnings: len(f.Warnings),
		facts.SnapshotClasses: len(f.SnapshotClasses), "group " + facts.SnapshotClasses: len(f.GroupClasses), facts.Definitions: len(f.Definitions) - len(own) - 3,
	}
	if !slices.Equal(f.Policies, []string{"ValidatingAdmissionPolicy a", "ValidatingAdmissionPolicyBinding a"}) || !slices.Equal(f.Borrowers, []string{"nothing-waits-here/borrower-a"}) || len(f.Unknown) > 0 {
		t.Errorf("policies %v, unknown %v, pods with loop devices %v", f.Policies, f.Unknown, f.Borrowers)
	}
	if slices.Sort(f.InlineUsers); !slices.Equal(f.InlineUsers, []string{"nothing-waits-here/runs-a", "nothing-waits-here/waits-a"}) {
		t.Errorf("pods with inline volumes %v", f.InlineUsers)
	}
	for what, n := range counts {
		if n != 1 {
			t.Errorf("%s: %d", what, n)
		}
	}
	if f.Home == nil || f.Secret == nil || len(f.Secret.Data) != 2 {
		t.Errorf("namespace %v, secret %v", f.Home, f.Secret)
	}
	var names []string
	for _, p := range f.Pods {
		names = append(names, p.Namespace+"/"+p.Name)
	}
	if slices.Sort(names); !slices.Equal(names, []string{"holdfast-system/controller-a", "shop/other-a"}) {
		t.Errorf("pods %v", names)
	}
}

func TestWhatMayNotBeReadHidesThatAlone(t *testing.T) {
	clients, theirs, ours := installed(t)
	forbid := fails(apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("not for you")))
	theirs.PrependReactor("*", "secrets", forbid)
	theirs.PrependReactor("*", "events", forbid)
	ours.PrependReactor("*", "volumes", forbid)
	f := gathered(t, clients)
	for _, what := range []string{facts.Secrets, facts.Warnings, facts.Volumes} {
		if !apierrors.IsForbidden(f.Hidden[what]) {
			t.Errorf("%s: %v", what, f.Hidden[what])
		}
	}
	if len(f.Hidden) != 3 || len(f.Claims) != 1 {
		t.Errorf("hidden %v, claims %d", f.Hidden, len(f.Claims))
	}
}

func TestKindsThatAreNotInstalledAreMissingAndNotHidden(t *testing.T) {
	clients, theirs, _ := installed(t)
	theirs.PrependReactor("list", "validatingadmissionpolicies", fails(nil))
	if f := gathered(t, clients); len(f.Hidden) > 0 || f.Unknown[facts.Policies] == nil {
		t.Errorf("without policies: unknown %v, hidden %v", f.Unknown, f.Hidden)
	}
	theirs, ours := fake.NewSimpleClientset(), ourfake.NewSimpleClientset()
	ours.PrependReactor("*", "*", fails(nil))
	f := gathered(t, facts.Clients{Holdfast: ours, Kubernetes: theirs, Dynamic: dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())})
	if len(f.Hidden) > 0 {
		t.Fatal(f.Hidden)
	}
	all := Examine(f)
	for _, name := range []string{"kinds", "storagecluster", "namespace", "controller"} {
		if !slices.ContainsFunc(all, func(one Finding) bool { return one.Check == name && one.Level == Problem }) {
			t.Errorf("%s: no problem", name)
		}
	}
}

func TestAnAPIServerThatIsDownIsAnError(t *testing.T) {
	down := fails(errors.New("connection refused"))
	clients, _, ours := installed(t)
	ours.PrependReactor("*", "*", down)
	between, theirs, _ := installed(t)
	theirs.PrependReactor("list", "pods", down) // it goes down between two lists
	for when, c := range map[string]facts.Clients{"from the beginning": clients, "later": between} {
		if _, err := facts.All(t.Context(), c, home, "csi.holdfast.dev"); err == nil {
			t.Errorf("no error when it is down %s", when)
		}
	}
}
