// Package realapi gives tests the API server of a cluster of test/cluster, with the kinds of Holdfast and without a
// Holdfast that runs: its controllers would reconcile the objects as well.
package realapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// Variable names the cluster.
const Variable = "HOLDFAST_API"

// Namespace is there while the tests of a package run.
const Namespace = "holdfast-system"

var (
	server *rest.Config // nil where no cluster is named
	dir    string       // of the cluster
)

// Config is for clients of the API server; a test that cannot have one is skipped.
func Config(t testing.TB) *rest.Config {
	t.Helper()
	if server == nil {
		hostfs.Skip(t, "api", "needs a cluster of test/cluster, named in "+Variable)
	}
	return rest.CopyConfig(server)
}

// KubeletRoot is the --root-dir of the kubelet that runs the pods of the cluster.
func KubeletRoot(t testing.TB) string {
	t.Helper()
	content := check.Got(os.ReadFile(filepath.Join(dir, "cluster.json")))(t)
	var state struct{ KubeletRoot string }
	if err := json.Unmarshal(content, &state); err != nil || state.KubeletRoot == "" {
		t.Fatalf("cluster.json says %+v, %v", state, err)
	}
	return state.KubeletRoot
}

// Main runs the tests of a package. It returns the code to end with.
func Main(m *testing.M) int {
	name := os.Getenv(Variable)
	if name == "" {
		return m.Run()
	}
	clean, err := prepare(name)
	defer clean()
	if err != nil {
		fmt.Fprintf(os.Stderr, "cluster %q: %v\n", name, err)
		return 1
	}
	return m.Run()
}

// prepare finds the API server and teaches it what it does not know; clean takes that back.
func prepare(name string) (clean func(), err error) {
	var made []object
	clean = func() {
		for _, o := range made {
			if err := o.remove(); err != nil {
				fmt.Fprintln(os.Stderr, "cleaning up:", err)
			}
		}
	}
	if server, err = find(name); err != nil {
		return clean, err
	}
	apis := dynamic.NewForConfigOrDie(server)
	namespaces := apis.Resource(core.SchemeGroupVersion.WithResource("namespaces"))
	kinds := apis.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	namespace.SetName(Namespace)
	objects := []object{{namespaces, Namespace, namespace}}
	for _, d := range deploy.Definitions() {
		objects = append(objects, object{kinds, d.GetName(), d})
	}
	for _, o := range objects {
		isNew, err := o.need()
		if isNew {
			made = append(made, o)
		}
		if err != nil {
			return clean, err
		}
	}
	for _, o := range objects[1:] {
		if err := o.await("be established", Established); err != nil {
			return clean, err
		}
	}
	return clean, nil
}

// object is one that the tests of a package need.
type object struct {
	dynamic.ResourceInterface
	name string
	want *unstructured.Unstructured
}

// need makes it where it is not there. One that the tests of another package have deleted is awaited. One that is there
// must be as it would be made: changing it would change a cluster that is in use.
func (o object) need() (isNew bool, err error) {
	ctx := context.Background()
	there, err := o.Get(ctx, o.name, metav1.GetOptions{})
	switch {
	case err == nil && there.GetDeletionTimestamp() == nil:
		wanted, err := o.Apply(ctx, o.name, o.want, metav1.ApplyOptions{FieldManager: "test", Force: true, DryRun: []string{metav1.DryRunAll}})
		if err == nil && wanted.GetGeneration() != there.GetGeneration() {
			err = fmt.Errorf("the cluster has another %s %s; first apply that of this tree, or delete it", o.want.GetKind(), o.name)
		}
		return false, err
	case err == nil:
		if err := o.awaitGone(); err != nil {
			return false, err
		}
	case !apierrors.IsNotFound(err):
		return false, err
	}
	_, err = o.Create(ctx, o.want, metav1.CreateOptions{})
	return err == nil, err
}

// remove waits for the end, so that the tests of the next package find what they make themselves.
func (o object) remove() error {
	if err := o.Delete(context.Background(), o.name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return o.awaitGone()
}

func (o object) awaitGone() error {
	return o.await("go", func(now *unstructured.Unstructured) bool { return now == nil })
}

// await asks for the object, nil when it is not there, until it is as it should be.
func (o object) await(what string, done func(now *unstructured.Unstructured) bool) error {
	// Namespaces and definitions go when all in them has gone; on a busy machine that takes a while.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var last *unstructured.Unstructured // in the last answer
	var absent bool
	var err error
	late := Until(ctx, func() bool {
		var now *unstructured.Unstructured
		now, err = o.Get(ctx, o.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			last, absent, err = nil, true, nil
		case err == nil:
			last, absent = now, false
		default:
			return false
		}
		return done(last)
	})
	if late == nil {
		return nil
	}
	late = fmt.Errorf("%s %s did not %s: %w", o.want.GetKind(), o.name, what, cmp.Or(err, late))
	switch {
	case absent:
		return fmt.Errorf("%w; it is not there", late)
	case last == nil: // there was no answer
		return late
	}
	status, _ := yaml.Marshal(last.Object["status"])
	return fmt.Errorf("%w; deleted: %v, finalizers: %v, status:\n%s", late, last.GetDeletionTimestamp(), last.GetFinalizers(), status)
}

// Established says whether the API server serves the kind of a definition; nil is one that is not there.
func Established(definition *unstructured.Unstructured) bool {
	return definition != nil && kube.HasCondition(definition, "Established")
}

// Until asks until it is so, or ctx ends. The longer it has waited the seldomer it asks: each answer costs a server.
func Until(ctx context.Context, so func() bool) error {
	pauses := wait.Backoff{Duration: 2 * time.Millisecond, Factor: 1.25, Steps: 100, Cap: 200 * time.Millisecond}
	return pauses.DelayFunc().Until(ctx, true, true, func(context.Context) (bool, error) { return so(), nil })
}

// root is the repository, in which every test runs.
func root() string {
	dir, err := os.Getwd()
	for err == nil && dir != filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "test/cluster/go.mod")); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

func find(name string) (*rest.Config, error) {
	program := filepath.Join(root(), "bin/cluster") // what has started it, if that was make
	command := exec.Command(program, "-name", name, "kubeconfig")
	if _, err := os.Stat(program); err != nil {
		command = exec.Command("go", "run", ".", "-name", name, "kubeconfig")
		command.Dir = filepath.Join(root(), "test/cluster")
	}
	out, err := command.Output()
	if err != nil {
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			return nil, fmt.Errorf("%w: %s", err, failed.Stderr)
		}
		return nil, err
	}
	path := strings.TrimSpace(string(out))
	dir = filepath.Dir(path)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // without a limit
	return config, nil
}
