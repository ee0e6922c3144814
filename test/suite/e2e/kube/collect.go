package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

const (
	// artifactsVariable names the directory in which failed tests leave a folder each.
	artifactsVariable = "HOLDFAST_E2E_ARTIFACTS"
	systemNamespace   = "holdfast-system"
)

// keep makes the folder of a failed test and says where it is.
func (s *Space) keep(ctx context.Context) {
	s.t.Helper()
	base := os.Getenv(artifactsVariable)
	if base == "" {
		base = os.TempDir()
	}
	err := os.MkdirAll(base, 0o755)
	if err != nil {
		s.t.Errorf("%s: %v", artifactsVariable, err)
		return
	}
	dir, err := os.MkdirTemp(base, "holdfast-e2e-"+namespaceOf(s.t.Name())+"-")
	if err != nil {
		s.t.Errorf("%s: %v", artifactsVariable, err)
		return
	}
	s.t.Logf("what the cluster knows is in %s", dir)
	if err := s.Collect(ctx, dir, s.Namespace); err != nil {
		s.t.Logf("what could not be had is named in its missing.txt")
		check.Report(s.t, os.WriteFile(filepath.Join(dir, "missing.txt"), []byte(err.Error()+"\n"), 0o644))
	}
}

// Collect writes into a directory what the cluster knows of a namespace and of Holdfast: objects, events, logs of the
// containers and of the cluster's own components. What cannot be had does not hinder the rest; the error names it.
func (c *Cluster) Collect(ctx context.Context, dir, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	f := &folder{Cluster: c, dir: dir, ctx: ctx}
	f.work.SetLimit(16)
	f.components()
	f.objects(namespace, systemNamespace)
	for _, n := range []string{namespace, systemNamespace} {
		f.logs(n)
	}
	f.events(namespace, systemNamespace, metav1.NamespaceDefault)
	_ = f.work.Wait() // what fails is in failures
	return errors.Join(f.failures...)
}

// folder is being filled. Everything in it is written by functions that report what they could not get.
type folder struct {
	*Cluster
	dir  string
	ctx  context.Context
	work errgroup.Group

	mu       sync.Mutex
	failures []error
}

func (f *folder) failed(what string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failures = append(f.failures, fmt.Errorf("%s: %w", what, err))
}

// add writes a file with what get returns, if that is anything.
func (f *folder) add(path string, get func() ([]byte, error)) {
	f.work.Go(func() error {
		data, err := get()
		if err == nil && len(data) > 0 {
			path := filepath.Join(f.dir, path)
			err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o644))
		}
		if err != nil {
			f.failed(path, err)
		}
		return nil
	})
}
