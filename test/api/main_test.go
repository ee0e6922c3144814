// Package api_test asks a real API server whether it keeps the rules of api/v1.
package api_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/test/hostfs"
)

// apiVariable names the cluster of test/cluster whose API server is asked. No Holdfast may run in it: a controller
// would see to the objects as well.
const apiVariable = "HOLDFAST_API"

// client is nil where no cluster is named.
var client *clientset.Clientset

// dryRun makes the server check an object as if it were written.
var dryRun = []string{metav1.DryRunAll}

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	name := os.Getenv(apiVariable)
	if name == "" {
		return m.Run(), nil
	}
	// The server has two minutes to serve the definitions, and in the end to forget them.
	within := func(do func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		return do(ctx)
	}
	config, err := connect(name)
	if err != nil {
		return 0, fmt.Errorf("cluster %q: %w", name, err)
	}
	resources, err := dynamic.NewForConfig(config)
	if err != nil {
		return 0, err
	}
	d := definitions{client: resources.Resource(definitionResource)}
	defer func() { err = errors.Join(err, within(d.remove)) }()
	if err := within(d.install); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// connect finds the API server of a cluster that is up.
func connect(name string) (*rest.Config, error) {
	find := exec.Command("go", "run", ".", "-name", name, "kubeconfig")
	find.Dir = "../cluster"
	out, err := find.Output()
	if err != nil {
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			return nil, fmt.Errorf("%w: %s", err, failed.Stderr)
		}
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", strings.TrimSpace(string(out)))
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // without a limit
	client, err = clientset.NewForConfig(config)
	return config, err
}

func needServer(t *testing.T) {
	t.Helper()
	if client == nil {
		hostfs.Skip(t, "api", "needs a cluster that is up, named in "+apiVariable)
	}
}
