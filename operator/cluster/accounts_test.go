package cluster

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

const (
	nodeAccount = "holdfast-node-account"
	agents      = "holdfast-node"
)

// keptTo makes what nodes of these names have, and waits until an agent is kept to its own.
func (r *rig) keptTo(nodes ...string) {
	r.Helper()
	for _, node := range nodes {
		id := strings.ReplaceAll(node, ".", "-")
		kinds := r.ours.HoldfastV1beta1()
		check.Got(kinds.Volumes().Create(r.Context(), &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: id, Finalizers: []string{v1beta1.AgentFinalizer}}, Spec: v1beta1.VolumeSpec{Name: id, Node: node}}, metav1.CreateOptions{}))(r)
		check.Got(kinds.Snapshots().Create(r.Context(), &v1beta1.Snapshot{ObjectMeta: metav1.ObjectMeta{Name: id, Finalizers: []string{v1beta1.AgentFinalizer}}, Spec: v1beta1.SnapshotSpec{Name: id, Node: node, SourceRef: v1beta1.FromVolume(id)}}, metav1.CreateOptions{}))(r)
		check.Got(kinds.StorageNodes().Create(r.Context(), &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{}))(r)
		leases := r.theirs.CoordinationV1().Leases(namespace)
		check.Got(leases.Create(r.Context(), &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: v1beta1.LeasePrefix + node}}, metav1.CreateOptions{}))(r)
		r.Cleanup(func() { _ = leases.Delete(background, v1beta1.LeasePrefix+node, metav1.DeleteOptions{}) })
	}
}

// agentOn is the account of the nodes with the token of a pod on a node.
func (r *rig) agentOn(node string) *rest.Config {
	r.Helper()
	realapi.PodOn(r.T, r.config, namespace, agents, node+"-pod", node)
	return realapi.WithToken(r.T, r.config, namespace, agents, node+"-pod")
}

const (
	theVolumes      = "holdfast.dev/v1beta1/volumes"
	theSnapshots    = "holdfast.dev/v1beta1/snapshots"
	theStorageNodes = "holdfast.dev/v1beta1/storagenodes"
	theLeases       = "coordination.k8s.io/v1/leases"
	theEvents       = "v1/events"

	adopted   = `{"apiVersion":"holdfast.dev/v1beta1","kind":"Volume","metadata":{"labels":{"holdfast.dev/adopted":"true"}},"spec":{"name":"new","node":"NODE"}}`
	adoptedS  = `{"apiVersion":"holdfast.dev/v1beta1","kind":"Snapshot","metadata":{"labels":{"holdfast.dev/adopted":"true"}},"spec":{"name":"new","node":"NODE","sourceRef":{"kind":"Volume","name":"a"}}}`
	asked     = `{"apiVersion":"holdfast.dev/v1beta1","kind":"Volume","spec":{"name":"new","node":"NODE"}}`
	aNode     = `{"apiVersion":"holdfast.dev/v1beta1","kind":"StorageNode"}`
	aLease    = `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease"}`
	anEvent   = `{"apiVersion":"v1","kind":"Event","reason":"A","involvedObject":{"apiVersion":"holdfast.dev/v1beta1","kind":"Volume","name":"a","namespace":"IN"},"source":{"component":"holdfast-node"}}`
	unfinal   = `{"metadata":{"finalizers":null}}`
	ready     = `{"status":{"phase":"Ready"}}`
	asVersion = `{"status":{"version":"v9"}}`
)

func on(node, body string) string { return strings.ReplaceAll(body, "NODE", node) }

// ofNode are all ways to write what is a node's.
func ofNode(node string) []realapi.Attempt {
	id, lease := strings.ReplaceAll(node, ".", "-"), v1beta1.LeasePrefix+node
	return []realapi.Attempt{
		{Verb: "create", What: theVolumes, Name: "new", Body: on(node, adopted)},
		{Verb: "create", What: theSnapshots, Name: "new", Body: on(node, adoptedS)},
		{Verb: "update", What: theVolumes, Name: id},
		{Verb: "update", What: theSnapshots, Name: id},
		{Verb: "patch", What: theVolumes, Name: id, Body: unfinal},
		{Verb: "patch", What: theSnapshots, Name: id, Body: unfinal},
		{Verb: "patch", What: theVolumes + "/status", Name: id, Body: ready},
		{Verb: "patch", What: theSnapshots + "/status", Name: id, Body: ready},
		{Verb: "update", What: theVolumes + "/status", Name: id},
		{Verb: "patch", What: theVolumes + "/status", Name: id, Body: `{"status":{"access":{"image":"/var/lib/holdfast/x"}}}`},
		{Verb: "apply", What: theStorageNodes, Name: node, Body: aNode},
		{Verb: "patch", What: theStorageNodes, Name: node, Body: `{"spec":{"restore":null}}`},
		{Verb: "patch", What: theStorageNodes + "/status", Name: node, Body: asVersion},
		{Verb: "patch", What: theStorageNodes + "/status", Name: node, Body: `{"status":{"cephClients":[{"fsid":"f","id":"client.1","address":"10.0.0.5:0/1"}]}}`},
		{Verb: "update", What: theLeases, In: namespace, Name: lease},
		{Verb: "patch", What: theLeases, In: namespace, Name: lease, Body: `{"spec":{"holderIdentity":"x"}}`},
	}
}

// neverOfAgents are requests of no agent, on whatever node.
func neverOfAgents(node string) []realapi.Attempt {
	id := strings.ReplaceAll(node, ".", "-")
	return []realapi.Attempt{
		{Verb: "create", What: theVolumes, Name: "new", Body: on(node, asked)}, // only the controller asks for volumes
		{Verb: "patch", What: theVolumes + "/status", Name: id, Body: `{"status":{"access":{"nfs":{"server":"10.0.0.1","path":"/other"}}}}`},
		{Verb: "create", What: theLeases, In: namespace, Name: "holdfast-controller", Body: aLease},
		{Verb: "create", What: theLeases, In: namespace, Name: v1beta1.LeasePrefix + "another", Body: aLease},
		{Verb: "create", What: theLeases, In: "default", Name: v1beta1.LeasePrefix + node, Body: aLease},
		{Verb: "create", What: theStorageNodes, Name: "another", Body: aNode},
		{Verb: "patch", What: "holdfast.dev/v1beta1/storageclusters", Name: "holdfast", Body: `{"spec":{"debug":true}}`},
		{Verb: "patch", What: "holdfast.dev/v1beta1/storageclusters/status", Name: "holdfast", Body: `{"status":{"phase":"Running"}}`},
		{Verb: "create", What: "holdfast.dev/v1beta1/nodejobs", Name: "evil", Body: `{"apiVersion":"holdfast.dev/v1beta1","kind":"NodeJob","spec":{"image":"a","cmd":["true"]}}`},
		{Verb: "create", What: theEvents, In: "kube-system", Name: "e", Body: strings.ReplaceAll(anEvent, "IN", "kube-system")},
		{Verb: "create", What: theEvents, In: "default", Name: "e", Body: strings.ReplaceAll(strings.ReplaceAll(anEvent, "IN", "default"), "holdfast-node", "kubelet")},
		{Verb: "create", What: theEvents, In: "default", Name: "e", Body: strings.ReplaceAll(strings.ReplaceAll(anEvent, "IN", "default"), "holdfast.dev/v1beta1", "v1")},
	}
}

func TestToken_OfANodePodWritesOnlyObjectsOfItsNode(t *testing.T) {
	r := running(t, nil)
	r.keptTo("agents-one", "agents-two")
	agent := r.agentOn("agents-one")
	r.refusedSoon(nodeAccount, agent, realapi.Attempt{Verb: "update", What: theVolumes, Name: "agents-two"})
	inDefault := realapi.Attempt{Verb: "create", What: theEvents, In: "default", Name: "e", Body: strings.ReplaceAll(anEvent, "IN", "default")}
	own := slices.DeleteFunc(append(ofNode("agents-one"), inDefault), func(a realapi.Attempt) bool {
		return a.Verb == "patch" && !strings.HasPrefix(a.What, theStorageNodes) // it has no right to, and needs none
	})
	r.takes("its own, by the rights that it has", agent, own...)
	realapi.AllRights(t, r.config, namespace, agents)
	r.refusedSoon(nodeAccount, agent, realapi.Attempt{Verb: "delete", What: theVolumes, Name: "agents-two"})
	r.takes("its own, with all rights", agent, ofNode("agents-one")...)
	others := append(ofNode("agents-two"), neverOfAgents("agents-one")...)
	others = append(others, realapi.Attempt{
		Verb: "patch", What: theStorageNodes + "/status", Name: "agents-one",
		Body: `{"status":{"conditions":[{"type":"Fenced","status":"True","reason":"A","message":"","lastTransitionTime":"2026-11-25T00:00:00Z"}]}}`,
	})
	for _, verb := range []string{"delete", "deletecollection"} {
		for _, what := range []string{theVolumes, theSnapshots, theStorageNodes} {
			others = append(others, realapi.Attempt{Verb: verb, What: what, Name: "agents-two"})
		}
		others = append(others, realapi.Attempt{Verb: verb, What: theLeases, In: namespace, Name: v1beta1.LeasePrefix + "agents-two"})
	}
	others = append(others, realapi.Attempt{Verb: "deletecollection", What: theVolumes}, realapi.Attempt{Verb: "deletecollection", What: theSnapshots})
	r.refusedAlone(nodeAccount, agent, "agents-one", others)
	r.refusedAlone(nodeAccount, agent, "agents-one", realapi.Forged("agents-one", "agents-one", "agents-one"))
	r.leavesToControllers(nodeAccount, agent, "agents-one")
}

// leavesToControllers fails unless policies refuse an agent the removal of what controllers go by, and requests that are theirs.
func (r *rig) leavesToControllers(policy string, agent *rest.Config, node string) {
	r.Helper()
	id := "marked-" + strings.ReplaceAll(node, ".", "-")
	r.refuses(policy, agent, "", realapi.Unmarked(r.T, r.ours, id, node)...)
	realapi.AllRefused(r, policy, agent, realapi.Reserved(id, node))
	realapi.AllRefused(r, policy, agent, realapi.Requested(id, id, node))
}

// TestToken_OfANodePodMayNotWriteObjectsOfKubernetes: what no policy keeps it from, as the policy is about what is
// Holdfast's. Nor may it delete in one go what it may not delete one by one.
func TestToken_OfANodePodMayNotWriteObjectsOfKubernetes(t *testing.T) {
	r := running(t, nil)
	r.keptTo("agents-one")
	agent := r.agentOn("agents-one")
	const group = "holdfast.dev"
	for right, want := range map[realapi.Right][]string{
		{Group: group, Resource: "volumes"}:                               {"get", "list", "watch", "create", "update", "patch"},
		{Group: group, Resource: "snapshots"}:                             {"get", "list", "watch", "create", "update", "patch"},
		{Group: group, Resource: "volumes", Sub: "status"}:                {"update"},
		{Group: group, Resource: "snapshots", Sub: "status"}:              {"update"},
		{Group: group, Resource: "storagenodes"}:                          {"get", "list", "watch", "create", "patch"},
		{Group: group, Resource: "storagenodes", Sub: "status"}:           {"patch"},
		{Group: group, Resource: "storageclusters"}:                       {"list", "watch"},
		{Group: group, Resource: "storageclusters", Sub: "status"}:        nil,
		{Group: group, Resource: "nodejobs"}:                              nil,
		{Group: group, Resource: "storageupgrades"}:                       nil,
		{Group: group, Resource: "nfsservers"}:                            nil,
		{Group: "coordination.k8s.io", Resource: "leases", In: namespace}: {"get", "create", "update"},
		{Group: "coordination.k8s.io", Resource: "leases", In: "default"}: nil,
		{Resource: "events"}:                                              {"create", "patch"},
		{Resource: "nodes"}:                                               {"list", "watch"},
		{Resource: "nodes", Name: "agents-one"}:                           {"list", "watch"},
		{Resource: "nodes", Sub: "status"}:                                nil,
		{Resource: "nodes", Sub: "proxy"}:                                 nil,
		{Resource: "namespaces"}:                                          nil,
		{Resource: "namespaces", Name: "kube-system"}:                     {"get"},
		{Resource: "persistentvolumes"}:                                   nil,
		{Resource: "persistentvolumes", Sub: "status"}:                    nil,
		{Resource: "serviceaccounts", Sub: "token", In: namespace}:        nil,
		{Group: "apps", Resource: "daemonsets", In: namespace}:            nil,
		{Group: "storage.k8s.io", Resource: "storageclasses"}:             nil,
		{Group: "storage.k8s.io", Resource: "csinodes"}:                   nil,
		{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}:    nil,
	} {
		if got := realapi.Allowed(t, agent, right); !slices.Equal(got, want) {
			t.Errorf("%+v: it may %v, want %v", right, got, want)
		}
	}
	for _, in := range []string{"", namespace, "default", "kube-system"} {
		for _, right := range []realapi.Right{
			{Resource: "persistentvolumeclaims"},
			{Resource: "secrets"},
			{Resource: "pods"},
			{Resource: "configmaps"},
			{Resource: "pods", Sub: "exec"},
			{Resource: "pods", Sub: "ephemeralcontainers"},
			{Resource: "pods", Sub: "binding"},
			{Resource: "pods", Sub: "eviction"},
		} {
			right.In = in
			if got := realapi.Allowed(t, agent, right); len(got) > 0 {
				t.Errorf("%+v: it may %v", right, got)
			}
		}
	}
	for _, a := range []realapi.Attempt{
		{Verb: "deletecollection", What: theVolumes},
		{Verb: "deletecollection", What: theVolumes, Name: "agents-one"},
		{Verb: "deletecollection", What: theSnapshots},
		{Verb: "deletecollection", What: theStorageNodes},
		{Verb: "deletecollection", What: theLeases, In: namespace},
		{Verb: "deletecollection", What: "v1/persistentvolumes"},
		{Verb: "deletecollection", What: "v1/pods", In: namespace},
		{Verb: "delete", What: "v1/pods", In: namespace, Name: "agents-one-pod"},
		{Verb: "create", What: "v1/secrets", In: namespace, Name: "s", Body: `{"apiVersion":"v1","kind":"Secret"}`},
		{Verb: "create", What: "v1/persistentvolumeclaims", In: "default", Name: "c", Body: `{"apiVersion":"v1","kind":"PersistentVolumeClaim"}`},
	} {
		if err := a.Try(t.Context(), agent); !apierrors.IsForbidden(err) || realapi.RefusedBy(nodeAccount, err) {
			t.Errorf("by the rights that it has: %s: %v", a, err)
		}
	}
}

func TestToken_WithoutANodeWritesNothing(t *testing.T) {
	r := running(t, nil)
	r.keptTo("agents-one")
	unbound := realapi.WithToken(t, r.config, namespace, agents, "")
	r.refusedSoon(nodeAccount, unbound, realapi.Attempt{Verb: "update", What: theVolumes, Name: "agents-one"})
	realapi.AllRights(t, r.config, namespace, agents)
	r.refusedSoon(nodeAccount, unbound, realapi.Attempt{Verb: "delete", What: theVolumes, Name: "agents-one"})
	for _, word := range []string{"names no node", "ServiceAccountTokenPodNodeInfo"} {
		r.refuses(nodeAccount, unbound, word, ofNode("agents-one")...)
	}
	const server = "team.shared.nfs.holdfast.dev" // a Node of this name would have what is the server's
	r.keptTo(server)
	realapi.PodOn(t, r.config, namespace, agents, "agents-server-pod", server)
	r.refuses(nodeAccount, realapi.WithToken(t, r.config, namespace, agents, "agents-server-pod"), "", ofNode(server)...)
}

// A client that two nodes have recorded would keep both from being shut out, and one of another node would be shut out.
func TestToken_OfANodePodRecordsNoCephClientOfAnotherNode(t *testing.T) {
	const policy = "holdfast-node-clients"
	r := running(t, nil)
	r.keptTo("clients-one", "clients-two")
	agent := r.agentOn("clients-two")
	record := func(clients ...string) realapi.Attempt {
		all := []v1beta1.CephClient{}
		for _, c := range clients {
			fsid, address, _ := strings.Cut(c, " ")
			all = append(all, v1beta1.CephClient{FSID: fsid, ID: "client.1", Address: v1beta1.CephAddress(address)})
		}
		body := check.Got(json.Marshal(map[string]any{"status": map[string]any{"cephClients": all}}))(t)
		return realapi.Attempt{Verb: "patch", What: theStorageNodes + "/status", Name: "clients-two", Body: string(body)}
	}
	recorded := func(node string, clients ...string) {
		check.Got(r.ours.HoldfastV1beta1().StorageNodes().Patch(t.Context(), node, types.MergePatchType, []byte(record(clients...).Body), metav1.PatchOptions{}, "status"))(t)
	}
	const its, own = "f 10.0.0.5:0/1", "f 10.0.0.6:0/2"
	recorded("clients-one", its)
	recorded("clients-two", own)
	r.refusedSoon(policy, agent, record(its))
	for name, c := range map[string]struct {
		clients []string
		says    string
	}{
		"that of another": {[]string{its}, "node clients-one has recorded"},
		"beside its own":  {[]string{own, its}, "10.0.0.5:0/1 of the Ceph cluster f"},
		"in capitals":     {[]string{"f [2001:DB8::5]:0/3"}, "canonical form"},
		"too long":        {[]string{"f [2001:db8:0::5]:0/3"}, "canonical form"},
		"no address":      {[]string{"f 300.0.0.5:0/3"}, "canonical form"},
	} {
		t.Log(name)
		r.refuses(policy, agent, c.says, record(c.clients...))
	}
	for name, clients := range map[string][]string{
		"a second": {own, "f [2001:db8::5]:0/3"}, "the same number in another cluster": {own, "g 10.0.0.5:0/1"}, "one whose address is not known": {own, "f"}, "none": nil,
	} {
		r.takes(name, agent, record(clients...))
	}
	recorded("clients-one")
	wait.Until(r, "one that no node has any more being free", func() bool { return record(its).Try(t.Context(), agent) == nil })
}

// refusedSoon waits until the API server holds a policy: it reads it some time after it is made.
func (r *rig) refusedSoon(policy string, as *rest.Config, a realapi.Attempt) {
	r.Helper()
	wait.Until(r, "the policy "+policy, func() bool { return realapi.RefusedBy(policy, a.Try(r.Context(), as)) })
}

// takes fails unless the API server takes each request of an account.
func (r *rig) takes(what string, as *rest.Config, attempts ...realapi.Attempt) {
	r.Helper()
	for _, a := range attempts {
		if err := a.Try(r.Context(), as); err != nil {
			r.Errorf("%s: %s: %v", what, a, err)
		}
	}
}

// refuses fails unless a policy refuses each request of an account, with a word of the reason.
func (r *rig) refuses(policy string, as *rest.Config, word string, attempts ...realapi.Attempt) {
	r.Helper()
	for _, a := range attempts {
		if err := a.Try(r.Context(), as); !realapi.RefusedBy(policy, err) || !strings.Contains(err.Error(), word) {
			r.Errorf("policy %s: %s: %v", policy, a, err)
		}
	}
}

// refusedAlone tries what a policy keeps an account from, whatever its rights are, but not an administrator.
func (r *rig) refusedAlone(policy string, as *rest.Config, word string, attempts []realapi.Attempt) {
	r.Helper()
	r.refuses(policy, as, word, attempts...)
	for _, a := range attempts {
		if err := a.Try(r.Context(), r.config); realapi.RefusedBy(policy, err) {
			r.Errorf("an administrator is refused %s: %v", a, err)
		}
	}
}

// borrower asks for loop devices in the way that change says.
func borrower(change func(*core.PodSpec)) *core.Pod {
	one := core.ResourceList{"holdfast.dev/loop-set": resource.MustParse("1")}
	p := &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: "borrower"}, Spec: core.PodSpec{
		NodeName: "nowhere", Containers: []core.Container{{Name: "a", Image: "holdfast.test/pause:1", Resources: core.ResourceRequirements{Limits: one}}},
	}}
	if change != nil {
		change(&p.Spec)
	}
	return p
}

func TestLoopDevices_OnlyPodsOfNFSServerNamespacesMayRequestThem(t *testing.T) {
	r := running(t, nil)
	asIf := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	try := func(namespace string, p *core.Pod) error {
		_, err := r.theirs.CoreV1().Pods(namespace).Create(t.Context(), p, asIf)
		return err
	}
	wait.Until(r, "the policy", func() bool { return realapi.RefusedBy("holdfast-loop-sets", try("default", borrower(nil))) })
	one := core.ResourceList{"holdfast.dev/loop-set": resource.MustParse("1")}
	for what, change := range map[string]func(*core.PodSpec){
		"a limit": func(*core.PodSpec) {},
		"both":    func(s *core.PodSpec) { s.Containers[0].Resources.Requests = one },
		"the second container": func(s *core.PodSpec) {
			s.Containers = append([]core.Container{{Name: "b", Image: "holdfast.test/pause:1"}}, s.Containers...)
		},
		"an init container": func(s *core.PodSpec) {
			s.InitContainers, s.Containers = s.Containers, []core.Container{{Name: "b", Image: "holdfast.test/pause:1"}}
		},
	} {
		err := try("default", borrower(change))
		if !realapi.RefusedBy("holdfast-loop-sets", err) || !strings.Contains(err.Error(), "namespace default") || !strings.Contains(err.Error(), "spec.nfs.namespaces") {
			t.Errorf("%s: %v", what, err)
		}
		if err := try(namespace, borrower(change)); err != nil {
			t.Errorf("%s, in the namespace of Holdfast: %v", what, err)
		}
	}
	if err := try("default", borrower(func(s *core.PodSpec) { s.Containers[0].Resources = core.ResourceRequirements{} })); err != nil {
		t.Errorf("a pod that asks for none: %v", err)
	}
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.NFS.Namespaces = []string{"default"} })
	wait.Until(r, "the namespace being allowed", func() bool { return try("default", borrower(nil)) == nil })
	if err := try("kube-public", borrower(nil)); !realapi.RefusedBy("holdfast-loop-sets", err) {
		t.Errorf("in a namespace that is not allowed, beside one that is: %v", err)
	}

	pods, kept := r.theirs.CoreV1().Pods("default"), borrower(nil)
	kept.Name, kept.Spec.NodeName, kept.Spec.NodeSelector = "kept", "", map[string]string{"test.holdfast.dev/nowhere": "true"}
	check.Got(pods.Create(t.Context(), kept, metav1.CreateOptions{}))(t)
	t.Cleanup(func() { _ = pods.Delete(background, "kept", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}) })
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.NFS.Namespaces = nil })
	wait.Until(r, "the namespace being allowed no more", func() bool {
		return realapi.RefusedBy("holdfast-loop-sets", try("default", borrower(nil)))
	})
	for _, verb := range []string{"update", "delete"} {
		r.takes("a pod that has them", r.config, realapi.Attempt{Verb: verb, What: "v1/pods", In: "default", Name: "kept"})
	}
}

// schemaOf notes by which FlowSchema the last request was taken.
type schemaOf struct {
	next http.RoundTripper
	uid  string
}

func (s *schemaOf) RoundTrip(q *http.Request) (*http.Response, error) {
	answer, err := s.next.RoundTrip(q)
	if err == nil {
		s.uid = answer.Header.Get("X-Kubernetes-PF-FlowSchema-UID")
	}
	return answer, err
}

func TestPriority_IsForTheAccountsOfHoldfastAlone(t *testing.T) {
	r := running(t, nil)
	own := check.Got(r.theirs.FlowcontrolV1().FlowSchemas().Get(t.Context(), "holdfast", metav1.GetOptions{}))(t)
	taken := func(space, account string) string {
		config := rest.CopyConfig(r.config)
		config.Impersonate = rest.ImpersonationConfig{
			UserName: "system:serviceaccount:" + space + ":" + account,
			Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + space, "system:authenticated"},
		}
		var s *schemaOf
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { s = &schemaOf{next: next}; return s })
		_, _ = kubernetes.NewForConfigOrDie(config).CoordinationV1().Leases(space).List(t.Context(), metav1.ListOptions{}) // it may be forbidden
		return s.uid
	}
	wait.Until(r, "the requests of the nodes being taken by it", func() bool { return taken(namespace, "holdfast-node") == string(own.UID) })
	if uid := taken("team-a", "holdfast-node"); uid == string(own.UID) || uid == "" {
		t.Errorf("those of a tenant are taken by %q", uid)
	}
}
