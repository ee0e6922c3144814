package uml

import (
	"flag"
	"os"
	"testing"
)

// A machine waits more than it computes, so there may be more of them than processors.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
