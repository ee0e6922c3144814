package ceph

import (
	"encoding/binary"
	"math/bits"
	"strconv"
)

// Which placement group has an object follows from the object's name. The library of Ceph computes it too, and does not report it.

// objectHash is the number that the cluster places an object by: the hash of Bob Jenkins (1996) of its name.
func objectHash(namespace, name string) uint32 {
	if namespace != "" {
		name = namespace + "\x1f" + name
	}
	const block = 12
	s := jenkins{0x9e3779b9, 0x9e3779b9, 0}
	rest := []byte(name)
	for ; len(rest) >= block; rest = rest[block:] {
		s.add([block]byte(rest))
	}
	// The last word begins with the length, of which it takes the first byte.
	var last [block]byte
	copy(last[:8], rest)
	if len(rest) > 8 {
		copy(last[9:], rest[8:])
	}
	s.c += uint32(len(name)) //nolint:gosec // a name is short
	s.add(last)
	return s.c
}

type jenkins struct{ a, b, c uint32 }

func (s *jenkins) add(block [12]byte) {
	a, b, c := s.a, s.b, s.c
	a += binary.LittleEndian.Uint32(block[:])
	b += binary.LittleEndian.Uint32(block[4:])
	c += binary.LittleEndian.Uint32(block[8:])
	for _, shift := range [][3]int{{13, 8, 13}, {12, 16, 5}, {3, 10, 15}} {
		a = (a - b - c) ^ c>>shift[0]
		b = (b - c - a) ^ a<<shift[1]
		c = (c - a - b) ^ b>>shift[2]
	}
	s.a, s.b, s.c = a, b, c
}

// groupOf is the placement group of a hash, of so many.
func groupOf(hash uint32, groups int) int {
	mask := uint32(1)<<bits.Len32(uint32(groups-1)) - 1 //nolint:gosec // it is not negative
	if group := int(hash & mask); group < groups {
		return group
	}
	return int(hash & (mask >> 1))
}

// nameInEach returns a name of an object for each placement group.
func nameInEach(namespace string, groups int) []string {
	names := make([]string, groups)
	for i, left := 0, groups; left > 0; i++ {
		name := "holdfast.fence." + strconv.Itoa(i)
		if group := groupOf(objectHash(namespace, name), groups); names[group] == "" {
			names[group] = name
			left--
		}
	}
	return names
}
