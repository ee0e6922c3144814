package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/report/facts"
	"github.com/holdfast-storage/holdfast/report/status"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

const home = "holdfast-system"

var ready = []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionTrue}}

// well are the facts of a cluster without any trouble.
func well(t *testing.T) *Facts {
	t.Helper()
	f := &Facts{
		Namespace: home, Driver: "csi.holdfast.dev", Now: time.Now(),
		Clusters: []*v1beta1.StorageCluster{{
			ObjectMeta: metav1.ObjectMeta{Name: "holdfast", UID: "c", Generation: 2},
			Spec:       v1beta1.StorageClusterSpec{SecretRef: &v1beta1.SecretReference{Name: "access"}, NFS: v1beta1.NFSSpec{Namespaces: []string{"shop"}}},
			Status:     v1beta1.StorageClusterStatus{Phase: v1beta1.ClusterRunning, ObservedGeneration: 2},
		}},
		StorageNodes: []*v1beta1.StorageNode{storageNode("a"), storageNode("b")},
		Volumes:      []*v1beta1.Volume{{ObjectMeta: metav1.ObjectMeta{Name: "v1"}, Status: v1beta1.VolumeStatus{Phase: v1beta1.PhaseReady, Conditions: ready}}},
		Snapshots:    []*v1beta1.Snapshot{{ObjectMeta: metav1.ObjectMeta{Name: "s1"}, Status: v1beta1.SnapshotStatus{Phase: v1beta1.PhaseReady}}},
		Servers:      []*v1beta1.NFSServer{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "files"}, Status: v1beta1.NFSServerStatus{Phase: v1beta1.NFSRunning}}},
		DaemonSets:   []string{"calico-node", "kube-proxy"},
		Nodes:        []*core.Node{kubeNode("a"), kubeNode("b")},
		CSINodes:     []*storage.CSINode{csiNode("a"), csiNode("b")},
		Drivers:      []*storage.CSIDriver{{ObjectMeta: metav1.ObjectMeta{Name: "csi.holdfast.dev"}}},
		Classes:      []*storage.StorageClass{class("holdfast", "csi.holdfast.dev", true), class("other", "example.com/other", false)},
		Pods:         []*core.Pod{pod("controller", "a"), pod("controller", "b"), pod("node", "a"), pod("node", "b")},
		Home:         &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home, Labels: map[string]string{podSecurity: "privileged"}}},
		Secret:       &core.Secret{Data: map[string][]byte{"username": []byte("u"), "password": []byte("p")}},
		Claims: []*core.PersistentVolumeClaim{
			claim("bound", "holdfast", core.ClaimBound), claim("foreign", "other", core.ClaimPending),
		},
		Policies:        policiesOf(),
		Borrowers:       []string{home + "/nfs-files-0"},
		Definitions:     definitionsOf(),
		SnapshotClasses: []*unstructured.Unstructured{{Object: map[string]any{"driver": "csi.holdfast.dev"}}},
		GroupClasses:    []*unstructured.Unstructured{{Object: map[string]any{"driver": "csi.holdfast.dev"}}},
		Hidden:          map[string]error{}, Unknown: map[string]error{},
	}
	return f
}

// policiesOf are those that a cluster with an NFS server has.
func policiesOf() (all []string) {
	for _, name := range append(render.Limits(&v1beta1.StorageClusterSpec{}), render.ServerLimits()...) {
		all = append(all, facts.PolicyKind+" "+name, facts.BindingKind+" "+name)
	}
	return all
}

func without(f *Facts, policy string) {
	f.Policies = slices.DeleteFunc(f.Policies, func(p string) bool { return p == policy })
}

// definitionsOf are those that are installed.
func definitionsOf() map[string]*unstructured.Unstructured {
	found := map[string]*unstructured.Unstructured{}
	for _, d := range slices.Concat(deploy.Definitions(), deploy.SnapshotDefinitions()) {
		found[d.GetName()] = d
	}
	return found
}

func storageNode(name string) *v1beta1.StorageNode {
	room := func(n int64) resource.Quantity { return *resource.NewQuantity(n<<30, resource.BinarySI) }
	return &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1beta1.StorageNodeStatus{
		Conditions: slices.Clone(ready), Pools: []v1beta1.Pool{{Name: "default", Capacity: room(100), Used: room(10), Available: room(50), Smallest: room(1)}},
	}}
}

func kubeNode(name string) *core.Node {
	return &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{core.LabelOSStable: "linux"}}}
}

func csiNode(name string) *storage.CSINode {
	return &storage.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storage.CSINodeSpec{Drivers: []storage.CSINodeDriver{{Name: "csi.holdfast.dev"}}}}
}

func class(name, provisioner string, isDefault bool) *storage.StorageClass {
	mode := storage.VolumeBindingWaitForFirstConsumer
	c := &storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: &mode}
	if isDefault {
		c.Annotations = map[string]string{render.DefaultClass: "true"}
	}
	return c
}

func pod(part, node string) *core.Pod {
	return &core.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: part + "-" + node, Namespace: home, Labels: map[string]string{"app.kubernetes.io/name": "holdfast", "app.kubernetes.io/component": part}},
		Spec: core.PodSpec{NodeName: node, Volumes: []core.Volume{
			{Name: "kubelet", VolumeSource: core.VolumeSource{HostPath: &core.HostPathVolumeSource{Path: "/var/lib/kubelet"}}},
		}},
		Status: core.PodStatus{Phase: core.PodRunning, Conditions: []core.PodCondition{{Type: core.PodReady, Status: core.ConditionTrue}}},
	}
}

func claim(name, class string, phase core.PersistentVolumeClaimPhase) *core.PersistentVolumeClaim {
	return &core.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}, Spec: core.PersistentVolumeClaimSpec{StorageClassName: &class},
		Status: core.PersistentVolumeClaimStatus{Phase: phase},
	}
}

func warning(kind, namespace, name, reason, message string) *core.Event {
	return &core.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Type: core.EventTypeWarning, Reason: reason, Message: message,
		InvolvedObject: core.ObjectReference{Kind: kind, Namespace: namespace, Name: name}, LastTimestamp: metav1.Now(),
	}
}

// waits makes a pod one whose container does not start.
func waits(p *core.Pod, reason string) {
	p.Status.Conditions = []core.PodCondition{{Type: core.PodReady, Status: core.ConditionFalse}}
	p.Status.ContainerStatuses = []core.ContainerStatus{{Name: "holdfast", State: core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: reason, Message: "for a reason"}}}}
}

func TestWhatIsNoTroubleIsFineInEveryCheck(t *testing.T) {
	for name, change := range map[string]func(*Facts){
		"all is well": func(*Facts) {},
		"there is no CSI": func(f *Facts) {
			f.Clusters[0].Spec.CSI.Enabled = new(false)
			f.Drivers, f.CSINodes, f.SnapshotClasses, f.GroupClasses = nil, nil, nil, nil
		},
		"inline volumes are allowed": func(f *Facts) {
			f.InlineUsers, f.Clusters[0].Spec.CSI.Ephemeral = []string{"shop/a"}, &v1beta1.EphemeralSpec{}
		},
		"there is no server to reach": func(f *Facts) {
			f.DaemonSets, f.Servers, f.Hidden[facts.DaemonSets] = nil, nil, errors.New("forbidden to the controller")
		},
		"a server is open to a network":                func(f *Facts) { f.Servers[0].Spec.Exports.Clients = []string{"10.0.0.0/8"} },
		"a claim of another class has lost its volume": func(f *Facts) { lose(f, "other", "v1") },
		"a claim of another driver has lost it":        func(f *Facts) { lose(f, "", "of another driver") },
	} {
		f := well(t)
		change(f)
		all := Examine(f)
		if len(all) != len(Checks()) || Ill(all) {
			t.Errorf("%s: %d findings of %d checks", name, len(all), len(Checks()))
		}
		for _, f := range all {
			if f.Level != Fine {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
}

// trouble is one thing that goes wrong, and what must be said of it.
type trouble struct {
	check string
	level Level
	cause func(f *Facts)
	want  string // in what is found
	do    string // in what to do; empty if that is open
}

func troubles() map[string]trouble {
	return map[string]trouble{
		"a definition is missing": {"kinds", Problem, func(f *Facts) { delete(f.Definitions, "volumes.holdfast.dev") }, "it is missing", "install.yaml"},
		"a definition is older":   {"kinds", Problem, func(f *Facts) { unset(f, "volumes.holdfast.dev", "spec", "onNodeLoss") }, "lacks spec.onNodeLoss", "install.yaml"},
		"an older list":           {"kinds", Problem, func(f *Facts) { unset(f, "storagenodes.holdfast.dev", "status", "pools", "[]", "largest") }, "lacks status.pools.largest", "install.yaml"},
		"a definition is newer":   {"kinds", Warning, func(f *Facts) { set(f, "volumes.holdfast.dev", "spec", "colour") }, "newer release than this program: it has spec.colour", "release that is installed"},
		"another has its name":    {"kinds", Problem, clash, `"volume" is already in use`, "remove that one"},
		"it is not served":        {"kinds", Problem, notServed, "older release", "install.yaml"},
		"no policies":             {"protection", Problem, func(f *Facts) { f.Unknown[facts.Policies], f.Policies = errors.New("no such kind"), nil }, "is switched off in the API server", ""},
		"a policy is missing":     {"protection", Problem, func(f *Facts) { without(f, "ValidatingAdmissionPolicy holdfast-loop-sets") }, "it is missing", "condition Protected"},
		"a binding is missing":    {"protection", Problem, func(f *Facts) { without(f, "ValidatingAdmissionPolicyBinding holdfast-nfs-account") }, "it is missing", "condition Protected"},
		"a policy was changed":    {"protection", Problem, func(f *Facts) { f.Served().Status.Conditions = unprotected }, "policy p was changed", "whether a controller runs"},
		"one of servers was":      {"protection", Problem, func(f *Facts) { f.Servers[0].Status.Conditions = unprotected }, "policy p was changed", "whether a controller runs"},
		"a pod has loop devices":  {"protection", Problem, func(f *Facts) { f.Borrowers = append(f.Borrowers, "market/web-0") }, "may read and write volumes of others", "kubectl -n market delete pod web-0"},
		"no cluster":              {"storagecluster", Problem, func(f *Facts) { f.Clusters = nil }, "no StorageCluster", "install.yaml"},
		"two clusters":            {"storagecluster", Warning, func(f *Facts) { f.Clusters = append(f.Clusters, second) }, "since holdfast is served", "kubectl delete storageclusters.holdfast.dev second"},
		"a degraded cluster":      {"storagecluster", Problem, degrade, "Degraded: node a is gone", ""},
		"a paused cluster":        {"storagecluster", Note, func(f *Facts) { f.Clusters[0].Status.Phase = v1beta1.ClusterPaused }, "paused", "spec.paused"},
		"a cluster that goes":     {"storagecluster", Problem, func(f *Facts) { f.Clusters[0].Status.Phase = v1beta1.ClusterTerminating }, "being removed", "Orphan"},
		"a cluster not seen yet":  {"storagecluster", Problem, func(f *Facts) { f.Clusters[0].Status = v1beta1.StorageClusterStatus{} }, "no controller has looked at it", "controller runs"},
		"a change not seen yet":   {"storagecluster", Problem, func(f *Facts) { f.Clusters[0].Generation = 3 }, "last change", "controller runs"},
		"no namespace":            {"namespace", Problem, func(f *Facts) { f.Home = nil }, "does not exist", "--namespace"},
		"no label":                {"namespace", Warning, func(f *Facts) { f.Home.Labels = nil }, "no label", "kubectl label --overwrite namespace holdfast-system"},
		"another label":           {"namespace", Problem, func(f *Facts) { f.Home.Labels[podSecurity] = "baseline" }, `"baseline"`, "=privileged"},
		"pods that are forbidden": {"namespace", Problem, forbidPods, "violates PodSecurity", "=privileged"},
		"no controller":           {"controller", Problem, func(f *Facts) { f.Pods = f.Pods[2:] }, "no pod of the controller", "describe deployment holdfast-controller"},
		"no image":                {"controller", Problem, func(f *Facts) { waits(f.Pods[0], "ImagePullBackOff"); waits(f.Pods[1], "ImagePullBackOff") }, "ImagePullBackOff", "kubectl -n holdfast-system logs controller-a"},
		"one replica less":        {"controller", Warning, func(f *Facts) { waits(f.Pods[0], "CrashLoopBackOff") }, "CrashLoopBackOff", "logs"},
		"no secret":               {"secret", Problem, func(f *Facts) { f.Secret = nil }, "does not exist", "kubectl -n holdfast-system create secret generic access"},
		"no user":                 {"secret", Warning, func(f *Facts) { delete(f.Secret.Data, "username") }, "no key username", "Add it"},
		"no credentials":          {"secret", Problem, func(f *Facts) { f.Clusters[0].Spec.CSI.Credentials.NodePublish = true }, "no key csiNodePublishPassword, which spec.csi.credentials.nodePublish needs", "switch the field off"},
		"no pair for the ingress": {"secret", Problem, func(f *Facts) { f.Clusters[0].Spec.Ingress = v1beta1.IngressSpec{Enabled: true, TLS: true} }, "no key tls.key", ""},
		"credentials of no secret": {"secret", Problem, func(f *Facts) {
			f.Clusters[0].Spec.SecretRef = nil
			f.Clusters[0].Spec.CSI.Credentials.Provision = true
		}, "spec.csi.credentials.provision needs a secret", "csiProvisionUsername and csiProvisionPassword"},
		"a line break":            {"secret", Warning, func(f *Facts) { f.Secret.Data["password"] = []byte("p\n") }, "line break", "echo -n"},
		"no pair":                 {"secret", Problem, func(f *Facts) { f.Secret.Data["tls.crt"] = []byte("nonsense") }, "no pair", "PEM"},
		"no node is meant":        {"nodes", Problem, func(f *Facts) { f.Clusters[0].Spec.NodeSelectorTerms = terms("disk", "ssd") }, "match none of the 2 nodes", "label nodes"},
		"terms that are wrong":    {"nodes", Problem, func(f *Facts) { f.Clusters[0].Spec.NodeSelectorTerms = terms("no label!", "ssd") }, "cannot be read", "Correct it"},
		"a node without agent":    {"nodes", Problem, func(f *Facts) { f.Pods = f.Pods[:3] }, "no pod of Holdfast is there", "describe daemonset holdfast-node"},
		"an agent that fails":     {"nodes", Problem, func(f *Facts) { waits(f.Pods[3], "CrashLoopBackOff") }, "CrashLoopBackOff for a reason", "logs node-b"},
		"a pod without a place":   {"nodes", Problem, func(f *Facts) { unscheduled(f.Pods[3]) }, "it finds no node: 2 Insufficient memory", ""},
		"an agent that is silent": {"nodes", Problem, func(f *Facts) { f.StorageNodes = f.StorageNodes[:1] }, "has not reported", "logs"},
		"an agent not heard of":   {"nodes", Problem, reports(v1beta1.ReadyCondition, "Unknown", "", "it is not heard of"), "not heard of", ""},
		"a kubelet elsewhere":     {"kubelet", Problem, func(f *Facts) { f.CSINodes[1].Spec.Drivers = nil }, "does not know the driver csi.holdfast.dev", "It is /var/lib/kubelet now"},
		"a kubelet of k0s":        {"kubelet", Problem, func(f *Facts) { f.CSINodes = nil; f.Nodes[0].Status.NodeInfo.KubeletVersion = "v1.36.0+k0s" }, "does not know the driver", "to /var/lib/k0s/kubelet"},
		"a directory not there":   {"kubelet", Problem, noDirectory, "hostPath type check failed", "to /var/snap/microk8s/common/var/lib/kubelet"},
		"no driver":               {"driver", Problem, func(f *Facts) { f.Drivers = nil }, "it is missing", "StorageCluster holdfast"},
		"full copies": {"pools", Note, func(f *Facts) {
			p := &f.StorageNodes[0].Status.Pools[0]
			p.Engine, p.FileSystem, p.SnapshotCost = v1beta1.EngineImage, "ext4", v1beta1.SnapshotFull
		}, "a snapshot or clone is a full copy in pool", "xfs or btrfs"},
		"a full disk":                  {"pools", Problem, func(f *Facts) { p := &f.StorageNodes[0].Status.Pools[0]; p.Used = p.Capacity }, "full to 100%", "add a disk"},
		"a server that is down":        {"servers", Problem, func(f *Facts) { f.Servers[0].Status.Phase = v1beta1.NFSDegraded }, "say no more", "kubectl -n shop describe nfsservers.holdfast.dev files"},
		"a server that is not allowed": {"namespaces of servers", Warning, func(f *Facts) { f.Clusters[0].Spec.NFS = v1beta1.NFSSpec{} }, "no new volumes", `"namespaces":["shop"]`},
		"it is unknown what is shut":   {"network of servers", Note, func(f *Facts) { f.DaemonSets = []string{"kube-flannel-ds"} }, "not known", ""},
		"nothing is shut":              {"network of servers", Note, func(f *Facts) { f.Clusters[0].Spec.NFS.NetworkPolicies = new(false) }, "no NetworkPolicies", ""},
		"a server that is open":        {"network of servers", Warning, func(f *Facts) { f.Servers[0].Spec.Exports.Clients = []string{"10.0.0.7", "0.0.0.0/0"} }, "everybody", "exports.clients"},
		"a server that waits":          {"servers", Warning, func(f *Facts) { f.Servers[0].Status.Phase = v1beta1.NFSPending }, "has not served yet", "describe nfsserver"},
		"a server that goes, and may not be there": {"servers", Warning, func(f *Facts) {
			f.Servers[0].Status.Phase = v1beta1.NFSTerminating
			f.Servers[0].Status.Conditions = []metav1.Condition{
				{Type: v1beta1.DegradedCondition, Status: metav1.ConditionTrue, Message: "its namespace is not allowed"},
				{Type: v1beta1.ProgressingCondition, Status: metav1.ConditionFalse, Message: "it has 1 snapshot"},
			}
		}, "being removed: it has 1 snapshot", "Delete the claims"},
		"a server not seen yet":          {"servers", Problem, func(f *Facts) { f.Servers[0].Generation = 2 }, "no controller has looked at", "controller runs"},
		"a node without NFS":             {"shared volumes", Warning, reports(v1beta1.SharedVolumesCondition, "False", "", "it has no client of NFS"), "no client of NFS", "topology.holdfast.dev/nfs=true"},
		"a node that is shut out":        {"fences", Warning, reports(v1beta1.FencedCondition, "True", v1beta1.ReasonFenced, "its 2 clients are shut out"), "its 2 clients are shut out", "delete its Node"},
		"a node that cannot be shut out": {"fences", Problem, reports(v1beta1.FencedCondition, "False", v1beta1.ReasonNotFenced, "a client has no address"), "a client has no address", "fencing.md"},
		"a refused key":                  {"pools", Warning, reports(v1beta1.KeyRefusedCondition, "True", "", "Ceph refuses client.a"), "Ceph refuses client.a", ""},
		"a refused key of nodes":         {"pools", Warning, reports(v1beta1.NodeUserRefusedCondition, "True", "", "Ceph refuses client.a-node"), "nodes cannot use its volumes: Ceph refuses client.a-node", "What can be wrong"},
		"a node without Ceph":            {"Ceph volumes", Warning, reports(v1beta1.CephFSVolumesCondition, "False", "", "the kernel has no module ceph"), "no module ceph", "scheduled to other nodes"},
		"no default class":               {"default class", Warning, func(f *Facts) { f.Classes[0].Annotations = nil }, "no default class", "kubectl annotate storageclass NAME"},
		"two default classes":            {"default class", Problem, func(f *Facts) { f.Classes = append(f.Classes, class("second", "example.com/other", true)) }, "holdfast, second", "Take the mark"},
		"no snapshot kinds":              {"snapshots", Warning, func(f *Facts) { delete(f.Definitions, facts.SnapshotDefinition) }, facts.SnapshotDefinition, "its log says why"},
		"no snapshot class":              {"snapshots", Warning, func(f *Facts) { f.SnapshotClasses[0].Object["driver"] = "other" }, "no VolumeSnapshotClass", "snapshotclass.yaml"},
		"no group kinds":                 {"snapshots", Note, func(f *Facts) { delete(f.Definitions, facts.GroupClassDefinition) }, "in groups", "its log says why"},
		"no group class":                 {"snapshots", Note, func(f *Facts) { f.GroupClasses = nil }, "no VolumeGroupSnapshotClass", "StorageCluster"},
		"one out of reach":               {"volumes", Problem, func(f *Facts) { f.Volumes[0].Status.Phase = v1beta1.PhaseUnreachable }, "it is Unreachable", ""},
		"a volume with errors":           {"volumes", Problem, func(f *Facts) { f.Volumes[0].Status.Conditions = sick(v1beta1.ReasonFileSystem) }, "it is ill", "stop the pods"},
		"a small volume":                 {"volumes", Problem, func(f *Facts) { f.Volumes[0].Status.Conditions = sick(v1beta1.ReasonNotGrown) }, "it is ill", "tried again"},
		"a pool with errors":             {"nodes", Problem, reports(v1beta1.HealthyCondition, "False", "", "it is ill"), "it is ill", "drain the node"},
		"an unreadable object":           {"objects", Problem, func(f *Facts) { f.Jobs = []*v1beta1.NodeJob{{Decoding: v1beta1.Decoding{DecodeError: "no time"}}} }, "no time", "Correct the field"},
		"inline volumes":                 {"inline volumes", Warning, func(f *Facts) { f.InlineUsers = []string{"shop/b", "shop/a"} }, "2 pods ask for inline", "spec"},
		"a failed snapshot":              {"volumes", Problem, func(f *Facts) { f.Snapshots[0].Status.Phase = v1beta1.PhaseFailed }, "it is Failed", ""},
		"a claim that failed": {"claims", Problem, func(f *Facts) {
			pend(f, "holdfast")
			f.Warnings = append(f.Warnings, warning("PersistentVolumeClaim", "shop", "mine", "ProvisioningFailed", "no node has room"))
		}, "ProvisioningFailed: no node has room", ""},
		"a claim without a pod":     {"claims", Note, func(f *Facts) { pend(f, "holdfast") }, "waits for the first pod", "Start a pod"},
		"a claim of a waiting pod":  {"claims", Problem, func(f *Facts) { pend(f, "holdfast"); f.Pods = append(f.Pods, user()) }, "pod shopper: it finds no node: 2 Insufficient memory", ""},
		"a claim of no class":       {"claims", Problem, func(f *Facts) { pend(f, "gone") }, "its class gone does not exist", "spec.storageClasses"},
		"a claim that names none":   {"claims", Problem, func(f *Facts) { pend(f, ""); f.Claims[2].Spec.StorageClassName = nil; f.Classes[0].Annotations = nil }, "no default one", "make one the default"},
		"a claim without an event":  {"claims", Problem, func(f *Facts) { pend(f, "holdfast"); f.Classes[0].VolumeBindingMode = nil }, "no event says why", "csi-provisioner"},
		"a claim that lost its own": {"claims", Problem, func(f *Facts) { lose(f, "holdfast", "pvc-9") }, "PersistentVolume pvc-9 is gone", "before you make another claim"},
		"one that lost its class":   {"claims", Problem, func(f *Facts) { lose(f, "gone", "pvc-9") }, "PersistentVolume pvc-9 is gone", "holdfast volumes trash"},
		"one that has its data":     {"claims", Problem, func(f *Facts) { lose(f, "holdfast", "v1") }, "PersistentVolume v1 is gone, or that of another claim; its volume v1 is Ready", "holdfast volumes adopt v1 --claim shop/mine"},
		"its data, and no class":    {"claims", Problem, func(f *Facts) { lose(f, "gone", "v1") }, "its volume v1 is Ready", "holdfast volumes adopt v1 --claim shop/mine"},
		"its data, and none named":  {"claims", Problem, func(f *Facts) { lose(f, "", "v1") }, "its volume v1 is Ready", "holdfast volumes adopt v1 --claim shop/mine"},
		"its data by another name": {"claims", Problem, func(f *Facts) {
			lose(f, "holdfast", "pvc-1")
			f.Volumes[0].Spec.Labels = map[string]string{v1beta1.PersistentVolumeLabel: "pvc-1"}
		}, "PersistentVolume pvc-1 is gone", "holdfast volumes adopt v1 --claim shop/mine"},
		"its volume is lost, too": {"claims", Problem, func(f *Facts) { lose(f, "holdfast", "v1"); f.Volumes[0].Status.Phase = v1beta1.PhaseLost }, "its volume v1 is Lost", "First see what is wrong with the volume"},
	}
}

var second = &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{Name: "second", UID: "d"}}

var unprotected = []metav1.Condition{{Type: v1beta1.ProtectedCondition, Status: metav1.ConditionFalse, Reason: "x", Message: "policy p was changed"}}

// reports gives the second node another condition.
func reports(kind string, status metav1.ConditionStatus, reason, message string) func(*Facts) {
	return func(f *Facts) {
		meta.SetStatusCondition(&f.StorageNodes[1].Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
	}
}

func sick(reason string) []metav1.Condition {
	return []metav1.Condition{{Type: v1beta1.HealthyCondition, Status: metav1.ConditionFalse, Reason: reason, Message: "it is ill"}}
}

func TestEachTroubleIsFoundByItsCheckWithWhatToDo(t *testing.T) {
	failed := map[string]bool{}
	for name, trouble := range troubles() {
		t.Run(name, func(t *testing.T) {
			f := well(t)
			trouble.cause(f)
			var found []string
			for _, one := range Examine(f) {
				if one.Check != trouble.check {
					continue
				}
				found = append(found, fmt.Sprintf("%+v", one))
				if one.Level == trouble.level && strings.Contains(one.What, trouble.want) && strings.Contains(one.Do, trouble.do) {
					failed[trouble.check] = true
					return
				}
			}
			t.Errorf("found %s", strings.Join(found, "\n"))
		})
	}
	for _, c := range Checks() {
		if !failed[c.Name] {
			t.Errorf("nothing makes the check %q fail", c.Name)
		}
	}
}

func TestWhatIsAProblemIsNotCalledWellByStatus(t *testing.T) {
	if r, err := status.Look(well(t)); err != nil || !r.Well {
		t.Fatalf("without trouble: %v, %+v", err, r)
	}
	seen := 0
	for name, trouble := range troubles() {
		ours := slices.Contains([]string{"objects", "storagecluster", "pools", "servers", "volumes"}, trouble.check)
		if trouble.level != Problem || !ours && name != "an agent not heard of" && name != "a pool with errors" {
			continue
		}
		seen++
		f := well(t)
		trouble.cause(f)
		if r, err := status.Look(f); err != nil || r.Well {
			t.Errorf("%s: %v, %+v", name, err, r)
		}
	}
	if seen < 15 {
		t.Errorf("%d troubles were looked at", seen)
	}
}

func properties(f *Facts, definition string, path ...string) map[string]any {
	versions := f.Definitions[definition].Object["spec"].(map[string]any)["versions"].([]any)
	at := versions[0].(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
	for _, step := range path {
		if step == "[]" {
			at = at["items"].(map[string]any)
			continue
		}
		at = at["properties"].(map[string]any)[step].(map[string]any)
	}
	return at["properties"].(map[string]any)
}

func unset(f *Facts, definition string, path ...string) {
	delete(properties(f, definition, path[:len(path)-1]...), path[len(path)-1])
}

func set(f *Facts, definition string, path ...string) {
	properties(f, definition, path[:len(path)-1]...)[path[len(path)-1]] = map[string]any{"type": "string"}
}

func clash(f *Facts) {
	f.Definitions["volumes.holdfast.dev"].Object["status"] = map[string]any{"conditions": []any{
		map[string]any{"type": "NamesAccepted", "status": "False", "message": `"volume" is already in use`},
	}}
}

func notServed(f *Facts) {
	f.Definitions["volumes.holdfast.dev"].Object["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)["served"] = false
}

func degrade(f *Facts) {
	f.Clusters[0].Status.Phase = v1beta1.ClusterDegraded
	f.Clusters[0].Status.Conditions = []metav1.Condition{{Type: v1beta1.DegradedCondition, Status: metav1.ConditionTrue, Message: "node a is gone"}}
}

func forbidPods(f *Facts) {
	f.Home.Labels = nil
	f.Warnings = append(f.Warnings, warning("DaemonSet", home, "holdfast-node", "FailedCreate", `pods "x" is forbidden: violates PodSecurity "baseline:latest"`))
}

func unscheduled(p *core.Pod) {
	p.Status.Conditions = []core.PodCondition{{Type: core.PodScheduled, Status: core.ConditionFalse, Message: "2 Insufficient memory"}}
}

func noDirectory(f *Facts) {
	f.Pods[3].Status.Conditions = nil
	f.Nodes[1].Labels["microk8s.io/cluster"] = "true"
	f.Warnings = append(f.Warnings, warning("Pod", home, "node-b", "FailedMount", "hostPath type check failed: /var/lib/kubelet is not a directory"))
}

func terms(key, value string) []core.NodeSelectorTerm {
	return []core.NodeSelectorTerm{{MatchExpressions: []core.NodeSelectorRequirement{{Key: key, Operator: core.NodeSelectorOpIn, Values: []string{value}}}}}
}

// pend adds the claim shop/mine.
func pend(f *Facts, class string) {
	f.Claims = append(f.Claims, claim("mine", class, core.ClaimPending))
}

// lose adds the claim shop/mine, which has lost its PersistentVolume.
func lose(f *Facts, class, named string) {
	pend(f, class)
	f.Claims[2].Status.Phase, f.Claims[2].Spec.VolumeName = core.ClaimLost, named
}

func user() *core.Pod {
	p := &core.Pod{ObjectMeta: metav1.ObjectMeta{Name: "shopper", Namespace: "shop"}, Spec: core.PodSpec{Volumes: []core.Volume{
		{Name: "data", VolumeSource: core.VolumeSource{PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: "mine"}}},
	}}}
	unscheduled(p)
	return p
}

func TestWithoutAClusterNobodySaysThatItsPartsAreFine(t *testing.T) {
	f := well(t)
	f.Clusters = nil
	for _, one := range Examine(f) {
		if slices.Contains([]string{"secret", "nodes", "kubelet", "driver", "snapshots"}, one.Check) && (one.Level != Note || !strings.Contains(one.What, "no StorageCluster")) {
			t.Errorf("%+v", one)
		}
	}
}

func TestWhatCouldNotBeReadIsToldAndIsNoProblem(t *testing.T) {
	f := well(t)
	f.Hidden[facts.Claims] = errors.New("forbidden to you")
	f.Claims = nil
	all := Examine(f)
	i := slices.IndexFunc(all, func(one Finding) bool { return one.Check == "claims" })
	if Ill(all) || all[i].Level != Note || !strings.Contains(all[i].What, "forbidden to you") {
		t.Errorf("%+v", all[i])
	}
}

// expects looks for words in a text.
func expects(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q is not in:\n%s", word, text)
		}
	}
}

// said is the text about what Examine finds.
func said(t *testing.T, f *Facts) string {
	t.Helper()
	var b strings.Builder
	check.OK(t, Text(&b, Examine(f)))
	return b.String()
}

func TestProblemAfterManyNotesIsFoundAndFirstInTheText(t *testing.T) {
	f := well(t)
	for i := range 30 {
		f.Claims = append(f.Claims, claim(fmt.Sprintf("unused-%02d", i), "holdfast", core.ClaimPending))
	}
	f.Claims = append(f.Claims, claim("zoo", "gone", core.ClaimPending))
	all := Examine(f)
	if !Ill(all) || !slices.ContainsFunc(all, func(one Finding) bool { return one.Object == "claim shop/zoo" && one.Level == Problem }) {
		t.Errorf("the problem is not among %d findings", len(all))
	}
	text := said(t, f)
	const asks = "Are all claims bound, or is it known why not?\n"
	expects(t, text,
		asks+"  problem: claim shop/zoo: ",
		"  note: claim shop/unused-18: ", "\n  and 11 more, which -o json has\n",
	)
	if strings.Contains(text, "unused-19") {
		t.Errorf("more than %d findings of a check:\n%s", maxFindings, text)
	}
}

func TestOfClaim_FindsWhatIsAboutThatClaimAndItsVolumeAlone(t *testing.T) {
	f := well(t)
	pend(f, "gone") // shop/mine
	f.Claims = append(f.Claims, claim("other", "gone", core.ClaimPending))
	f.Secret, f.Volumes[0].Status.Phase, f.Volumes[0].Spec.ClaimRef = nil, v1beta1.PhaseLost, &v1beta1.NamespacedReference{Namespace: "shop", Name: "lost"}
	forbidden := well(t)
	forbidden.Hidden[facts.Claims], forbidden.Claims = errors.New("forbidden to you"), nil
	for name, c := range map[string]struct {
		facts *Facts
		level Level
		what  string
	}{
		"shop/mine":  {f, Problem, "its class gone does not exist"},
		"shop/lost":  {f, Problem, "it is Lost"},
		"shop/bound": {f, Note, "it is Bound"},
		"shop/none":  {f, Problem, "no such claim"},
		"mine":       {f, Problem, "no such claim"},
		"shop/any":   {forbidden, Note, "forbidden to you"},
	} {
		found := OfClaim(c.facts, name)
		if len(found) != 1 || found[0].Level != c.level || !strings.Contains(found[0].What, c.what) {
			t.Errorf("%s: found is %+v", name, found)
		}
	}
}

func TestTheTextHasEveryFindingBelowItsQuestion(t *testing.T) {
	f := well(t)
	f.Secret = nil
	f.Volumes[0].Status.Phase = v1beta1.PhaseLost
	text := said(t, f)
	expects(t, text,
		"Does a controller run?\n  yes\n",
		"from its secret?\n  problem: Secret holdfast-system/access: it does not exist",
		"\n      kubectl -n holdfast-system create secret",
		"problem: Volume v1: it is Lost",
	)
}

func TestText_WhatOthersWroteDoesNotMoveTheCursor(t *testing.T) {
	const erases = "\x1b[2J\x1b[H\u009b2J All is well"
	f := well(t)
	f.Claims = append(f.Claims, claim("odd", "holdfast", core.ClaimPending))
	f.Warnings = []*core.Event{warning("PersistentVolumeClaim", "shop", "odd", "Odd"+erases, "message"+erases)}
	waits(f.Pods[2], "CrashLoopBackOff")
	f.Pods[2].Status.ContainerStatuses[0].LastTerminationState.Terminated = &core.ContainerStateTerminated{ExitCode: 1, Message: "ended" + erases}
	findings := append(Examine(f), Finding{Level: Problem, Object: "object" + erases, What: "what", Do: "do" + erases})
	var b strings.Builder
	check.OK(t, Text(&b, findings))
	expects(t, b.String(), "message [2J [H 2J All is well", "ended [2J", "object [2J", "do [2J")
	if strings.ContainsAny(b.String(), "\x1b\u009b") {
		t.Errorf("%q", &b)
	}
}
