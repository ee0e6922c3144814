//go:build !race

package nodeops

const shadow = 1
