//go:build ceph

// Package cephsite tests the process of a pool in a Ceph cluster, `holdfast ceph`, as its pod runs it: with the arguments, the
// account and the rights that the operator gives it, and with Ceph users that may no more than docs/ceph.md says. The Ceph
// cluster and the API server are real.
package cephsite

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	rig "github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/realapi"
)

var (
	small  *rig.Cluster // of all tests; nil where there is no Ceph or no API server
	binary string       // the program, with Ceph's libraries
)

// binaryVariable names a program that is not compiled again.
const binaryVariable = "HOLDFAST_CEPH_BINARY"

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if rig.Missing() != "" || os.Getenv(realapi.Variable) == "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "holdfast-cephsite-")
	if err == nil {
		defer os.RemoveAll(dir)
		binary, err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return rig.Main(func() int { return realapi.Main(m) }, rig.Options{MDS: true}, &small)
}

func build(dir string) (string, error) {
	if named := os.Getenv(binaryVariable); named != "" {
		return named, nil
	}
	path := filepath.Join(dir, "holdfast")
	cmd := exec.Command("go", "build", "-tags", "ceph,pacific,crashpoints", "-o", path, "github.com/holdfast-storage/holdfast/cmd/holdfast")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	return path, nil
}
