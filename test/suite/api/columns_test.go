package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// table is what kubectl get prints of one object, apart from its name and age. The namespace is empty for what has none.
func table(t *testing.T, namespace, resource, name string, priority int32) (columns, cells string) {
	t.Helper()
	text := check.Got(client.HoldfastV1beta1().RESTClient().Get().NamespaceIfScoped(namespace, namespace != "").Resource(resource).Name(name).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context()))(t)
	var answer metav1.Table
	check.OK(t, json.Unmarshal(text, &answer))
	if len(answer.Rows) != 1 || len(answer.Rows[0].Cells) != len(answer.ColumnDefinitions) {
		t.Fatalf("the table is %s", text)
	}
	var names, values []string
	for i, column := range answer.ColumnDefinitions {
		if column.Priority > priority {
			continue
		}
		names = append(names, strings.ToUpper(column.Name))
		if column.Name != "Name" && column.Name != "Age" {
			values = append(values, fmt.Sprint(answer.Rows[0].Cells[i]))
		}
	}
	return strings.Join(names, " "), strings.Join(values, "|")
}

func wantTable(t *testing.T, namespace, resource, name string, priority int32, wantColumns, wantCells string) {
	t.Helper()
	columns, cells := table(t, namespace, resource, name, priority)
	if columns != wantColumns {
		t.Errorf("%s have the columns\n%s, want\n%s", resource, columns, wantColumns)
	}
	if cells != wantCells {
		t.Errorf("%s read\n%s, want\n%s", resource, cells, wantCells)
	}
}

func TestColumns_AreThoseThatPeopleRead(t *testing.T) {
	needServer(t)
	v := create(t, volumes(), fullVolume())
	const ofVolumes = "NAME NAMESPACE CLAIM NODE POOL SIZE USED PHASE AGE"
	wantTable(t, "", "volumes", v.Name, 0, ofVolumes, "team|data|"+nowhere+"|<nil>|<nil>|<nil>|<nil>")
	v.Status = fullVolumeStatus()
	v.Status.SetColumns()
	check.Got(volumes().UpdateStatus(t.Context(), v, metav1.UpdateOptions{}))(t)
	s := create(t, snapshots(), fullSnapshot())
	s.Status = fullSnapshotStatus()
	s.Status.SetColumns()
	check.Got(snapshots().UpdateStatus(t.Context(), s, metav1.UpdateOptions{}))(t)
	n := create(t, nodes(), &v1beta1.StorageNode{ObjectMeta: metav1.ObjectMeta{GenerateName: "test.node-"}})
	n.Status = fullNodeStatus()
	check.Got(nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}))(t)
	c := create(t, clusters(), &v1beta1.StorageCluster{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-columns-"}})
	c.Status = v1beta1.StorageClusterStatus{
		Phase: v1beta1.ClusterRunning, DesiredNodes: 3, ReadyNodes: 2, Version: "v1.2.3", Volumes: 8,
		Conditions: []metav1.Condition{{Type: v1beta1.ReadyCondition, Status: metav1.ConditionTrue, Reason: "UpToDate", Message: "fine", LastTransitionTime: metav1.Now()}},
	}
	check.Got(clusters().UpdateStatus(t.Context(), c, metav1.UpdateOptions{}))(t)
	server := create(t, servers(), fullServer())
	server.Status = fullServerStatus()
	written := check.Got(servers().UpdateStatus(t.Context(), server, metav1.UpdateOptions{}))(t)
	same(t, "status", part(written, "Status"), part(server, "Status"))
	for _, c := range []struct{ namespace, resource, name, columns, cells, wide, wideCells string }{
		{
			"", "volumes", v.Name, ofVolumes, "team|data|" + nowhere + "|fast|10Gi|1177Mi|Ready",
			"MODE FS HEALTHY SOURCE COPY ERROR", "Filesystem|ext4|False|s|Verifying 50%|growing to 20Gi: pool fast has 3Gi left",
		},
		{
			"", "snapshots", s.Name, "NAME VOLUME NODE POOL SIZE USED PHASE AGE", "a|" + nowhere + "|fast|10Gi|1177Mi|Ready",
			"GROUP MODE FS CONSISTENCY HEALTHY ERROR", "Group|Block|xfs|Crash|False|being deleted",
		},
		{
			"", "storagenodes", n.Name, "NAME READY POOLS CAPACITY PROMISED USED AVAILABLE VOLUMES VERSION AGE", "True|1/2|500Gi|100Gi|1177Mi|300Gi|8|v1.2.3",
			"SNAPSHOTS MESSAGE", "Shared|fine",
		},
		{"", "storageclusters", c.Name, "NAME READY PHASE NODES READYNODES VERSION VOLUMES AGE", "True|Running|3|2|v1.2.3|8", "MESSAGE", "fine"},
		{
			serverNamespace, "nfsservers", server.Name,
			"NAME READY PHASE CAPACITY TARGET ACCESS STORAGECLASS AGE", "True|Running|10Gi|10.96.0.7:2049|ReadOnly|fast",
			"PROMISED EXPORTS CLIENTS NODE MESSAGE", "3Gi|4|5|" + nowhere + "|fine",
		},
	} {
		wantTable(t, c.namespace, c.resource, c.name, 0, c.columns, c.cells)
		wantTable(t, c.namespace, c.resource, c.name, 1, c.columns+" "+c.wide, c.cells+"|"+c.wideCells)
	}
}

func TestKinds_HaveShortNamesOfTheirOwn(t *testing.T) {
	needServer(t)
	want := map[string]string{"volumes": "hfv", "snapshots": "hfs", "storagenodes": "hfn", "nfsservers": "hfnfs"}
	taken := map[string]string{}
	for _, r := range check.Got(client.Discovery().ServerResourcesForGroupVersion(v1beta1.SchemeGroupVersion.String()))(t).APIResources {
		for _, short := range r.ShortNames {
			if other := taken[short]; other != "" && other != r.Name {
				t.Errorf("%s is short for %s and for %s", short, other, r.Name)
			}
			taken[short] = r.Name
		}
		short, asked := want[r.Name]
		if !asked {
			continue
		}
		delete(want, r.Name)
		namespaced := r.Name == "nfsservers"
		if r.Namespaced != namespaced || !slices.Equal(r.ShortNames, []string{short}) || !slices.Equal(r.Categories, []string{"holdfast"}) {
			t.Errorf("%s: namespaced %v, short names %v, categories %v", r.Name, r.Namespaced, r.ShortNames, r.Categories)
		}
	}
	if len(want) > 0 {
		t.Errorf("the server has no %v", want)
	}
}
