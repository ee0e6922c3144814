// Package top shows who reads and writes how much: what the kernel has counted of each volume, at two times.
package top

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// Volume is what is known of a volume beside its counters.
type Volume struct {
	Name     string
	ClaimRef *v1beta1.NamespacedReference
	PodRefs  []v1beta1.NamespacedReference // of those that use it
	Node     string                        // empty on one host
	Pool     string
	// Uncounted says why the kernel does not count; empty if it does.
	Uncounted string
}

// Counters are what was counted of one volume.
type Counters struct{ Reads, ReadBytes, Writes, WrittenBytes float64 }

// Key names a volume where it is counted.
type Key struct{ Node, Volume string }

// Silent is a node or NFS server that did not answer.
type Silent struct {
	Node    string `json:"node"`
	Message string `json:"message"`
}

// Sample is what was counted up to a time, which each node has of its own.
type Sample struct {
	At      map[string]time.Time // of the nodes that answered
	Counted map[Key]Counters
	Silent  []Silent
}

// Source is a cluster, or one host.
type Source interface {
	// Sample reads the counters. A node that does not answer is Silent.
	Sample(ctx context.Context) (*Sample, error)
	// Volumes are those that there are.
	Volumes(ctx context.Context) ([]Volume, error)
}

// Rates are per second.
type Rates struct {
	ReadBytes    float64 `json:"readBytesPerSecond"`
	WrittenBytes float64 `json:"writtenBytesPerSecond"`
	Reads        float64 `json:"readsPerSecond"`
	Writes       float64 `json:"writesPerSecond"`
}

func (r *Rates) add(more *Rates) {
	r.ReadBytes += more.ReadBytes
	r.WrittenBytes += more.WrittenBytes
	r.Reads += more.Reads
	r.Writes += more.Writes
}

func (r *Rates) bytes() float64 {
	if r == nil {
		return -1
	}
	return r.ReadBytes + r.WrittenBytes
}

func (r *Rates) operations() float64 {
	if r == nil {
		return -1
	}
	return r.Reads + r.Writes
}

// Row is a volume, a pool or a node.
type Row struct {
	Name     string                        `json:"name"` // of the volume, pool or node
	ClaimRef *v1beta1.NamespacedReference  `json:"claimRef,omitempty"`
	PodRefs  []v1beta1.NamespacedReference `json:"podRefs,omitempty"`
	Node     string                        `json:"node,omitempty"`
	Pool     string                        `json:"pool,omitempty"`
	Volumes  int                           `json:"volumes,omitempty"` // that are counted, of a pool or node
	Rates    *Rates                        `json:"rates"`             // null where nothing is counted
	Why      string                        `json:"why,omitempty"`     // nothing is counted
}

// Report is what happened between two samples.
type Report struct {
	Seconds float64  `json:"seconds"` // between the samples
	Rows    []Row    `json:"rows"`    // the most bytes first
	Idle    int      `json:"notInUse"`
	Silent  []Silent `json:"silent"`

	of By
}

// By is what rows are.
type By string

const (
	ByVolume By = "volumes"
	ByPool   By = "pools"
	ByNode   By = "nodes"
)

// Compare makes a report. A volume that is not counted by a node that answered both times is not in use, unless it cannot
// be counted.
func Compare(before, after *Sample, volumes []Volume, by By) *Report {
	r := &Report{Rows: []Row{}, Silent: silent(before, after), of: by}
	for node, at := range after.At {
		if first, ok := before.At[node]; ok {
			r.Seconds = max(r.Seconds, at.Sub(first).Seconds())
		}
	}
	for i := range volumes {
		v := &volumes[i]
		row := Row{Name: v.Name, ClaimRef: v.ClaimRef, PodRefs: v.PodRefs, Node: v.Node, Pool: v.Pool, Rates: rates(before, after, v), Why: v.Uncounted}
		if row.Rates != nil {
			row.Why = ""
		}
		if row.Rates == nil && row.Why == "" {
			if answered(before, v.Node) && answered(after, v.Node) {
				r.Idle++
			}
			continue
		}
		r.Rows = append(r.Rows, row)
	}
	if by != ByVolume {
		r.Rows = sum(r.Rows, by)
	}
	slices.SortFunc(r.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.Rates.bytes(), a.Rates.bytes()), cmp.Compare(b.Rates.operations(), a.Rates.operations()), strings.Compare(a.Name, b.Name), strings.Compare(a.Node, b.Node))
	})
	return r
}

func answered(s *Sample, node string) bool {
	_, is := s.At[node]
	return is
}

// silent are the nodes that did not answer at one of the two times.
func silent(before, after *Sample) []Silent {
	all := append([]Silent{}, after.Silent...)
	for node := range after.At {
		if answered(before, node) {
			continue
		}
		one := Silent{node, "it was not in the first sample"}
		if i := slices.IndexFunc(before.Silent, func(s Silent) bool { return s.Node == node }); i >= 0 {
			one = before.Silent[i]
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Silent) int { return strings.Compare(a.Node, b.Node) })
	return all
}

// rates of a volume; nil if it was not counted at both times. One that is new at the second was attached in between, and
// one that counts from 0 again was attached again.
func rates(before, after *Sample, v *Volume) *Rates {
	key := Key{v.Node, v.Name}
	now, counted := after.Counted[key]
	first, known := before.At[v.Node]
	seconds := after.At[v.Node].Sub(first).Seconds()
	if !counted || !known || seconds <= 0 {
		return nil
	}
	was := before.Counted[key]
	if now.Reads < was.Reads || now.Writes < was.Writes || now.ReadBytes < was.ReadBytes || now.WrittenBytes < was.WrittenBytes {
		was = Counters{}
	}
	return &Rates{
		ReadBytes: (now.ReadBytes - was.ReadBytes) / seconds, WrittenBytes: (now.WrittenBytes - was.WrittenBytes) / seconds,
		Reads: (now.Reads - was.Reads) / seconds, Writes: (now.Writes - was.Writes) / seconds,
	}
}

// sum adds up volumes by their pool or node. What is not counted adds nothing.
func sum(volumes []Row, by By) []Row {
	at := map[[2]string]*Row{}
	for i := range volumes {
		v := &volumes[i]
		row := Row{Name: v.Node}
		if by == ByPool {
			row = Row{Name: v.Pool, Node: v.Node}
		}
		key := [2]string{row.Name, row.Node}
		if at[key] == nil {
			at[key] = &row
		}
		total := at[key]
		switch {
		case v.Rates == nil && total.Rates == nil:
			total.Why = v.Why
		case v.Rates != nil && total.Rates == nil:
			total.Rates, total.Why, total.Volumes = new(Rates), "", 1
			total.Rates.add(v.Rates)
		case v.Rates != nil:
			total.Rates.add(v.Rates)
			total.Volumes++
		}
	}
	rows := []Row{}
	for _, row := range at {
		rows = append(rows, *row)
	}
	return rows
}
