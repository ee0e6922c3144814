package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/documents"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

const examples = "../../../deploy/examples"

// sharedExample has a test of its own: not every node of this cluster has a kernel that mounts NFS.
var sharedExample = filepath.Join(examples, "shared.yaml")

// cephExamples need a Ceph cluster, and one changes the StorageCluster: operator/render tests what is made of it, and
// test/suite/e2e/ceph moves volumes.
var cephExamples = []string{filepath.Join(examples, "ceph.yaml"), filepath.Join(examples, "move-to-ceph.yaml")}

// copyExample copies a claim that nothing writes to.
var copyExample = filepath.Join(examples, "copy-from.yaml")

// nightlyExample is applied as the others are. Its image is not in this cluster: what its container runs has a test of its own.
var nightlyExample = filepath.Join(examples, "nightly.yaml")

func TestExamples_RunUnchanged(t *testing.T) {
	t.Parallel()
	s := begin(t)
	allNodes(t) // the examples' pods may be on any of them
	done := map[string]bool{}
	apply := func(file string) {
		for _, object := range s.Apply(file) {
			awaitExample(s, object)
		}
		done[file] = true
	}
	// The snapshot is of the claim, and holds what had been written by then.
	apply(filepath.Join(examples, "claim.yaml"))
	s.Exec("writer", "sh", "-c", "until test -s /data/log; do sleep 0.1; done")
	files := check.Got(filepath.Glob(filepath.Join(examples, "*.yaml")))(t)
	for _, file := range files {
		if !done[file] && file != sharedExample && file != copyExample && !slices.Contains(cephExamples, file) {
			apply(file)
		}
	}
	if line := s.FirstLines("reader", 1); !strings.Contains(line[0], "UTC") {
		t.Errorf("the volume from the snapshot begins with %q, which is no time", line)
	}
}

func TestExamples_SharedVolumeRunsOnNodesWhoseKernelMountsIt(t *testing.T) {
	hostfs.Long(t)
	t.Parallel()
	s := begin(t)
	nodes := nodesWithClients(t)
	s.AllowServers()
	next := 0
	for _, object := range s.Apply(sharedExample, func(o *unstructured.Unstructured) {
		if o.GetKind() == "Pod" {
			check.OK(t, unstructured.SetNestedField(o.Object, nodes[next%len(nodes)], "spec", "nodeName"))
			next++
		}
	}) {
		awaitExample(s, object)
	}
	wrote := s.Exec("shared-one", "sh", "-c", "until test $(wc -l </data/log) = 2; do sleep 0.5; cat /data/log >/dev/null; done; sort /data/log")
	if wrote != "shared-one\nshared-two\n" {
		t.Errorf("both pods must have written their name: %q", wrote)
	}
}

// awaitExample waits until an object of an example does what it is an example of.
func awaitExample(s *kube.Space, object *unstructured.Unstructured) {
	switch object.GetKind() {
	case "Pod":
		s.Ready(object.GetName())
	case "NFSServer":
		s.AwaitApplied(object, "to serve", kube.Serves)
	case "VolumeSnapshot":
		s.AwaitApplied(object, "to be usable", func(o *unstructured.Unstructured) (bool, error) {
			ready, _, err := unstructured.NestedBool(o.Object, "status", "readyToUse")
			return ready, err
		})
	}
}

// TestExamples_NightlySnapshotsAreTakenAndTheLastOnesKept runs here what the container of the CronJob runs, with the rights of
// its account.
func TestExamples_NightlySnapshotsAreTakenAndTheLastOnesKept(t *testing.T) {
	t.Parallel()
	s := begin(t)
	s.Claim("notes", "64Mi")
	s.Run("writer", kube.Mount("notes", "/data"), kube.Script("echo written >/data/log; sync /data/log"))
	var command []string
	for _, object := range s.Apply(nightlyExample) {
		if object.GetKind() == "CronJob" {
			containers, _, err := unstructured.NestedSlice(object.Object, "spec", "jobTemplate", "spec", "template", "spec", "containers")
			check.OK(t, err)
			command, _, err = unstructured.NestedStringSlice(containers[0].(map[string]any), "command")
			check.OK(t, err)
		}
	}
	config := check.Got(clientcmd.LoadFromFile(s.Kubeconfig()))(t)
	check.OK(t, clientcmd.ResolveLocalPaths(config))
	for _, user := range config.AuthInfos {
		user.Impersonate = "system:serviceaccount:" + s.Namespace + ":nightly-snapshots"
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	check.OK(t, clientcmd.WriteToFile(*config, kubeconfig))
	for range 3 {
		asAdministrator(t, s, command, "CLAIM=notes", "KEEP=2", "NAMESPACE="+s.Namespace, "KUBECONFIG="+kubeconfig)
	}
	left := kube.Await(s, s.Snapshots(), metav1.ListOptions{LabelSelector: "nightly=notes"}, "to be two",
		func(all []*unstructured.Unstructured) (bool, error) { return len(all) == 2, nil })
	s.Claim("restored", "64Mi", kube.From("VolumeSnapshot", left[1].GetName()))
	if read := s.Run("reader", kube.Mount("restored", "/data"), kube.Script("cat /data/log")); read != "written\n" {
		t.Errorf("the last snapshot has %q", read)
	}
}

// TestExamples_VolumeIsMovedToAnotherNodeByTheCommandsOfThePage runs the commands of docs/nodes.md as they are there.
func TestExamples_VolumeIsMovedToAnotherNodeByTheCommandsOfThePage(t *testing.T) {
	hostfs.Long(t)
	t.Parallel()
	s := begin(t)
	node := secondNode(t)
	aloneWithNodes(t)
	const (
		write = "cd /data; mkdir a; head -c 5000000 /dev/urandom >a/file; chmod 640 a/file; ln a/file hard; ln -s a/file soft; sync; "
		read  = "cd /data; sha256sum a/file; readlink soft; test a/file -ef hard; stat -c '%n %u %g %a %Y' a a/file"
	)
	s.Claim("notes", "64Mi")
	written := s.Run("writer", kube.Mount("notes", "/data"), kube.OnNode(node), kube.Script(write+read))
	s.DeletePod("writer")
	s.Cordon(node)
	moves := slices.DeleteFunc(documents.Paragraphs(string(check.Got(os.ReadFile("../../../docs/nodes.md"))(t))),
		func(block string) bool { return !strings.Contains(block, "move-to") })
	if len(moves) != 2 {
		t.Fatalf("docs/nodes.md has %d blocks of commands that move a volume, not 2", len(moves))
	}
	here := func(script string, more ...string) {
		script = strings.NewReplacer(append(more, "-n shop", "-n "+s.Namespace, "shop/", s.Namespace+"/")...).Replace(script)
		asAdministrator(t, s, []string{"bash", "-euxo", "pipefail", "-c", `holdfast() { "$HOLDFAST" "$@"; }` + "\n" + script}, "HOLDFAST="+s.HoldfastProgram(t))
	}
	here(moves[0])
	copied := s.Volume("notes-moved")
	here(moves[1], "pvc-0c4e", copied.Name)
	if now := s.Volume("notes"); now.Name != copied.Name || placed(now) == node {
		t.Errorf("the claim has volume %s on %s, and the copy is %s", now.Name, placed(now), copied.Name)
	}
	if found := s.Run("reader", kube.Mount("notes", "/data"), kube.AnyNode, kube.Script(read)); found != written {
		t.Errorf("read is\n%s\nwritten was\n%s", found, written)
	}
}

// TestExamples_ClaimOfAnotherDriverIsCopiedByTheCommandsOfThePage runs the commands of docs/from-other-storage.md as they are
// there, with a volume of this driver as the source.
func TestExamples_ClaimOfAnotherDriverIsCopiedByTheCommandsOfThePage(t *testing.T) {
	t.Parallel()
	s := begin(t)
	const read = "cd /data; sha256sum a/file; readlink soft; test a/file -ef hard; stat -c '%n %u %g %a %Y' a/file"
	s.Claim("notes", "64Mi")
	written := s.Run("writer", kube.Mount("notes", "/data"),
		kube.Script("cd /data; mkdir a; head -c 5000000 /dev/urandom >a/file; chmod 640 a/file; ln a/file hard; ln -s a/file soft; sync; "+read))
	s.DeletePod("writer")
	for _, block := range documents.Paragraphs(string(check.Got(os.ReadFile("../../../docs/from-other-storage.md"))(t))) {
		if strings.Contains(block, "copy-from") {
			asAdministrator(t, s, []string{"bash", "-euxo", "pipefail", "-c", strings.ReplaceAll(block, "-n shop", "-n "+s.Namespace)})
		}
	}
	if found := s.Run("reader", kube.Mount("notes-copied", "/data"), kube.Script(read)); found != written {
		t.Errorf("read is\n%s\nwritten was\n%s", found, written)
	}
}

// asAdministrator runs a command in the directory of the repository, where kubectl is that of the cluster.
func asAdministrator(t *testing.T, s *kube.Space, command []string, environment ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kube.Patience)
	defer cancel()
	kubectl := check.Got(exec.LookPath(s.Command(ctx, "kubectl").Path))(t)
	cmd := s.Command(ctx, command[0], command[1:]...)
	cmd.Dir = "../../.."
	cmd.Env = append(append(cmd.Env, "PATH="+filepath.Dir(kubectl)+":"+os.Getenv("PATH")), environment...)
	out, err := cmd.CombinedOutput()
	if t.Logf("%s", out); err != nil {
		t.Fatalf("%s: %v", command[0], err)
	}
}
