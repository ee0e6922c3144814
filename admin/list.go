package admin

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
)

// Row is a Volume or a Snapshot in a list. Sizes are in bytes.
type Row struct {
	Name      string   `json:"name"`
	Claim     string   `json:"claim,omitempty"`  // of a Volume
	Volume    string   `json:"volume,omitempty"` // of a Snapshot
	Node      string   `json:"node"`
	Pool      string   `json:"pool,omitempty"`
	Size      int64    `json:"size"`
	Used      int64    `json:"used"`
	Phase     v1.Phase `json:"phase"`
	Condition string   `json:"condition"`
}

// Trashed is a deleted volume that can be restored.
type Trashed struct {
	Name    string    `json:"name"`
	Claim   string    `json:"claim,omitempty"`
	Node    string    `json:"node"`
	Pool    string    `json:"pool,omitempty"`
	Size    int64     `json:"size"`
	Deleted time.Time `json:"deleted"`
	Expires time.Time `json:"expires"`
}

// Volumes lists all of the cluster by name.
func (a *Admin) Volumes(ctx context.Context) ([]Row, error) {
	list, err := a.Holdfast.HoldfastV1().Volumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("the Volumes could not be listed (is Holdfast installed here?): %w", err)
	}
	rows := make([]Row, 0, len(list.Items))
	for i := range list.Items {
		rows = append(rows, rowOf(recordOf(&list.Items[i])))
	}
	return sorted(rows), nil
}

// Snapshots lists all of the cluster by name.
func (a *Admin) Snapshots(ctx context.Context) ([]Row, error) {
	list, err := a.Holdfast.HoldfastV1().Snapshots().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("the Snapshots could not be listed (is Holdfast installed here?): %w", err)
	}
	rows := make([]Row, 0, len(list.Items))
	for i := range list.Items {
		rows = append(rows, rowOf(recordOf(&list.Items[i])))
	}
	return sorted(rows), nil
}

func rowOf(r *record) Row {
	return Row{
		Name: r.Name, Claim: r.claim, Volume: r.source, Node: r.node, Pool: r.pool, Size: v1.Bytes(r.size), Used: v1.Bytes(r.used),
		Phase: r.phase, Condition: r.condition(),
	}
}

func sorted(rows []Row) []Row {
	slices.SortFunc(rows, func(a, b Row) int { return strings.Compare(a.Name, b.Name) })
	return rows
}

// Trash lists what can be restored in the whole cluster, the last deleted first.
func (a *Admin) Trash(ctx context.Context) ([]Trashed, error) {
	nodes, err := a.nodes(ctx)
	if err != nil {
		return nil, err
	}
	all := []Trashed{}
	for _, n := range nodes {
		for _, t := range n.Status.Trash {
			all = append(all, Trashed{t.Name, t.Claim, n.Name, t.Pool, t.Size.Value(), t.Deleted.Time, t.Expires.Time})
		}
	}
	slices.SortStableFunc(all, func(a, b Trashed) int { return b.Deleted.Compare(a.Deleted) })
	return all, nil
}

func (a *Admin) nodes(ctx context.Context) ([]v1.StorageNode, error) {
	list, err := a.Holdfast.HoldfastV1().StorageNodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("the StorageNodes could not be listed (is Holdfast installed here?): %w", err)
	}
	return list.Items, nil
}

// WriteVolumes writes a table.
func WriteVolumes(out io.Writer, rows []Row) error {
	t := newTable(out, "NAME", "CLAIM", "NODE", "POOL", "SIZE", "USED", "PHASE", "CONDITION")
	for _, r := range rows {
		t.row(r.Name, r.Claim, r.Node, r.Pool, size(r.Size), size(r.Used), string(r.Phase), r.Condition)
	}
	return t.end()
}

// WriteSnapshots writes a table.
func WriteSnapshots(out io.Writer, rows []Row) error {
	t := newTable(out, "NAME", "VOLUME", "NODE", "POOL", "SIZE", "USED", "PHASE", "CONDITION")
	for _, r := range rows {
		t.row(r.Name, r.Volume, r.Node, r.Pool, size(r.Size), size(r.Used), string(r.Phase), r.Condition)
	}
	return t.end()
}

// WriteTrash writes a table.
func WriteTrash(out io.Writer, all []Trashed) error {
	t := newTable(out, "NAME", "CLAIM", "NODE", "POOL", "SIZE", "DELETED", "EXPIRES")
	for _, e := range all {
		t.row(e.Name, e.Claim, e.Node, e.Pool, size(e.Size), stamp(e.Deleted), stamp(e.Expires))
	}
	return t.end()
}

func size(bytes int64) string { return v1.Readable(v1.Quantity(bytes)) }

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04Z") }
