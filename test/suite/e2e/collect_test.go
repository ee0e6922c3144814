package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

func TestCollect_IncludesEverythingButSecrets(t *testing.T) {
	t.Parallel()
	s := begin(t)
	const secret = "correct-horse-battery-staple"
	_, err := s.Client.CoreV1().Secrets(s.Namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "password"}, StringData: map[string]string{"word": secret},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.Claim("data", "64Mi")
	s.Pod("ends", kube.Mount("data", "/data"), kube.Script(
		"echo a run; until rm /data/end 2>/dev/null; do sleep 0.2; done; exit 7"))
	s.Ready("ends")
	ended := int32(0)
	end := func() {
		s.Exec("ends", "touch", "/data/end")
		ended++
		kube.AwaitOne(s, s.Client.CoreV1().Pods(s.Namespace), "ends", "to run again", func(p *corev1.Pod) (bool, error) {
			status := p.Status.ContainerStatuses
			return len(status) > 0 && status[0].RestartCount >= ended && status[0].State.Running != nil, nil
		})
		s.FirstLines("ends", 1)
	}
	end()
	volume := s.Volume("data")
	// Both come a moment later where the machine is busy.
	kube.Await(s, s.Client.CoreV1().Events(s.Namespace), metav1.ListOptions{FieldSelector: "reason=ProvisioningSucceeded"}, "the event of the volume",
		func(all []*corev1.Event) (bool, error) { return len(all) > 0, nil })
	giveUp, cancel := context.WithTimeout(t.Context(), kube.Patience)
	defer cancel()
	if err := persist(giveUp, func() error {
		once, cancel := context.WithTimeout(giveUp, 20*time.Second) // a kubelet does not always answer
		defer cancel()
		log, err := s.Client.CoreV1().Pods(s.Namespace).GetLogs("ends", &corev1.PodLogOptions{Previous: true}).DoRaw(once)
		if err == nil && !strings.Contains(string(log), "a run") {
			err = fmt.Errorf("it says %q", log)
			end() // a kubelet that is short of room removes containers that have ended
		}
		return err
	}); err != nil {
		t.Fatalf("the log of the run before: %v", err)
	}

	dir := t.TempDir()
	if err := s.Collect(t.Context(), dir, s.Namespace); err != nil {
		t.Logf("a node without power keeps its logs: %v", err)
	}
	objects, logs := filepath.Join("objects", s.Namespace), filepath.Join("logs", s.Namespace, "ends")
	for file, want := range map[string]string{
		filepath.Join(objects, "pods.yaml"):                                "exitCode: 7",
		filepath.Join(objects, "persistentvolumeclaims.yaml"):              "volumeName: " + volume.Name,
		filepath.Join(objects, "secrets.yaml"):                             "name: password",
		"objects/persistentvolumes.yaml":                                   "name: " + volume.Name,
		"objects/nodes.yaml":                                               "kind: Node",
		"objects/csinodes.storage.k8s.io.yaml":                             "csi.holdfast.dev",
		"objects/storageclasses.storage.k8s.io.yaml":                       "provisioner: csi.holdfast.dev",
		"objects/volumesnapshotclasses.snapshot.storage.k8s.io.yaml":       "driver: csi.holdfast.dev",
		"objects/holdfast-system/csistoragecapacities.storage.k8s.io.yaml": "storageClassName: holdfast",
		"objects/holdfast-system/daemonsets.apps.yaml":                     "name: holdfast-node",
		filepath.Join(logs, "main.previous.log"):                           "a run",
		filepath.Join(logs, "main.log"):                                    "a run",
		"logs/holdfast-system/*/holdfast.log":                              volume.Name,
		"logs/holdfast-system/*/csi-provisioner.log":                       volume.Name,
		"components/logs/kube-apiserver.log":                               "",
		"events.txt":                                                       "ProvisioningSucceeded persistentvolumeclaim/data",
	} {
		if content := read(t, dir, file); !strings.Contains(content, want) {
			t.Errorf("%s has no %q", file, want)
		}
	}
	if found := grep(t, dir, secret); len(found) > 0 {
		t.Errorf("the secret is in %v", found)
	}
}

// read returns what the files of a pattern contain, of which there must be one at least.
func read(t *testing.T, dir, pattern string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(paths) == 0 {
		t.Errorf("%s is missing, %v", pattern, err)
	}
	var content strings.Builder
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		content.Write(data)
	}
	return content.String()
}

// grep returns the files with a text in them, as it is or as the API server encodes it.
func grep(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if content := string(data); strings.Contains(content, text) || strings.Contains(content, base64.StdEncoding.EncodeToString([]byte(text))) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return found
}
