package disk

import (
	"os"
	"testing"

	"github.com/holdfast-storage/holdfast/test/hostfs"
)

func TestMain(m *testing.M) { os.Exit(hostfs.Main(m)) }
