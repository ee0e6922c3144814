package deploy

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

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

// access is the secret that everything names.
var access = sync.OnceValues(func() ([]byte, error) {
	data := map[string]string{}
	for _, pair := range []string{"csiProvision", "csiControllerPublish", "csiNodePublish", "csiControllerExpand"} {
		data[pair+"Username"], data[pair+"Password"] = "user", "password"
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	data["tls.crt"] = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}))
	data["tls.key"] = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
	return yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "access"}, "stringData": data})
})

// operated is what the operator makes of a StorageCluster with a spec, as the program itself says.
func operated(t *testing.T, spec map[string]any, kinds []string) Objects {
	t.Helper()
	objects, err := operate(t, spec, kinds)
	if err != "" {
		t.Fatal(err)
	}
	return objects
}

func operate(t *testing.T, spec map[string]any, kinds []string) (Objects, string) {
	t.Helper()
	binary, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := yaml.Marshal(map[string]any{
		"apiVersion": "holdfast.dev/v1beta1", "kind": "StorageCluster", "metadata": map[string]any{"name": "holdfast"}, "spec": spec,
	})
	if err != nil {
		t.Fatal(err)
	}
	secret, err := access()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string][]byte{"cluster.yaml": cluster, "secret.yaml": secret} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var has []string
	for _, kind := range kinds {
		has = append(has, path.Base(kind))
	}
	run := exec.Command(binary, "render", "-f", filepath.Join(dir, "cluster.yaml"), "--secret", filepath.Join(dir, "secret.yaml"), "--has", strings.Join(has, ","))
	var errs bytes.Buffer
	run.Stderr = &errs
	out, err := run.Output()
	if err != nil {
		return nil, err.Error() + ": " + errs.String()
	}
	objects, err := Parse(out)
	if err != nil {
		t.Fatal(err)
	}
	for key, object := range objects {
		if strings.HasSuffix(key, "/holdfast-controller") && object.GetLabels()["app.kubernetes.io/version"] != "" {
			// The operator leaves what was installed last in its place.
			object.SetAnnotations(map[string]string{"holdfast.dev/manifest": object.GetLabels()["app.kubernetes.io/version"]})
		}
	}
	return objects, ""
}

// lookup returns the value at a path. A step into a list is into its first element.
func lookup(values map[string]any, path ...string) (any, bool) {
	var at any = values
	for _, step := range path {
		if list, ok := at.([]any); ok && len(list) > 0 {
			at = list[0]
		}
		fields, ok := at.(map[string]any)
		if !ok {
			return nil, false
		}
		if at, ok = fields[step]; !ok {
			return nil, false
		}
	}
	return at, true
}
