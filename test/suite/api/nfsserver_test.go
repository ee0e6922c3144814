package api_test

import (
	"context"
	"slices"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// serverNamespace is one that every cluster has.
const serverNamespace = metav1.NamespaceDefault

// fullServer has every field set, but for those that exclude each other.
func fullServer() *v1beta1.NFSServer {
	return &v1beta1.NFSServer{
		ObjectMeta: metav1.ObjectMeta{Namespace: serverNamespace, GenerateName: "test-server-"},
		Spec: v1beta1.NFSServerSpec{
			Storage: &v1beta1.NFSStorage{StorageClassName: new("fast"), Size: amount("10Gi")},
			Engine:  v1beta1.EngineDirectory,
			Exports: v1beta1.NFSExports{
				Squash: v1beta1.NFSSquashRoot, AnonUID: new(int64(0)), AnonGID: new(int64(4294967294)), Access: v1beta1.NFSReadOnly,
				Clients: []string{"10.0.0.0/8", "10.0.0.7", "10.0.0.7/32", "fd00::/8", "fd00::/99", "fd00::1", "fd00::1/128"},
			},
			Service:    v1beta1.NFSService{Type: core.ServiceTypeLoadBalancer, Annotations: map[string]string{"a": "b"}, ClusterIP: "10.96.0.7"},
			MaxExports: 65535, GracePeriod: v1beta1.DurationOf(90 * time.Second),
			Resources:         core.ResourceRequirements{Limits: core.ResourceList{"memory": *amount("1Gi")}},
			Tolerations:       []core.Toleration{{Operator: core.TolerationOpExists}},
			NodeSelectorTerms: []core.NodeSelectorTerm{{MatchFields: []core.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{nowhere}}}}},
			MountOptions:      []string{"nconnect=4", "noatime", "vers=4.1", "proto=tcp"}, ReclaimPolicy: core.PersistentVolumeReclaimDelete,
		},
	}
}

func createServer(t *testing.T, change func(*v1beta1.NFSServer)) error {
	t.Helper()
	s := fullServer()
	change(s)
	_, err := client.HoldfastV1beta1().NFSServers(serverNamespace).Create(t.Context(), s, metav1.CreateOptions{DryRun: dryRun})
	return err
}

func publish(s *v1beta1.NFSServer) {
	s.Spec.Storage, s.Spec.Publish = nil, &v1beta1.NFSPublication{ClaimName: "photos"}
}

func storage(s v1beta1.NFSStorage) func(*v1beta1.NFSServer) {
	return func(n *v1beta1.NFSServer) { n.Spec.Storage = &s }
}

func TestNFSServer_KeepsEveryField(t *testing.T) {
	needServer(t)
	want := fullServer()
	s := makeServer(t, want)
	if !equality.Semantic.DeepEqual(s.Spec, want.Spec) {
		t.Errorf("written was %+v, read %+v", want.Spec, s.Spec)
	}
}

func makeServer(t *testing.T, s *v1beta1.NFSServer) *v1beta1.NFSServer {
	t.Helper()
	servers := client.HoldfastV1beta1().NFSServers(serverNamespace)
	made := check.Got(servers.Create(t.Context(), s, metav1.CreateOptions{}))(t)
	t.Cleanup(func() { ended(t, servers.Delete(context.Background(), made.Name, metav1.DeleteOptions{})) })
	return made
}

func TestNFSServer_ImmutableFieldsCannotBeChanged(t *testing.T) {
	needServer(t)
	servers := client.HoldfastV1beta1().NFSServers(serverNamespace)
	made := makeServer(t, fullServer())
	claim := fullServer()
	storage(v1beta1.NFSStorage{ClaimName: "mine"})(claim)
	ofClaim := makeServer(t, claim)
	published := fullServer()
	publish(published)
	ofPublished := makeServer(t, published)
	directory := fullServer()
	storage(v1beta1.NFSStorage{HostPath: "/srv"})(directory)
	ofDirectory := makeServer(t, directory)
	for _, test := range []struct {
		server *v1beta1.NFSServer
		field  string
		change func(*v1beta1.NFSServer)
	}{
		{made, "spec.storage.size", func(s *v1beta1.NFSServer) { s.Spec.Storage.Size = amount("9Gi") }},
		{made, "spec.storage.storageClassName", func(s *v1beta1.NFSServer) { s.Spec.Storage.StorageClassName = new("slow") }},
		{made, "spec.storage.storageClassName", func(s *v1beta1.NFSServer) { s.Spec.Storage.StorageClassName = nil }},
		{made, "spec.engine", func(s *v1beta1.NFSServer) { s.Spec.Engine, s.Spec.MaxExports = "", 0 }},
		{made, "spec.engine", func(s *v1beta1.NFSServer) { s.Spec.Engine, s.Spec.MaxExports = v1beta1.EngineImage, 0 }},
		{made, "spec.service.clusterIP", func(s *v1beta1.NFSServer) { s.Spec.Service.ClusterIP = "10.96.0.8" }},
		{made, "spec.service.clusterIP", func(s *v1beta1.NFSServer) { s.Spec.Service = v1beta1.NFSService{} }},
		{made, "spec.service.port", func(s *v1beta1.NFSServer) { s.Spec.Service.Port = 3049 }},
		{ofClaim, "spec.storage.claimName", func(s *v1beta1.NFSServer) { s.Spec.Storage.ClaimName = "another" }},
		{ofDirectory, "spec.storage.hostPath", func(s *v1beta1.NFSServer) { s.Spec.Storage.HostPath = "/other" }},
		{ofDirectory, "spec.nodeSelectorTerms", func(s *v1beta1.NFSServer) { s.Spec.NodeSelectorTerms = nil }},
		{ofPublished, "spec.publish.claimName", func(s *v1beta1.NFSServer) { s.Spec.Publish.ClaimName = "another" }},
		{ofPublished, "spec", func(s *v1beta1.NFSServer) {
			s.Spec.Storage, s.Spec.Publish = &v1beta1.NFSStorage{Size: amount("1Gi")}, nil
		}},
	} {
		s := test.server.DeepCopy()
		test.change(s)
		_, err := servers.Update(t.Context(), s, metav1.UpdateOptions{DryRun: dryRun})
		mustRefuse(t, err, test.field)
	}
	for name, test := range map[string]struct {
		server *v1beta1.NFSServer
		change func(*v1beta1.NFSServer)
	}{
		"a larger size": {made, func(s *v1beta1.NFSServer) { s.Spec.Storage.Size = amount("11Gi") }},
		"the same size": {made, func(s *v1beta1.NFSServer) { s.Spec.Storage.Size = amount("10240Mi") }},
		"everything that may": {made, func(s *v1beta1.NFSServer) {
			s.Spec.Exports, s.Spec.MaxExports, s.Spec.GracePeriod = v1beta1.NFSExports{}, 1, nil
		}},
		"another name to publish": {ofPublished, func(s *v1beta1.NFSServer) { s.Spec.Publish.Name = "p" }},
	} {
		s := test.server.DeepCopy()
		test.change(s)
		if _, err := servers.Update(t.Context(), s, metav1.UpdateOptions{DryRun: dryRun}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNFSServer_DefaultEngineIsImage(t *testing.T) {
	needServer(t)
	unnamed := fullServer()
	unnamed.Spec.Engine, unnamed.Spec.MaxExports = "", 0
	s := makeServer(t, unnamed)
	s.Spec.Engine = v1beta1.EngineImage
	if _, err := client.HoldfastV1beta1().NFSServers(serverNamespace).Update(t.Context(), s, metav1.UpdateOptions{DryRun: dryRun}); err != nil {
		t.Errorf("naming what it is: %v", err)
	}
}

func TestColumns_OfNFSServers(t *testing.T) {
	needServer(t)
	s := makeServer(t, fullServer())
	s.Status = v1beta1.NFSServerStatus{
		Phase: v1beta1.NFSRunning, Endpoint: "10.96.0.7:2049", Access: v1beta1.NFSReadOnly, ClaimName: "nfs-data", StorageClassName: "fast", Node: nowhere,
		Capacity: exactly(10 << 30), Promised: exactly(3 << 30), Exports: 4, Snapshots: 6, Clients: 5, ObservedGeneration: 1,
		Conditions: []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionTrue, Reason: "Serving", Message: "fine", LastTransitionTime: longAgo}},
	}
	s.Status.SetColumns()
	servers := client.HoldfastV1beta1().NFSServers(serverNamespace)
	written, err := servers.UpdateStatus(t.Context(), s, metav1.UpdateOptions{})
	if err != nil || !equality.Semantic.DeepEqual(written.Status, s.Status) {
		t.Fatalf("%v: written was %+v, read %+v", err, s.Status, written.Status)
	}
	wantTableIn(t, serverNamespace, "nfsservers", s.Name, 0, "NAME READY PHASE CAPACITY TARGET ACCESS STORAGECLASS AGE", "True|Running|10Gi|10.96.0.7:2049|ReadOnly|fast")
	wantTableIn(t, serverNamespace, "nfsservers", s.Name, 1, "NAME READY PHASE CAPACITY TARGET ACCESS STORAGECLASS AGE PROMISED EXPORTS CLIENTS NODE MESSAGE",
		"True|Running|10Gi|10.96.0.7:2049|ReadOnly|fast|3Gi|4|5|"+nowhere+"|fine")
	if _, err := servers.Patch(t.Context(), s.Name, types.MergePatchType, []byte(`{"status":{"phase":"Served"}}`), metav1.PatchOptions{DryRun: dryRun}, "status"); err == nil {
		t.Error("a phase that does not exist was taken")
	}
}

func TestKinds_NFSServersAreNamespacedAndHaveAShortName(t *testing.T) {
	needServer(t)
	list := check.Got(client.Discovery().ServerResourcesForGroupVersion(v1beta1.SchemeGroupVersion.String()))(t)
	taken := map[string]string{}
	for _, r := range list.APIResources {
		for _, short := range r.ShortNames {
			if other := taken[short]; other != "" && other != r.Name {
				t.Errorf("%s is short for %s and for %s", short, other, r.Name)
			}
			taken[short] = r.Name
		}
		if r.Name == "nfsservers" && (!r.Namespaced || !slices.Equal(r.ShortNames, []string{"hfnfs"})) {
			t.Errorf("%s: namespaced %v, short names %v", r.Name, r.Namespaced, r.ShortNames)
		}
	}
	if taken["hfnfs"] != "nfsservers" {
		t.Errorf("the short names are %v", taken)
	}
}
