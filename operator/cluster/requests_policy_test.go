package cluster

import (
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

const (
	controllerUser = "system:serviceaccount:holdfast-system:holdfast-controller"
	agentUser      = "system:serviceaccount:holdfast-system:holdfast-node"
	snapshotUser   = "system:serviceaccount:holdfast-system:holdfast-snapshot-controller"
	serverUser     = "system:serviceaccount:team:holdfast-nfs"
	serverNode     = "team.nfs1.nfs.holdfast.dev"

	deletionRequest = `{"deletion":{"uid":"u","requestedBy":"x","requestedAt":"2026-11-24T00:00:00.000000Z"}}`
	aFence          = `{"fence":{"reason":"NodeGone","requestedAt":"2026-11-25T00:00:00.000000Z"}}`
	aBlocklist      = `{"blocklist":[{"node":"b","addresses":["10.0.0.5:0/1"],"requestedAt":"2026-11-25T00:00:00.000000Z"}]}`
)

// as is a connection under the name of an account that has every right of RBAC. What is refused then is refused by a policy.
func (r *rig) as(user string) *rest.Config {
	config := rest.CopyConfig(r.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	if user == agentUser {
		config.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {"node1"}}
	}
	return config
}

// attempt makes a request under the name of an account, as if.
func (r *rig) attempt(user string, a realapi.Attempt) error { return a.Try(r.Context(), r.as(user)) }

// write changes an object in earnest, as the controller.
func (r *rig) write(resource, name, body string, sub ...string) {
	r.Helper()
	kind := dynamic.NewForConfigOrDie(r.as(controllerUser)).Resource(v1beta1.SchemeGroupVersion.WithResource(resource))
	check.Got(kind.Patch(r.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{}, sub...))(r)
}

func ofSpec(spec string) string { return `{"spec":` + spec + `}` }

// request changes the spec of an object.
func request(what, name, spec string) realapi.Attempt {
	return realapi.Attempt{Verb: "patch", What: what, Name: name, Body: ofSpec(spec)}
}

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
	const policy = "holdfast-deletion"
	r := running(t, nil)
	r.stored()
	r.refusedSoon(policy, r.as("jane"), request(theVolumes, "node1", deletionRequest))
	for _, what := range []string{theVolumes, theSnapshots} {
		for name, may := range map[string][]string{"node1": {controllerUser}, "team": {controllerUser, serverUser}} {
			for _, user := range []string{"jane", agentUser, controllerUser, serverUser, "system:serviceaccount:other:holdfast-nfs", "system:serviceaccount:team:holdfast-controller"} {
				if user == agentUser && name == "team" {
					continue // of which an agent may write nothing
				}
				err := r.attempt(user, request(what, name, deletionRequest))
				if may := slices.Contains(may, user); may && err != nil || !may && !realapi.RefusedBy(policy, err) {
					t.Errorf("%s %s by %s: %v", what, name, user, err)
				}
				r.takes("what requests nothing, by "+user, r.as(user), request(what, name, `{"deletion":null}`))
			}
		}
	}
	for _, part := range []string{"jane", controllerUser, "delete the claim", "holdfast volumes delete node1"} {
		r.refuses(policy, r.as("jane"), part, request(theVolumes, "node1", deletionRequest))
	}

	r.write("volumes", "node1", ofSpec(deletionRequest))
	beside := realapi.Attempt{Verb: "patch", What: theVolumes, Name: "node1", Body: `{"metadata":{"finalizers":["holdfast.dev/agent"]}}`}
	r.takes("the agent writes beside one that is made", r.as(agentUser), beside)
	made := strings.Replace(on("node1", adopted), `"spec":{`, `"spec":{`+deletionRequest[1:len(deletionRequest)-1]+`,`, 1)
	create := realapi.Attempt{Verb: "create", What: theVolumes, Name: "new", Body: made}
	for _, user := range []string{"jane", agentUser, controllerUser} {
		r.refuses(policy, r.as(user), "cannot be created with a request", create)
	}
}

func TestNodeRequests_OnlyTheControllerAddsAndTheAgentTakesAway(t *testing.T) {
	const (
		policy  = "holdfast-node-requests"
		discard = `{"discard":[{"kind":"Volume","name":"a","uid":"u","requestedBy":"x","requestedAt":"2026-11-24T00:00:00.000000Z"}]}`
	)
	r := running(t, nil)
	r.stored()
	r.refusedSoon(policy, r.as("jane"), request(theStorageNodes, "node1", discard))
	for what, spec := range map[string]string{
		"discard of a": discard, "restore of b": `{"restore":[{"name":"b"}]}`, "replacePools of c": `{"replacePools":[{"name":"c","id":"1"}]}`,
	} {
		for _, user := range []string{"jane", agentUser, "system:serviceaccount:other:holdfast-nfs"} {
			for _, node := range []string{"node1", serverNode} {
				if user == agentUser && node == serverNode {
					continue // of which an agent may write nothing
				}
				r.refuses(policy, r.as(user), what, request(theStorageNodes, node, spec))
			}
		}
		r.takes("by the server", r.as(serverUser), request(theStorageNodes, serverNode, spec))
		r.refuses(policy, r.as(serverUser), "", request(theStorageNodes, "node1", spec))
		r.write("storagenodes", "node1", ofSpec(spec))
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
		if err := r.attempt(agentUser, request(theStorageNodes, "node1", test.spec)); test.taken != (err == nil) {
			t.Errorf("%s, by the agent: %v", what, err)
		}
	}
	check.OK(t, r.ours.HoldfastV1beta1().StorageNodes().Delete(t.Context(), "node1", metav1.DeleteOptions{}))
	create := func(spec string) realapi.Attempt {
		body := `{"apiVersion":"holdfast.dev/v1beta1","kind":"StorageNode","spec":` + spec + `}`
		return realapi.Attempt{Verb: "create", What: theStorageNodes, Name: "node1", Body: body}
	}
	r.refuses(policy, r.as(agentUser), "", create(`{"restore":[{"name":"a"}]}`))
	r.takes("a node that is made", r.as(agentUser), create(`{}`))
}

func TestDeletionByHand_OfAnObjectIsWarnedOf(t *testing.T) {
	r := running(t, nil)
	r.stored()
	deleted := func(user string) string {
		t.Helper()
		heard, config := &warnings{}, r.as(user)
		config.WarningHandlerWithContext = heard
		check.OK(t, realapi.Attempt{Verb: "delete", What: theVolumes, Name: "node1"}.Try(t.Context(), config))
		return heard.take()
	}
	text := ""
	wait.Until(r, "the warning", func() bool { text = deleted("jane"); return text != "" })
	r.says("the warning", text, "the data of node1 stays", "written again", "holdfast volumes delete node1")
	if text := deleted(controllerUser); text != "" {
		t.Errorf("the controller is warned: %q", text)
	}
}

func TestFence_OnlyTheControllerShutsOutAndLetsIn(t *testing.T) {
	const policy = "holdfast-node-requests"
	r := running(t, nil)
	r.stored()
	r.refusedSoon(policy, r.as("jane"), request(theStorageNodes, "node1", aFence))
	refused := func(specs ...string) {
		t.Helper()
		for _, spec := range specs {
			for _, user := range []string{"jane", agentUser} {
				r.refuses(policy, r.as(user), "only the controller of Holdfast may", request(theStorageNodes, "node1", spec))
			}
		}
	}
	refused(aFence, aBlocklist)
	r.write("storagenodes", "node1", ofSpec(aFence))
	r.write("storagenodes", "node1", ofSpec(aBlocklist))
	refused(`{"fence":null}`, `{"blocklist":null}`, `null`, strings.Replace(aBlocklist, "0/1", "0/2", 1)) // another address
	r.takes("what else the agent writes", r.as(agentUser), request(theStorageNodes, "node1", `{"restore":null}`))
	for _, address := range []string{"10.0.0.5:0/0", "10.0.0.5:6800/1", "10.0.0.0/24", "mon:0/1", "10.0.0.5:0/1 x"} {
		another := strings.Replace(aBlocklist, "10.0.0.5:0/1", address, 1)
		if err := r.attempt(controllerUser, request(theStorageNodes, "node1", another)); err == nil {
			t.Errorf("the address %s is taken", address)
		}
	}
}

func TestStorageNode_WithClientsOfCephStaysUntilItIsShutOut(t *testing.T) {
	r := running(t, nil)
	r.stored()
	status := func(body string) {
		t.Helper()
		nodes := r.ours.HoldfastV1beta1().StorageNodes()
		check.Got(nodes.Patch(t.Context(), "node1", types.MergePatchType, []byte(`{"status":`+body+`}`), metav1.PatchOptions{}, "status"))(t)
	}
	remove := realapi.Attempt{Verb: "delete", What: theStorageNodes, Name: "node1"}
	r.takes("without clients", r.config, remove)
	status(`{"cephClients":[{"fsid":"` + cephFSID + `","id":"client.1","address":"10.0.0.5:0/1"}]}`)
	wait.Until(r, "the record being kept", func() bool {
		err := remove.Try(t.Context(), r.config)
		return realapi.RefusedBy("holdfast-node-requests", err) && strings.Contains(err.Error(), "node.kubernetes.io/out-of-service")
	})
	r.takes("by the controller", r.as(controllerUser), remove)
	status(`{"conditions":[{"type":"Fenced","status":"True","reason":"Fenced","message":"","lastTransitionTime":"2026-11-25T00:00:00Z"}]}`)
	r.takes("once it is shut out", r.config, remove)
}

// lonely makes a pod that is on no node, and its end.
func (r *rig) lonely(name string, claim bool, labels map[string]string) {
	r.Helper()
	p := &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: core.PodSpec{
		SchedulerName: "none", Containers: []core.Container{{Name: "a", Image: "busybox:1"}}, AutomountServiceAccountToken: new(false),
	}}
	if claim {
		p.Spec.Volumes = []core.Volume{{Name: "v", VolumeSource: core.VolumeSource{PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: "a"}}}}
	}
	pods := r.theirs.CoreV1().Pods(metav1.NamespaceDefault)
	check.Got(pods.Create(r.Context(), p, metav1.CreateOptions{}))(r)
	r.Cleanup(func() { _ = pods.Delete(background, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}) })
}

func (r *rig) attached(name, attacher string) {
	r.Helper()
	attachments := r.theirs.StorageV1().VolumeAttachments()
	check.Got(attachments.Create(r.Context(), &storage.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storage.VolumeAttachmentSpec{
		Attacher: attacher, NodeName: "none", Source: storage.VolumeAttachmentSource{PersistentVolumeName: &name},
	}}, metav1.CreateOptions{}))(r)
	r.Cleanup(func() { _ = attachments.Delete(background, name, metav1.DeleteOptions{}) })
}

func TestFencingPolicy_ControllerMayDeleteOnlyWhatFencingChooses(t *testing.T) {
	const policy = "holdfast-fencing"
	r := running(t, nil)
	label := map[string]string{v1beta1.FencedLabel: "true"}
	r.lonely("fencing-labelled", true, label)
	r.lonely("fencing-claim", true, nil)
	r.lonely("fencing-false", true, map[string]string{v1beta1.FencedLabel: "false"})
	r.lonely("fencing-bare", false, label)
	r.attached("fencing-ours", v1beta1.DriverName)
	r.attached("fencing-theirs", "csi.example.com")
	pod := func(name string) realapi.Attempt {
		return realapi.Attempt{Verb: "delete", What: "v1/pods", In: metav1.NamespaceDefault, Name: "fencing-" + name}
	}
	attachment := func(name string) realapi.Attempt {
		return realapi.Attempt{Verb: "delete", What: "storage.k8s.io/v1/volumeattachments", Name: "fencing-" + name}
	}
	r.refusedSoon(policy, r.as(controllerUser), pod("bare"))
	expect := func(pods v1beta1.FencedPods, may ...string) {
		t.Helper()
		for _, name := range []string{"labelled", "claim", "false", "bare"} {
			err := r.attempt(controllerUser, pod(name))
			if allowed := slices.Contains(may, name); allowed && err != nil || !allowed && !realapi.RefusedBy(policy, err) {
				t.Errorf("with spec.fencing.pods %q, the deletion of pod %s: %v", pods, name, err)
			}
		}
	}
	expect("", "labelled")
	r.takes("an attachment of Holdfast", r.as(controllerUser), attachment("ours"))
	r.refuses(policy, r.as(controllerUser), "", attachment("theirs"))
	r.takes("an administrator", r.config, pod("bare"))
	for _, pods := range []v1beta1.FencedPods{v1beta1.FenceWithCephVolumes, v1beta1.FenceNone} {
		r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Fencing.Pods = pods })
		may := map[v1beta1.FencedPods][]string{v1beta1.FenceWithCephVolumes: {"labelled", "claim", "false"}}[pods]
		wait.Until(r, "the rule for "+string(pods), func() bool {
			claim, labelled := r.attempt(controllerUser, pod("claim")), r.attempt(controllerUser, pod("labelled"))
			return (claim == nil) == (len(may) > 0) && (labelled == nil) == (len(may) > 0)
		})
		expect(pods, may...)
	}
}

func TestPopulation_OnlyTheControllerAsksForACopyAndSaysHowFarItIs(t *testing.T) {
	const (
		policy    = "holdfast-population"
		stolen    = `"spec":{"name":"new","node":"node1","populatedBy":"Pod","sourceRef":{"kind":"Volume","name":"another"}}}`
		renew     = `"annotations":{"holdfast.dev/renew-claim":"{}"}`
		copying   = `{"status":{"copy":{"phase":"Copying","bytesDone":1}}}`
		is        = `"status":"True","reason":"Populated","message":"","lastTransitionTime":"2026-11-26T00:00:00Z"`
		populated = `{"status":{"conditions":[{"type":"Populated",` + is + `}]}}`
	)
	r := running(t, nil)
	create := func(body string) realapi.Attempt {
		return realapi.Attempt{Verb: "create", What: theVolumes, Name: "new", Body: body}
	}
	copied := create(`{"apiVersion":"holdfast.dev/v1beta1","kind":"Volume",` + stolen)
	r.refusedSoon(policy, r.as("jane"), copied)
	ofItsDisk := create(`{"apiVersion":"holdfast.dev/v1beta1","kind":"Volume","metadata":{"labels":{"holdfast.dev/adopted":"true"}},` + stolen)
	r.refuses(policy, r.as(agentUser), "", ofItsDisk)
	r.takes("by the controller", r.as(controllerUser), copied)

	r.stored()
	patch := func(what, body string) realapi.Attempt {
		return realapi.Attempt{Verb: "patch", What: what, Name: "node1", Body: body}
	}
	status := func(body string) realapi.Attempt { return patch(theVolumes+"/status", body) }
	renewed := patch(theVolumes, `{"metadata":{`+renew+`}}`)
	forged := create(strings.Replace(on("node1", adopted), `"labels"`, renew+`,"labels"`, 1))
	for _, user := range []string{"jane", agentUser} {
		realapi.AllRefused(t, nodeAccount, r.as(user), map[string][]realapi.Attempt{policy: {forged, renewed}})
	}
	r.takes("a claim to recreate by the controller", r.as(controllerUser), renewed)
	r.takes("another change by an agent", r.as(agentUser), patch(theVolumes, `{"metadata":{"finalizers":["`+v1beta1.AgentFinalizer+`"]}}`))
	for _, s := range []string{copying, populated} {
		for _, user := range []string{"jane", agentUser} {
			r.refuses(policy, r.as(user), "", status(s))
		}
		r.write("volumes", "node1", s, "status")
	}
	for _, s := range []string{`{"status":{"copy":null}}`, `{"status":{"copy":{"bytesDone":2}}}`, `{"status":{"conditions":null}}`} {
		r.refuses(policy, r.as(agentUser), "", status(s))
	}
	r.takes("what else the agent writes", r.as(agentUser), status(`{"status":{"phase":"Ready","fsType":"ext4"}}`))
}
