// Package realapi gives tests the API server of a cluster of test/cluster, with the kinds of Holdfast and without a
// Holdfast that runs: its controllers would see to the objects as well.
package realapi

import (
	"context"
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
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/test/hostfs"
)

// Variable names the cluster.
const Variable = "HOLDFAST_API"

// Namespace is there while the tests of a package run.
const Namespace = "holdfast-system"

// server is nil where no cluster is named.
var server *rest.Config

// Config is for clients of the API server; a test that cannot have one is skipped.
func Config(t testing.TB) *rest.Config {
	t.Helper()
	if server == nil {
		hostfs.Skip(t, "api", "needs a cluster of test/cluster, named in "+Variable)
	}
	return rest.CopyConfig(server)
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
	var undo []func(context.Context) error
	clean = func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		for _, f := range undo {
			if err := f(ctx); err != nil && !apierrors.IsNotFound(err) {
				fmt.Fprintln(os.Stderr, "cleaning up:", err)
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if server, err = find(name); err != nil {
		return clean, err
	}
	namespaces := kubernetes.NewForConfigOrDie(server).CoreV1().Namespaces()
	made, err := makeNamespace(ctx, namespaces)
	if made {
		undo = append(undo, func(ctx context.Context) error { return namespaces.Delete(ctx, Namespace, metav1.DeleteOptions{}) })
	}
	if err != nil {
		return clean, err
	}
	kinds := dynamic.NewForConfigOrDie(server).Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
	files, err := filepath.Glob(filepath.Join(root(), "deploy/crds/holdfast.dev_*.yaml"))
	if err != nil || len(files) == 0 {
		return clean, errors.Join(errors.New("deploy/crds has no definitions"), err)
	}
	for _, file := range files {
		made, err := define(ctx, kinds, file)
		if made != "" {
			undo = append(undo, func(ctx context.Context) error { return kinds.Delete(ctx, made, metav1.DeleteOptions{}) })
		}
		if err != nil {
			return clean, fmt.Errorf("%s: %w", file, err)
		}
	}
	return clean, nil
}

// makeNamespace says whether it was not there. One that the package before has deleted may take a while to go.
func makeNamespace(ctx context.Context, namespaces corev1.NamespaceInterface) (made bool, err error) {
	for ctx.Err() == nil {
		_, err := namespaces.Create(ctx, &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return err == nil, err
		}
		there, err := namespaces.Get(ctx, Namespace, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil || there.DeletionTimestamp == nil:
			return false, err
		default:
			if err := goneFrom(ctx, namespaces, there.ResourceVersion); err != nil {
				return false, err
			}
		}
	}
	return false, fmt.Errorf("namespace %s of the tests before has not gone: %w", Namespace, ctx.Err())
}

// goneFrom waits until the namespace is deleted, or the watch ends.
func goneFrom(ctx context.Context, namespaces corev1.NamespaceInterface, version string) error {
	changes, err := namespaces.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + Namespace, ResourceVersion: version})
	if err != nil {
		return err
	}
	defer changes.Stop()
	for change := range changes.ResultChan() {
		if change.Type == watch.Deleted {
			return nil
		}
	}
	return nil
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
	command := exec.Command("go", "run", ".", "-name", name, "kubeconfig")
	command.Dir = filepath.Join(root(), "test/cluster")
	out, err := command.Output()
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
	return config, nil
}

// define returns the name of a definition that was not there.
func define(ctx context.Context, kinds dynamic.ResourceInterface, file string) (made string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var d unstructured.Unstructured
	if err := yaml.Unmarshal(text, &d.Object); err != nil {
		return "", err
	}
	if _, err := kinds.Get(ctx, d.GetName(), metav1.GetOptions{}); apierrors.IsNotFound(err) {
		made = d.GetName()
	}
	if _, err := kinds.Apply(ctx, d.GetName(), &d, metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
		return made, err
	}
	for ctx.Err() == nil { // the API server may end a watch at any time
		deleted, done, err := awaitEstablished(ctx, kinds, d.GetName())
		switch {
		case err != nil:
			return made, err
		case done:
			return made, nil
		case deleted: // by the end of the package before
			made = d.GetName()
			if _, err := kinds.Apply(ctx, d.GetName(), &d, metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
				return made, err
			}
		}
	}
	return made, fmt.Errorf("it was not established: %w", ctx.Err())
}

// awaitEstablished follows a definition until it is established or deleted, or the watch ends.
func awaitEstablished(ctx context.Context, kinds dynamic.ResourceInterface, name string) (deleted, done bool, err error) {
	changes, err := kinds.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return false, false, err
	}
	defer changes.Stop()
	for change := range changes.ResultChan() {
		if established(change) || change.Type == watch.Deleted {
			return change.Type == watch.Deleted, established(change), nil
		}
	}
	return false, false, nil
}

func established(change watch.Event) bool {
	d, ok := change.Object.(*unstructured.Unstructured)
	if !ok || change.Type == watch.Deleted || d.GetDeletionTimestamp() != nil {
		return false
	}
	conditions, _, _ := unstructured.NestedSlice(d.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
			return true
		}
	}
	return false
}
