package admin

import (
	"context"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// Row is a Volume or a Snapshot in a list. Sizes are in bytes.
type Row struct {
	Name         string                       `json:"name"`
	CSIName      string                       `json:"csiName"`             // the name in the CSI request
	ClaimRef     *v1beta1.NamespacedReference `json:"claimRef,omitempty"`  // of the Volume, or of the one that was copied, while there is one
	SourceRef    *v1beta1.SourceReference     `json:"sourceRef,omitempty"` // of a Snapshot
	Node         string                       `json:"node,omitempty"`      // empty in a list of one host
	Pool         string                       `json:"pool,omitempty"`
	Mode         string                       `json:"mode,omitempty"`
	FSType       string                       `json:"fsType,omitempty"`
	CreationTime time.Time                    `json:"creationTime,omitzero"` // on disk
	Size         int64                        `json:"size"`
	Used         int64                        `json:"used"`
	Phase        v1beta1.Phase                `json:"phase"`
	Condition    string                       `json:"condition"` // ok, or the first problem
}

// Trashed is a deleted volume that can be restored.
type Trashed struct {
	Name           string                       `json:"name"`
	CSIName        string                       `json:"csiName,omitempty"` // only in a list of one host
	ClaimRef       *v1beta1.NamespacedReference `json:"claimRef,omitempty"`
	Node           string                       `json:"node,omitempty"` // empty in a list of one host
	Pool           string                       `json:"pool,omitempty"`
	Size           int64                        `json:"size"`
	DeletionTime   time.Time                    `json:"deletionTime"`
	ExpirationTime time.Time                    `json:"expirationTime"`
	Incomplete     bool                         `json:"incomplete,omitempty"`
}

// Volumes lists the Volumes of the cluster.
func (a *Admin) Volumes(ctx context.Context) ([]Row, error) {
	list, err := a.Holdfast.HoldfastV1beta1().Volumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("the Volumes could not be listed (is Holdfast installed here?): %w", err)
	}
	rows := make([]Row, 0, len(list.Items))
	for i := range list.Items {
		rows = append(rows, recordOf(&list.Items[i]).Row)
	}
	return rows, nil
}

// Snapshots lists the Snapshots of the cluster.
func (a *Admin) Snapshots(ctx context.Context) ([]Row, error) {
	list, err := a.Holdfast.HoldfastV1beta1().Snapshots().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("the Snapshots could not be listed (is Holdfast installed here?): %w", err)
	}
	volumes, err := a.Volumes(ctx)
	if err != nil {
		return nil, err
	}
	claims := map[string]*v1beta1.NamespacedReference{}
	for _, v := range volumes {
		claims[v.Name] = v.ClaimRef
	}
	rows := make([]Row, 0, len(list.Items))
	for i := range list.Items {
		row := recordOf(&list.Items[i]).Row
		row.ClaimRef = claims[row.source()]
		rows = append(rows, row)
	}
	return rows, nil
}

func (r *Row) source() string {
	if r.SourceRef == nil {
		return ""
	}
	return r.SourceRef.Name
}

// Trash lists the volumes in the trash of all nodes.
func (a *Admin) Trash(ctx context.Context) ([]Trashed, error) {
	nodes, err := Nodes(ctx, a.Holdfast)
	if err != nil {
		return nil, err
	}
	all := []Trashed{}
	for _, n := range nodes {
		for _, t := range n.Status.Trash {
			all = append(all, Trashed{
				Name: t.Name, ClaimRef: t.ClaimRef, Node: n.Name, Pool: t.Pool, Size: t.Size.Value(), DeletionTime: t.DeletionTime.Time, ExpirationTime: t.ExpirationTime.Time,
				Incomplete: t.Incomplete,
			})
		}
	}
	return all, nil
}

// Nodes lists the StorageNodes.
func Nodes(ctx context.Context, kinds holdfast.Interface) ([]v1beta1.StorageNode, error) {
	list, err := kinds.HoldfastV1beta1().StorageNodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("the StorageNodes could not be listed (is Holdfast installed here?): %w", err)
	}
	return list.Items, nil
}

// WriteVolumes writes a table; wide adds columns.
func WriteVolumes(out io.Writer, rows []Row, wide bool) error {
	t := newTable(out, wide, []string{"NAME", "CLAIM", "NODE", "POOL", "SIZE", "USED", "PHASE", "CONDITION"}, "MODE", "FS", "CREATED", "CSI NAME")
	for _, r := range rows {
		t.row(r.Name, r.ClaimRef.String(), r.Node, r.Pool, size(r.Size), size(r.Used), string(r.Phase), r.Condition, r.Mode, r.FSType, stamp(r.CreationTime), quote(r.CSIName))
	}
	return t.end()
}

// WriteSnapshots writes a table; wide adds columns.
func WriteSnapshots(out io.Writer, rows []Row, wide bool) error {
	t := newTable(out, wide, []string{"NAME", "VOLUME", "NODE", "POOL", "SIZE", "USED", "PHASE", "CONDITION"}, "CLAIM", "MODE", "FS", "CREATED", "CSI NAME")
	for _, r := range rows {
		t.row(r.Name, r.source(), r.Node, r.Pool, size(r.Size), size(r.Used), string(r.Phase), r.Condition, r.ClaimRef.String(), r.Mode, r.FSType, stamp(r.CreationTime), quote(r.CSIName))
	}
	return t.end()
}

// WriteTrash writes a table; wide adds columns.
func WriteTrash(out io.Writer, all []Trashed, wide bool) error {
	t := newTable(out, wide, []string{"NAME", "CLAIM", "NODE", "POOL", "SIZE", "DELETED", "EXPIRES", "CONDITION"}, "CSI NAME")
	for _, e := range all {
		t.row(e.Name, e.ClaimRef.String(), e.Node, e.Pool, size(e.Size), stamp(e.DeletionTime), stamp(e.ExpirationTime), map[bool]string{true: "incomplete"}[e.Incomplete], quote(e.CSIName))
	}
	return t.end()
}

func size(bytes int64) string { return v1beta1.Readable(v1beta1.Quantity(bytes)) }

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04Z")
}

// quote is for names that may have any character.
func quote(s string) string {
	if s == "" {
		return ""
	}
	return fmt.Sprintf("%.80q", s)
}
