//go:build race

package nodeops

// shadow is by how much the race detector multiplies the memory of a process: 5 to 10 times.
const shadow = 10
