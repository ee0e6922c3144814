package v1beta1

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// SetColumns is called before a status is written.
func (s *VolumeStatus) SetColumns() {
	s.Columns = VolumeColumns{Size: Readable(s.Size), Used: Readable(s.Used), Copy: s.Copy.String()}
}

// SetColumns is called before a status is written.
func (s *SnapshotStatus) SetColumns() {
	s.Columns = SnapshotColumns{Size: Readable(s.Size), Used: Readable(s.Used)}
}

// SetColumns is called before a status is written.
func (s *StorageNodeStatus) SetColumns() {
	var capacity, promised, used, available resource.Quantity
	var snapshots []string
	usable := 0
	s.Columns = StorageNodeColumns{}
	for _, p := range s.Pools {
		if p.Message == "" {
			usable++
		}
		capacity.Add(p.Capacity)
		promised.Add(p.Promised)
		used.Add(p.Used)
		available.Add(p.Available)
		s.Columns.Volumes += p.Volumes
		if cost := string(p.SnapshotCost); cost != "" && !slices.Contains(snapshots, cost) {
			snapshots = append(snapshots, cost)
		}
	}
	s.Columns.Snapshots = strings.Join(snapshots, ",")
	s.Columns.Pools = fmt.Sprintf("%d/%d", usable, len(s.Pools))
	s.Columns.Capacity, s.Columns.Promised = Readable(&capacity), Readable(&promised)
	s.Columns.Used, s.Columns.Available = Readable(&used), Readable(&available)
}

// Readable writes bytes in the largest unit that leaves a whole number or one above 10.
func Readable(q *resource.Quantity) string {
	if q == nil {
		return ""
	}
	bytes := q.Value()
	for i, unit := range []string{"Ei", "Pi", "Ti", "Gi", "Mi", "Ki"} {
		factor := int64(1) << (60 - 10*i)
		if bytes >= factor && (bytes%factor == 0 || bytes/10 >= factor) {
			return strconv.FormatInt(bytes/factor, 10) + unit
		}
	}
	return strconv.FormatInt(bytes, 10)
}
