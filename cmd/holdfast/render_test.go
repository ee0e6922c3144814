package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// file writes a manifest and returns its path.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "manifest.yaml")
	check.OK(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

const clusterHead = "apiVersion: holdfast.dev/v1beta1\nkind: StorageCluster\nmetadata: {name: mine}\n"

func TestRender_RemarksDoNotMoveTheCursor(t *testing.T) {
	var out, remarks strings.Builder
	odd := file(t, `{apiVersion: storageos.com/v1, kind: StorageOSCluster, metadata: {name: a}, spec: {"odd\e[2J": 1}}`)
	r := &renderer{storageos: odd, remarks: &remarks, output: &output{&choice{value: "yaml"}}}
	if err := r.run(&out); err != nil || !strings.Contains(remarks.String(), "odd [2J") || strings.Contains(remarks.String(), "\x1b") {
		t.Errorf("%v: %q", err, &remarks)
	}
}

func TestRender_PrintsEachObjectOfTheDefaultClusterAsADocumentOrInAList(t *testing.T) {
	out := check.Got(call(t, "render"))(t)
	var list struct {
		Kind  string
		Items []map[string]any
	}
	asJSON := check.Got(call(t, "render", "-o", "json"))(t)
	documents := strings.Split(out, "---\n")
	if err := json.Unmarshal([]byte(asJSON), &list); err != nil || list.Kind != "List" || len(documents) != len(list.Items) {
		t.Fatalf("%v, kind %q, %d documents and %d items", err, list.Kind, len(documents), len(list.Items))
	}
	var kinds []string
	for i, document := range documents {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil || o.GetKind() == "" || o.GetAPIVersion() == "" || o.GetName() == "" {
			t.Fatalf("%v: no object:\n%s", err, document)
		}
		if kinds = append(kinds, o.GetKind()); !reflect.DeepEqual(o.Object, list.Items[i]) {
			t.Errorf("%v is not %v", list.Items[i], o.Object)
		}
	}
	all := strings.Join(kinds, " ")
	expects(t, all, "DaemonSet", "CSIDriver", "StorageClass", "Service", "Deployment", "VolumeSnapshotClass")
	if strings.Contains(all, "PodMonitor") || strings.Contains(out, "creationTimestamp") {
		t.Error("an object was rendered that was not requested")
	}
}

func TestRender_FollowsTheFileAndTheFlags(t *testing.T) {
	path := file(t, clusterHead+"spec: {storageClasses: [{name: fast, default: true}]}\n")
	out := check.Got(call(t, "render", "-f", path, "--has", "PodMonitor", "--namespace", "storage"))(t)
	expects(t, out, "name: fast\n", "kind: PodMonitor", "namespace: storage\n", "app.kubernetes.io/instance: mine")
	if strings.Contains(out, "VolumeSnapshotClass") {
		t.Error("there are snapshot classes, which the cluster does not have")
	}
}

func TestSecrets_AreDerivedFromTheSecretInAFile(t *testing.T) {
	path := file(t, clusterHead+"spec: {secretRef: {name: s}, csi: {credentials: {provision: true}}}\n")
	if _, err := call(t, "render", "-f", path); err == nil || !strings.Contains(err.Error(), "csiProvisionPassword") {
		t.Errorf("without a secret: %v", err)
	}
	secret := file(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {csiProvisionUsername: u}\ndata: {csiProvisionPassword: cGFzcw==}\n")
	out := check.Got(call(t, "render", "-f", path, "--secret", secret))(t)
	expects(t, out, "password: cGFzcw==", "username: dQ==")
}

func TestRender_InvalidFileIsRefusedWithTheReason(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"an enormous file":   {clusterHead + "# " + strings.Repeat("x", maxManifest), []string{"more than 3145728 bytes"}},
		"bad YAML":           {"kind: [", []string{"no YAML"}},
		"a key twice":        {clusterHead + "kind: StorageCluster\n", []string{"no YAML", "kind"}},
		"two documents":      {clusterHead + "---\napiVersion: v1\nkind: Secret\n", []string{"2 documents", "StorageCluster", "Secret"}},
		"nothing":            {"# nothing\n", []string{"0 documents"}},
		"a list":             {"- 1\n", []string{"no object"}},
		"another kind":       {"apiVersion: v1\nkind: Pod\n", []string{"Pod", "StorageCluster of holdfast.dev/v1beta1"}},
		"another version":    {"apiVersion: holdfast.dev/v2\nkind: StorageCluster\n", []string{"holdfast.dev/v2"}},
		"an unknown field":   {clusterHead + "spec: {poools: []}\n", []string{"poools"}},
		"a type that is not": {clusterHead + "spec: {debug: 5}\n", []string{"debug"}},
		"a bad value":        {clusterHead + "spec: {csi: {kubeletDir: /var/lib/holdfast/kubelet}}\n", []string{"spec.csi.kubeletDir", "/var/lib/holdfast/kubelet"}},
	} {
		path := file(t, test.text)
		out, err := call(t, "render", "-f", path)
		if err == nil || out != "" {
			t.Errorf("%s: %v\n%s", name, err, out)
			continue
		}
		expects(t, err.Error(), test.want...)
	}
}

const storageosSamples = "../../admin/storageos/testdata/"

func TestRender_StorageOSClusterBecomesAStorageCluster(t *testing.T) {
	for _, sample := range []string{"every-field.yaml", "sample.yaml", "small.yaml"} {
		var out, remarks strings.Builder
		r := &renderer{storageos: storageosSamples + sample, remarks: &remarks, output: &output{&choice{value: "yaml"}}}
		check.OK(t, r.run(&out))
		if !strings.Contains(remarks.String(), "spec.kvBackend.address: has no meaning here: ") || !strings.Contains(remarks.String(), "spec.secretRefName: taken as spec.secretRef.name") {
			t.Errorf("%s: the remarks are\n%s", sample, &remarks)
		}
		path := file(t, out.String())
		if c, err := readCluster(path); err != nil || c.Spec.SecretRef.Name != "storageos-api" {
			t.Errorf("%s: %v\n%s", sample, err, &out)
		}
		secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {tls.crt: c, tls.key: k"
		for _, pair := range []string{"csiProvision", "csiControllerPublish", "csiNodePublish"} {
			secret += ", " + pair + "Username: u, " + pair + "Password: p"
		}
		if _, err := call(t, "render", "-f", path, "--secret", file(t, secret+"}\n")); err != nil {
			t.Errorf("%s: %v", sample, err)
		}
	}
}

func TestRender_InputThatIsNoStorageOSClusterIsRefused(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"another kind":  {"apiVersion: storageos.com/v1\nkind: Job\n", "StorageOSCluster of storageos.com/v1"},
		"two documents": {"apiVersion: v1\nkind: Secret\n---\napiVersion: storageos.com/v1\nkind: StorageOSCluster\n", "2 documents"},
		"bad YAML":      {"a: b: c", "no YAML"},
		"a bad value":   {"apiVersion: storageos.com/v1\nkind: StorageOSCluster\nspec: {pause: maybe}\n", "spec.pause"},
	} {
		if out, err := call(t, "render", "--from-storageos", file(t, test.text)); err == nil || out != "" || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
