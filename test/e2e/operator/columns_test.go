package operator

import (
	"encoding/json"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/test/e2e/kube"
)

func TestTheColumnsSayWhatAClusterIs(t *testing.T) {
	a := administer(t)
	s := begin(t)
	s.Claim("data", "16Mi")
	s.Run("user", kube.Mount("data", "/data"), kube.Script("touch /data/file"))
	c := a.await("to count the volume", func(c *v1.StorageCluster) bool { return c.Status.Volumes > 0 })
	want := fmt.Sprint([]string{"holdfast", c.Status.Ready, "Running", c.Status.Version, fmt.Sprint(c.Status.Volumes)})
	columns, cells := a.row("storageclusters")
	if got := fmt.Sprint(columns); got != "[Name Ready Status Version Volumes Age]" {
		t.Errorf("the columns are %s", got)
	}
	if len(cells) != 6 || fmt.Sprint(cells[:5]) != want {
		t.Errorf("the row is %v, want %s", cells, want)
	}
	if nodes := len(a.pods("node")); c.Status.Ready != fmt.Sprintf("%d/%d", nodes, nodes) {
		t.Errorf("ready is %s with %d nodes", c.Status.Ready, nodes)
	}
}

// row is what kubectl get shows: the columns, and the cells of the one object.
func (a *admin) row(resource string) (columns, cells []string) {
	a.t.Helper()
	answer, err := a.Client.Discovery().RESTClient().Get().AbsPath("/apis", v1.SchemeGroupVersion.String(), resource).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(a.t.Context())
	if err != nil {
		a.t.Fatal(err)
	}
	var table metav1.Table
	if err := json.Unmarshal(answer, &table); err != nil {
		a.t.Fatal(err)
	}
	if len(table.Rows) != 1 {
		a.t.Fatalf("there are %d %s: %s", len(table.Rows), resource, answer)
	}
	for i, column := range table.ColumnDefinitions {
		if column.Priority == 0 {
			columns, cells = append(columns, column.Name), append(cells, fmt.Sprint(table.Rows[0].Cells[i]))
		}
	}
	return columns, cells
}
