package deploy

import (
	"fmt"
	"io"
	"log"
	"os"
	"testing"
)

// scratch has what is built for all tests.
var scratch string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	log.SetOutput(io.Discard) // Helm warns of values that the schema then refuses
	var err error
	if scratch, err = os.MkdirTemp("", "holdfast-deploy-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(scratch)
	return m.Run()
}
