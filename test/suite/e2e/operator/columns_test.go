package operator

import (
	"encoding/json"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

func TestColumns_SumUpACluster(t *testing.T) {
	a := administer(t)
	s := begin(t)
	s.Claim("data", "16Mi")
	s.Run("user", kube.Mount("data", "/data"), kube.Script("touch /data/file"))
	c := a.await("to count the volume", func(c *v1beta1.StorageCluster) bool { return c.Status.Volumes > 0 })
	want := fmt.Sprint([]any{"holdfast", "True", "Running", c.Status.DesiredNodes, c.Status.ReadyNodes, c.Status.Version, c.Status.Volumes})
	columns, cells := a.row("storageclusters")
	if got := fmt.Sprint(columns); got != "[Name Ready Phase Nodes Ready Nodes Version Volumes Age]" {
		t.Errorf("the columns are %s", got)
	}
	if len(cells) != 8 || fmt.Sprint(cells[:7]) != want {
		t.Errorf("the row is %v, want %s", cells, want)
	}
	if nodes := len(a.pods("node")); int(c.Status.ReadyNodes) != nodes || int(c.Status.DesiredNodes) != nodes {
		t.Errorf("%d of %d nodes are ready, and there are %d", c.Status.ReadyNodes, c.Status.DesiredNodes, nodes)
	}
}

// row is what kubectl get shows: the columns, and the cells of the one object.
func (a *admin) row(resource string) (columns, cells []string) {
	a.t.Helper()
	answer, err := a.Client.Discovery().RESTClient().Get().AbsPath("/apis", v1beta1.SchemeGroupVersion.String(), resource).
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
