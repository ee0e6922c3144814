package local

import (
	"os"
	"testing"
	"time"

	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestMain(m *testing.M) {
	newTicker = func(time.Duration) *time.Ticker { return time.NewTicker(time.Hour) }
	os.Exit(hostfs.Main(m))
}
