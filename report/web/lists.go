package web

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// orders are those in which a list can be answered, beside that of the names.
type orders[O any] map[string]func(a, b O) int

const sortName = "sort"

// parameter is the one that chooses the order; a minus before it reverses it.
func (by orders[O]) parameter() parameter {
	p := parameter{name: sortName, doc: "Answer in this order, - for the reverse, and what is equal by name. Without it the order is that of the names."}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		p.allowed = append(p.allowed, name, "-"+name)
	}
	return p
}

// sort orders by what was requested, then by the key.
func (by orders[O]) sort(q *query, all []O, key func(O) string) {
	name, reverse := strings.CutPrefix(q.sort, "-")
	first := by[name]
	slices.SortFunc(all, func(a, b O) int {
		order := 0
		if first != nil {
			order = first(a, b)
		}
		if reverse {
			order = -order
		}
		return cmp.Or(order, strings.Compare(key(a), key(b)))
	})
}

// page answers with those objects that come next in the order that was requested.
func page[O, T any](q *query, all []O, by orders[O], key func(O) string, show func(O) T) *List[T] {
	by.sort(q, all, key)
	start := min(q.offset, len(all))
	if q.after != "" {
		start, _ = slices.BinarySearchFunc(all, q.after, func(o O, after string) int {
			if key(o) <= after {
				return -1
			}
			return 1
		})
	}
	list := &List[T]{Items: []T{}, Total: len(all)}
	all = all[start:]
	for _, o := range all[:min(q.limit, len(all))] {
		list.Items = append(list.Items, show(o))
	}
	list.Remaining = len(all) - len(list.Items)
	if list.Remaining > 0 && q.sort == "" {
		list.Continue = q.token(key(all[len(list.Items)-1]))
	}
	return list
}

// inOrder answers with what has an order of its own, such as the newest first. It has no names to go on after.
func inOrder[T any](q *query, all []T, names func(T) []string) *List[T] {
	all = slices.DeleteFunc(all, func(o T) bool { return !q.finds(names(o)...) })
	start := min(q.offset, len(all))
	rest := all[start:]
	items := append([]T{}, rest[:min(q.limit, len(rest))]...)
	return &List[T]{Items: items, Total: len(all), Remaining: len(rest) - len(items)}
}

// share is how much of something is taken, for comparing.
func share(taken, of int64) float64 {
	if of <= 0 {
		return 0
	}
	return float64(taken) / float64(of)
}
