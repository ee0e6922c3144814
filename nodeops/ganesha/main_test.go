package ganesha

import (
	"os"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestMain(m *testing.M) {
	if file := os.Getenv(holderVariable); file != "" {
		hold(file)
	}
	if dir := os.Getenv(openerVariable); dir != "" {
		openMany(dir)
	}
	os.Exit(hostfs.Main(m))
}
