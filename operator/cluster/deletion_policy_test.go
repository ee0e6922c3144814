package cluster

import (
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

const (
	controllerUser = "system:serviceaccount:holdfast-system:holdfast-controller"
	agentUser      = "system:serviceaccount:holdfast-system:holdfast-node"
	serverUser     = "system:serviceaccount:team:holdfast-nfs"
	serverNode     = "team.nfs1.nfs.holdfast.dev"
)

// as requests with an account that has every right of RBAC. What is refused then is refused by a policy.
func (r *rig) as(user string) holdfast.Interface {
	config := rest.CopyConfig(r.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	if user == agentUser {
		config.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {"node1"}}
	}
	return holdfast.NewForConfigOrDie(config)
}

// requests are made of one object, as if.
type requests interface {
	patch(h holdfast.Interface, spec string) error
}

type volumeRequests struct {
	*rig
	name string
}

func (q volumeRequests) patch(h holdfast.Interface, spec string) error {
	_, err := h.HoldfastV1beta1().Volumes().Patch(q.Context(), q.name, types.MergePatchType, []byte(`{"spec":`+spec+`}`), dryRunPatch)
	return err
}

type snapshotRequests struct {
	*rig
	name string
}

func (q snapshotRequests) patch(h holdfast.Interface, spec string) error {
	_, err := h.HoldfastV1beta1().Snapshots().Patch(q.Context(), q.name, types.MergePatchType, []byte(`{"spec":`+spec+`}`), dryRunPatch)
	return err
}

type nodeRequests struct {
	*rig
	name string
}

func (q nodeRequests) patch(h holdfast.Interface, spec string) error {
	_, err := h.HoldfastV1beta1().StorageNodes().Patch(q.Context(), q.name, types.MergePatchType, []byte(`{"spec":`+spec+`}`), dryRunPatch)
	return err
}

var dryRunPatch = metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}

const deletionRequest = `{"deletion":{"uid":"u","requestedBy":"x","requestedAt":"2026-11-24T00:00:00.000000Z"}}`

// stored makes a Volume and a Snapshot on a node and a server, and the StorageNodes of both.
func (r *rig) stored() {
	r.Helper()
	for _, node := range []string{"node1", serverNode} {
		name, _, _ := strings.Cut(node, ".")
		v := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.VolumeSpec{Name: name, Node: node, Shared: node == serverNode}}
		check.Got(r.ours.HoldfastV1beta1().Volumes().Create(r.Context(), v, metav1.CreateOptions{}))(r)
		s := &v1beta1.Snapshot{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.SnapshotSpec{Name: name, Node: node, SourceRef: v1beta1.FromVolume(name)}}
		check.Got(r.ours.HoldfastV1beta1().Snapshots().Create(r.Context(), s, metav1.CreateOptions{}))(r)
		n := &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
		check.Got(r.ours.HoldfastV1beta1().StorageNodes().Create(r.Context(), n, metav1.CreateOptions{}))(r)
	}
}

func TestDeletionRequest_OnlyTheControllerAndAServerForItsOwnMayMakeIt(t *testing.T) {
	r := newRig(t).start()
	r.create("holdfast", nil)
	r.reconciled("holdfast")
	r.stored()
	wait.Until(r, "the rule being held", func() bool {
		return realapi.RefusedBy("holdfast-deletion", volumeRequests{r, "node1"}.patch(r.as("jane"), deletionRequest))
	})
	for what, test := range map[string]struct {
		object requests
		may    []string
	}{
		"a volume of a node":     {volumeRequests{r, "node1"}, []string{controllerUser}},
		"a snapshot of a node":   {snapshotRequests{r, "node1"}, []string{controllerUser}},
		"a volume of a server":   {volumeRequests{r, "team"}, []string{controllerUser, serverUser}},
		"a snapshot of a server": {snapshotRequests{r, "team"}, []string{controllerUser, serverUser}},
	} {
		for _, user := range []string{"jane", agentUser, controllerUser, serverUser, "system:serviceaccount:other:holdfast-nfs", "system:serviceaccount:team:holdfast-controller"} {
			if user == agentUser && strings.HasSuffix(what, "a server") {
				continue // of which an agent may write nothing
			}
			err := test.object.patch(r.as(user), deletionRequest)
			if may := slices.Contains(test.may, user); may && err != nil || !may && !realapi.RefusedBy("holdfast-deletion", err) {
				t.Errorf("%s by %s: %v", what, user, err)
			}
			if err := test.object.patch(r.as(user), `{"deletion":null}`); err != nil {
				t.Errorf("%s: what requests nothing, by %s: %v", what, user, err)
			}
		}
	}
	err := volumeRequests{r, "node1"}.patch(r.as("jane"), deletionRequest)
	for _, part := range []string{"jane", controllerUser, "delete the claim", "holdfast volumes delete node1"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %v", part, err)
		}
	}
}

func TestDeletionRequest_OneThatIsMadeStaysWhileOthersWrite(t *testing.T) {
	r := newRig(t).start()
	r.create("holdfast", nil)
	r.reconciled("holdfast")
	r.stored()
	o := volumeRequests{r, "node1"}
	wait.Until(r, "the rule being held", func() bool { return realapi.RefusedBy("holdfast-deletion", o.patch(r.as("jane"), deletionRequest)) })
	check.Got(r.as(controllerUser).HoldfastV1beta1().Volumes().Patch(t.Context(), "node1", types.MergePatchType, []byte(`{"spec":`+deletionRequest+`}`), metav1.PatchOptions{}))(t)
	if _, err := r.as(agentUser).HoldfastV1beta1().Volumes().Patch(t.Context(), "node1", types.MergePatchType, []byte(`{"metadata":{"finalizers":["holdfast.dev/agent"]}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("the agent writes beside it: %v", err)
	}
	v := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: "copy", Labels: map[string]string{v1beta1.AdoptedLabel: "true"}}, Spec: v1beta1.VolumeSpec{Name: "copy", Node: "node1"}}
	v.Spec.Deletion = &v1beta1.DeletionRequest{UID: "u", RequestedBy: "x", RequestedAt: metav1.NowMicro()}
	for _, user := range []string{"jane", agentUser, controllerUser} {
		_, err := r.as(user).HoldfastV1beta1().Volumes().Create(t.Context(), v, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !realapi.RefusedBy("holdfast-deletion", err) || !strings.Contains(err.Error(), "cannot be created with a request") {
			t.Errorf("a volume that is made with a request by %s: %v", user, err)
		}
	}
}

func TestNodeRequests_OnlyTheControllerAddsAndTheAgentTakesAway(t *testing.T) {
	r := newRig(t).start()
	r.create("holdfast", nil)
	r.reconciled("holdfast")
	r.stored()
	one, two := nodeRequests{r, "node1"}, nodeRequests{r, serverNode}
	const discard = `{"discard":[{"kind":"Volume","name":"a","uid":"u","requestedBy":"x","requestedAt":"2026-11-24T00:00:00.000000Z"}]}`
	wait.Until(r, "the rule being held", func() bool { return realapi.RefusedBy("holdfast-node-requests", one.patch(r.as("jane"), discard)) })
	additions := map[string]string{
		"discard of a": discard, "restore of b": `{"restore":[{"name":"b"}]}`, "replacePools of c": `{"replacePools":[{"name":"c","id":"1"}]}`,
	}
	for what, spec := range additions {
		for _, user := range []string{"jane", agentUser, "system:serviceaccount:other:holdfast-nfs"} {
			for _, o := range []nodeRequests{one, two} {
				if user == agentUser && o == two {
					continue // of which an agent may write nothing
				}
				if err := o.patch(r.as(user), spec); !realapi.RefusedBy("holdfast-node-requests", err) || !strings.Contains(err.Error(), what) {
					t.Errorf("%s on %s by %s: %v", what, o.name, user, err)
				}
			}
		}
		if err := two.patch(r.as(serverUser), spec); err != nil {
			t.Errorf("%s by the server: %v", what, err)
		}
		if err := one.patch(r.as(serverUser), spec); !realapi.RefusedBy("holdfast-node-requests", err) {
			t.Errorf("%s on a node by a server: %v", what, err)
		}
		nodes := r.as(controllerUser).HoldfastV1beta1().StorageNodes()
		if _, err := nodes.Patch(t.Context(), "node1", types.MergePatchType, []byte(`{"spec":`+spec+`}`), metav1.PatchOptions{}); err != nil {
			t.Errorf("%s by the controller: %v", what, err)
		}
	}
	for what, test := range map[string]struct {
		spec  string
		taken bool
	}{
		"all taken away":           {`{"discard":null,"restore":null,"replacePools":null}`, true},
		"why it is not done yet":   {`{"restore":[{"name":"b","error":"no room"}]}`, true},
		"another in its place":     {`{"restore":[{"name":"c"}]}`, false},
		"one beside it":            {`{"restore":[{"name":"b"},{"name":"c"}]}`, false},
		"another pool of the name": {`{"replacePools":[{"name":"c","id":"2"}]}`, false},
		"another of the name":      {strings.Replace(discard, `"u"`, `"v"`, 1), false},
	} {
		if err := one.patch(r.as(agentUser), test.spec); test.taken != (err == nil) {
			t.Errorf("%s, by the agent: %v", what, err)
		}
	}
	check.OK(t, r.ours.HoldfastV1beta1().StorageNodes().Delete(t.Context(), "node1", metav1.DeleteOptions{}))
	n := &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: "node1"}, Spec: v1beta1.StorageNodeSpec{Restore: []v1beta1.RestoreRequest{{Name: "a"}}}}
	create := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	if _, err := r.as(agentUser).HoldfastV1beta1().StorageNodes().Create(t.Context(), n, create); !realapi.RefusedBy("holdfast-node-requests", err) {
		t.Errorf("a node that is made with a request: %v", err)
	}
	n.Spec = v1beta1.StorageNodeSpec{}
	if _, err := r.as(agentUser).HoldfastV1beta1().StorageNodes().Create(t.Context(), n, create); err != nil {
		t.Errorf("a node that is made: %v", err)
	}
}

func TestDeletionByHand_OfAnObjectIsWarnedOf(t *testing.T) {
	r := newRig(t).start()
	r.create("holdfast", nil)
	r.reconciled("holdfast")
	r.stored()
	deleted := func(user string) string {
		t.Helper()
		heard := &warnings{}
		config := rest.CopyConfig(r.config)
		config.WarningHandlerWithContext = heard
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
		err := holdfast.NewForConfigOrDie(config).HoldfastV1beta1().Volumes().Delete(t.Context(), "node1", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return heard.take()
	}
	text := ""
	wait.Until(r, "the warning", func() bool { text = deleted("jane"); return text != "" })
	for _, part := range []string{"the data of node1 stays", "written again", "holdfast volumes delete node1"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in %q", part, text)
		}
	}
	if text := deleted(controllerUser); text != "" {
		t.Errorf("the controller is warned: %q", text)
	}
}
