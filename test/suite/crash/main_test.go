package crash

import (
	"os"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestMain(m *testing.M) { os.Exit(hostfs.Main(m)) }
