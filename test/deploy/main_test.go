package deploy

import (
	"io"
	"log"
	"os"
	"path/filepath"
	"testing"
)

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard) // Helm warns of values that the schema then refuses
	code := m.Run()
	if file, err := program(); err == nil {
		os.RemoveAll(filepath.Dir(file))
	}
	os.Exit(code)
}
