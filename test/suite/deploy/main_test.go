// Package deploy tests the manifests of Holdfast: that all ways to install it install the same, and that the API server
// takes it.
package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"
)

const (
	root      = "../../.."
	namespace = "holdfast-system"     // where install.yaml puts Holdfast
	manifest  = "deploy/install.yaml" // what kubectl installs

	controller = "Deployment " + namespace + "/holdfast-controller"
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

// must returns the value of a call, and ends the test if the call failed, as check.Got of the other module does.
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	return string(must(os.ReadFile(path.Join(root, file)))(t))
}

// program is the one that the environment names, or is built once for all tests.
var program = sync.OnceValues(func() (string, error) {
	if named := os.Getenv("HOLDFAST_BINARY"); named != "" {
		return named, nil
	}
	file := filepath.Join(scratch, "holdfast")
	build := exec.Command("go", "build", "-o", file, "./cmd/holdfast")
	build.Dir = root
	out, err := build.CombinedOutput()
	os.Stderr.Write(out)
	return file, err
})

// operated is what the operator makes of a StorageCluster with a spec, as the program itself says.
func operated(t *testing.T, spec map[string]any, kinds ...string) Objects {
	t.Helper()
	return must(operate(t, spec, kinds))(t)
}

// operate returns an error if the operator refuses the spec.
func operate(t *testing.T, spec map[string]any, kinds []string) (Objects, error) {
	t.Helper()
	cluster := must(yaml.Marshal(map[string]any{
		"apiVersion": "holdfast.dev/v1beta1", "kind": "StorageCluster", "metadata": map[string]any{"name": "holdfast"}, "spec": spec,
	}))(t)
	var has []string
	for _, kind := range kinds {
		has = append(has, path.Base(kind))
	}
	render := exec.Command(must(program())(t), "render", "-f", "-", "--secret", "testdata/access.yaml", "--has", strings.Join(has, ","))
	render.Stdin = bytes.NewReader(cluster)
	out, err := render.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return nil, fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	objects := parse(t, string(must(out, err)(t)))
	for key, object := range objects {
		if strings.HasSuffix(key, "/holdfast-controller") && object.GetLabels()["app.kubernetes.io/version"] != "" {
			// The operator leaves what was installed last in its place.
			object.SetAnnotations(map[string]string{"holdfast.dev/manifest": object.GetLabels()["app.kubernetes.io/version"]})
		}
	}
	return objects, nil
}

// made are the installations, once they are.
var made map[string]Objects

// installations are all ways to install Holdfast that are in the repository, and what the operator makes then. No test
// changes them.
func installations(t *testing.T) map[string]Objects {
	t.Helper()
	if made != nil {
		return made
	}
	set := with(everything(t), "StatefulSet", "controller", "kind")
	made = map[string]Objects{
		manifest:                    parse(t, read(t, manifest)),
		"chart":                     render(t, Release{}),
		"chart everything":          render(t, Release{Values: asValues(everything(t)), Kinds: optionalKinds}),
		"chart StatefulSet":         render(t, Release{Values: asValues(set), Kinds: optionalKinds}),
		"operator":                  operated(t, nil),
		"operator everything":       operated(t, everything(t), optionalKinds...),
		"operator with StatefulSet": operated(t, set, optionalKinds...),
		"operator without CSI":      operated(t, with(everything(t), false, "csi", "enabled"), optionalKinds...),
	}
	for _, overlay := range must(os.ReadDir(root + "/deploy/overlays"))(t) {
		made["overlay "+overlay.Name()] = kustomize(t, root+"/deploy/overlays/"+overlay.Name())
	}
	return made
}
