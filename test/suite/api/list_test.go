package api_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// table is what kubectl get prints of one object, apart from its name and age. The namespace is empty for what has none.
func table(t *testing.T, namespace, resource, name string, priority int32) (columns, cells []string) {
	t.Helper()
	text := check.Got(client.HoldfastV1beta1().RESTClient().Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).Name(name).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context()))(t)
	var answer metav1.Table
	check.OK(t, json.Unmarshal(text, &answer))
	if len(answer.Rows) != 1 || len(answer.Rows[0].Cells) != len(answer.ColumnDefinitions) {
		t.Fatalf("the table is %s", text)
	}
	for i, column := range answer.ColumnDefinitions {
		if column.Priority > priority {
			continue
		}
		columns = append(columns, strings.ToUpper(column.Name))
		if column.Name != "Name" && column.Name != "Age" {
			cells = append(cells, fmt.Sprint(answer.Rows[0].Cells[i]))
		}
	}
	return columns, cells
}

func wantTable(t *testing.T, resource, name string, priority int32, columns, cells string) {
	t.Helper()
	wantTableIn(t, "", resource, name, priority, columns, cells)
}

func wantTableIn(t *testing.T, namespace, resource, name string, priority int32, columns, cells string) {
	t.Helper()
	haveColumns, haveCells := table(t, namespace, resource, name, priority)
	if have := strings.Join(haveColumns, " "); have != columns {
		t.Errorf("%s have the columns\n%s, want\n%s", resource, have, columns)
	}
	if have := strings.Join(haveCells, "|"); have != cells {
		t.Errorf("%s read\n%s, want\n%s", resource, have, cells)
	}
}

func TestColumns_OfVolumes(t *testing.T) {
	needServer(t)
	v := makeVolume(t, fullVolume())
	wantTable(t, "volumes", v.Name, 0, "NAME NAMESPACE CLAIM NODE POOL SIZE USED PHASE AGE", "team|data|"+nowhere+"|<nil>|<nil>|<nil>|<nil>")
	v.Status = fullVolumeStatus()
	v.Status.SetColumns()
	check.Got(client.HoldfastV1beta1().Volumes().UpdateStatus(t.Context(), v, metav1.UpdateOptions{}))(t)
	wantTable(t, "volumes", v.Name, 0, "NAME NAMESPACE CLAIM NODE POOL SIZE USED PHASE AGE", "team|data|"+nowhere+"|fast|10Gi|1177Mi|Ready")
	wantTable(t, "volumes", v.Name, 1, "NAME NAMESPACE CLAIM NODE POOL SIZE USED PHASE AGE MODE FS HEALTHY SOURCE COPY ERROR",
		"team|data|"+nowhere+"|fast|10Gi|1177Mi|Ready|Filesystem|ext4|False|s|Verifying 50%|growing to 20Gi: pool fast has 3Gi left")
}

func TestColumns_OfSnapshots(t *testing.T) {
	needServer(t)
	s := makeSnapshot(t, fullSnapshot())
	s.Status = fullSnapshotStatus()
	s.Status.SetColumns()
	check.Got(client.HoldfastV1beta1().Snapshots().UpdateStatus(t.Context(), s, metav1.UpdateOptions{}))(t)
	wantTable(t, "snapshots", s.Name, 0, "NAME VOLUME NODE POOL SIZE USED PHASE AGE", "a|"+nowhere+"|fast|10Gi|1177Mi|Ready")
	wantTable(t, "snapshots", s.Name, 1, "NAME VOLUME NODE POOL SIZE USED PHASE AGE GROUP MODE FS CONSISTENCY HEALTHY ERROR",
		"a|"+nowhere+"|fast|10Gi|1177Mi|Ready|Group|Block|xfs|Crash|False|being deleted")
}

func TestColumns_OfNodes(t *testing.T) {
	needServer(t)
	n := makeNode(t)
	n.Status = fullNodeStatus()
	check.Got(client.HoldfastV1beta1().StorageNodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}))(t)
	wantTable(t, "storagenodes", n.Name, 0, "NAME READY POOLS CAPACITY PROMISED USED VOLUMES VERSION AGE", "True|1/2|500Gi|100Gi|1177Mi|8|v1.2.3")
	wantTable(t, "storagenodes", n.Name, 1, "NAME READY POOLS CAPACITY PROMISED USED VOLUMES VERSION AGE AVAILABLE SNAPSHOTS MESSAGE",
		"True|1/2|500Gi|100Gi|1177Mi|8|v1.2.3|300Gi|Shared|fine")
}

func TestColumns_OfStorageClusters(t *testing.T) {
	needServer(t)
	clusters := client.HoldfastV1beta1().StorageClusters()
	c := check.Got(clusters.Create(t.Context(), &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-columns-"}}, metav1.CreateOptions{}))(t)
	t.Cleanup(func() { ended(t, clusters.Delete(context.Background(), c.Name, metav1.DeleteOptions{})) })
	c.Status = v1beta1.StorageClusterStatus{
		Phase: v1beta1.ClusterRunning, DesiredNodes: 3, ReadyNodes: 2, Version: "v1.2.3", Volumes: 8,
		Conditions: []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionTrue, Reason: "UpToDate", Message: "fine", LastTransitionTime: metav1.Now()}},
	}
	check.Got(clusters.UpdateStatus(t.Context(), c, metav1.UpdateOptions{}))(t)
	wantTable(t, "storageclusters", c.Name, 0, "NAME READY PHASE NODES READY NODES VERSION VOLUMES AGE", "True|Running|3|2|v1.2.3|8")
	wantTable(t, "storageclusters", c.Name, 1, "NAME READY PHASE NODES READY NODES VERSION VOLUMES AGE MESSAGE", "True|Running|3|2|v1.2.3|8|fine")
}

func TestKinds_HaveShortNamesAndNoNamespace(t *testing.T) {
	needServer(t)
	list := check.Got(client.Discovery().ServerResourcesForGroupVersion(v1beta1.SchemeGroupVersion.String()))(t)
	want := map[string]string{"volumes": "hfv", "snapshots": "hfs", "storagenodes": "hfn"}
	for _, r := range list.APIResources {
		short, asked := want[r.Name]
		if !asked {
			continue
		}
		delete(want, r.Name)
		if r.Namespaced || !slices.Equal(r.ShortNames, []string{short}) || !slices.Equal(r.Categories, []string{"holdfast"}) {
			t.Errorf("%s: namespaced %v, short names %v, categories %v", r.Name, r.Namespaced, r.ShortNames, r.Categories)
		}
	}
	if len(want) > 0 {
		t.Errorf("the server has no %v", want)
	}
}

func TestAgent_SeesOnlyObjectsOfItsNode(t *testing.T) {
	needServer(t)
	other := fullVolume()
	other.Spec.Node = "another." + nowhere
	v, w := makeVolume(t, fullVolume()), makeVolume(t, other)
	volumes, snapshots := client.HoldfastV1beta1().Volumes(), client.HoldfastV1beta1().Snapshots()
	ofNode := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.node", other.Spec.Node).String()}
	list, err := volumes.List(t.Context(), ofNode)
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != w.Name {
		t.Errorf("of the other node are %v, %v; want %s", list, err, w.Name)
	}
	changes, err := volumes.Watch(t.Context(), metav1.ListOptions{FieldSelector: ofNode.FieldSelector, ResourceVersion: v.ResourceVersion})
	check.OK(t, err)
	defer changes.Stop()
	if first := (<-changes.ResultChan()).Object.(*v1beta1.Volume); first.Name != w.Name {
		t.Errorf("a watch of the other node has %s on %s", first.Name, first.Spec.Node)
	}
	s := makeSnapshot(t, fullSnapshot())
	for selector, found := range map[string]bool{
		"spec.node=" + nowhere + ",spec.sourceRef.name=a,spec.group.name=Group": true,
		"spec.node=" + nowhere + ",spec.sourceRef.name=b":                       false,
	} {
		list, err := snapshots.List(context.Background(), metav1.ListOptions{FieldSelector: selector})
		has := err == nil && slices.ContainsFunc(list.Items, func(have v1beta1.Snapshot) bool { return have.Name == s.Name })
		if has != found {
			t.Errorf("%s: found %v, %v; want %v", selector, has, err, found)
		}
	}
}
