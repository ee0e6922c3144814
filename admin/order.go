package admin

import (
	"cmp"
	"slices"
	"strings"
)

// Order sorts a list by one of its columns.
type Order[T any] struct {
	Name    string
	compare func(a, b T) int
}

// Sort is stable.
func (o Order[T]) Sort(all []T, reverse bool) {
	slices.SortStableFunc(all, func(a, b T) int {
		if reverse {
			a, b = b, a
		}
		return o.compare(a, b)
	})
}

func ascending[T any](of func(T) string) func(a, b T) int {
	return func(a, b T) int { return strings.Compare(of(a), of(b)) }
}

// descending sorts the largest first.
func descending[T any](of func(T) int64) func(a, b T) int {
	return func(a, b T) int { return cmp.Compare(of(b), of(a)) }
}

// The columns by which lists can be sorted; the first is the default.
var (
	VolumeOrders = append([]Order[Row]{
		{"name", ascending(func(r Row) string { return r.Name })},
		{"claim", ascending(func(r Row) string { return r.ClaimRef.String() })},
	}, placeOrders...)

	SnapshotOrders = append([]Order[Row]{
		{"name", ascending(func(r Row) string { return r.Name })},
		{"volume", ascending(func(r Row) string { return r.source() })},
	}, placeOrders...)

	placeOrders = []Order[Row]{
		{"node", ascending(func(r Row) string { return r.Node })},
		{"pool", ascending(func(r Row) string { return r.Pool })},
		{"size", descending(func(r Row) int64 { return r.Size })},
		{"used", descending(func(r Row) int64 { return r.Used })},
		{"phase", ascending(func(r Row) string { return string(r.Phase) })},
		{"age", func(a, b Row) int { return a.CreationTime.Compare(b.CreationTime) }},
	}

	TrashOrders = []Order[Trashed]{
		{"deleted", func(a, b Trashed) int { return b.DeletionTime.Compare(a.DeletionTime) }},
		{"expires", func(a, b Trashed) int { return a.ExpirationTime.Compare(b.ExpirationTime) }},
		{"name", ascending(func(t Trashed) string { return t.Name })},
		{"claim", ascending(func(t Trashed) string { return t.ClaimRef.String() })},
		{"node", ascending(func(t Trashed) string { return t.Node })},
		{"pool", ascending(func(t Trashed) string { return t.Pool })},
		{"size", descending(func(t Trashed) int64 { return t.Size })},
	}
)
