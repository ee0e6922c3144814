package operator

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/documents"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// notRun are the commands of the documents that this test does not run, by their first words, with the reason.
var notRun = map[string]string{
	"kubectl port-forward": "goes on until it is ended", "kubectl get pvc notes --watch": "the same",
	"kubectl drain": "test/suite/e2e drains nodes", "kubectl taint node NODE node.kubernetes.io/out-of-service-": "takes off what is not there",
	"kubectl exec": "is for pods of an example, which test/suite/e2e runs", "kubectl wait pod/": "the same", "kubectl delete pod move-from": "the same", "kubectl logs copy-from": "the same", "kubectl apply -f deploy/examples/copy-from.yaml": "the same", "kubectl create job": "the same",
	"kubectl delete pod writer": "is of an example; test/suite/golden deletes a pod and a claim of its own", "kubectl delete pvc notes": "the same",
	"kubectl holdfast":            "is the program, under its name as a plugin",
	"kubectl rollout restart":     "has no dry run, and other tests end the controller",
	"kubectl wait storageupgrade": "test/suite/e2e/upgrade upgrades", "kubectl wait storageclusters.holdfast.dev holdfast --for=condition": "is run when all tests begin",
	"kubectl apply --server-side -k mine": "test/suite/deploy builds what docs/install.md shows", "kubectl get storageoscluster": "is a kind of StorageOS",
	"kubectl apply -k deploy/monitoring": "needs Prometheus Operator; test/suite/monitoring reads it", "kubectl label prometheusrule": "the same",
	"kubectl create configmap holdfast-dashboard": "needs a namespace of Grafana", "kubectl label configmap holdfast-dashboard": "the same",
	"kubectl annotate storageclass local-path": "is the class of k3s", "kubectl patch configmap argocd-cm": "is of Argo CD",
	"kubectl annotate crd volumesnapshots": "is for a cluster whose kinds of snapshots came with Holdfast",
	"kubectl logs nfs-":                    "test/suite/e2e runs NFS servers", "kubectl describe pod nfs-": "the same", "kubectl patch persistentvolume pvc-0c4e": "test/suite/e2e/accidents does",
	"kubectl get storagenodes.holdfast.dev shared-storage": "is of an NFS server", "kubectl --kubeconfig": "is for a cluster without Holdfast", "kubectl get secret holdfast-api-tls": "is there only where the API is enabled",
	"kubectl logs deploy/holdfast-ceph-": "is of a pool in a Ceph cluster", "kubectl apply --server-side --field-manager=ceph": "test/suite/e2e/ceph does", "kubectl get pvc orders": "the same",
	"kubectl delete nodejob modules": "test/suite/e2e/upgrade runs jobs",

	"kubectl get nfsservers.holdfast.dev shared": "is about a namespace that is being deleted, as in TestClaim_DataOfANamespaceThatWasDeletedIsServedAgain", "kubectl patch nfsservers.holdfast.dev shared": "the same",
	"holdfast volumes delete": "test/suite/e2e/accidents deletes", "holdfast snapshots delete": "the same", "holdfast volumes adopt": "the same", "holdfast volumes restore": "the same",
	"holdfast volumes --pool": "is for the pool of a host", "holdfast volumes list --pool": "the same", "holdfast volumes trash --pool": "the same",
	"holdfast support-bundle": "writes a file",
	"holdfast standalone":     "is a driver", "holdfast controller": "is a process of a cluster", "holdfast node": "the same", "holdfast nfs": "the same", "holdfast ceph": "the same", "holdfast copy": "the same",
	"holdfast render": "asks no cluster", "holdfast completion": "the same", "holdfast help": "the same", "holdfast COMMAND": "the same", "holdfast version": "the same",
	"holdfast bench": "test/suite/e2e/upgrade and bench run it", "holdfast cleanup": "removes the pool of a host",
}

// dryRun are the verbs of kubectl that write, and can be tried.
var dryRun = []string{"apply", "create", "delete", "patch", "label", "annotate", "replace", "taint", "cordon", "uncordon"}

// refused is what the API server answers where a policy of Holdfast protects the volume of the test.
const refused = "ValidatingAdmissionPolicy 'holdfast-"

func TestDocuments_CommandsRunInACluster(t *testing.T) {
	a := administer(t)
	if a.directory() == "" {
		hostfs.Skip(t, "cluster", "needs a cluster with a kubectl beside its kubeconfig")
	}
	a.Claim("data", "16Mi")
	a.Run("user", kube.Mount("data", "/data"), kube.Script("touch /data/file"))
	node := a.Volume("data").Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0]
	names := map[string]string{
		"NODE": node, "node-a": node, "n1": node, "pvc-0c4e": a.Volume("data").Name, "shop": a.Namespace, "data-orders-0": "data", "orders-0": "user", "notes": "data", "notes-moved": "data", "fast": "default", "install.yaml": "deploy/install.yaml",
		"bank/ledger": a.Namespace + "/data", "NAMESPACE/NAME": a.Namespace + "/data", "shop/orders": a.Namespace + "/data", "pvc NAME": "data", "volumes.holdfast.dev NAME": a.Volume("data").Name, "storageclass NAME": "holdfast",
	}
	ran := map[string]bool{}
	pages, err := filepath.Glob("../../../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	for _, page := range append(pages, "../../../../README.md", "../../../../CONTRIBUTING.md") {
		text := check.Got(os.ReadFile(page))(t)
		for _, call := range documents.Of(string(text), "kubectl", "holdfast") {
			line := strings.Join(call.Words, " ")
			if ran[line] || leftOut(call) {
				continue
			}
			ran[line] = true
			for i, word := range call.Words[1:] {
				if name, ok := names[word]; ok {
					call.Words[i+1] = name
				} else if name, ok := names[call.Words[i]+" "+word]; ok {
					call.Words[i+1] = name
				}
			}
			if out, err := a.try(call); err != nil && !strings.Contains(out, refused) && !strings.Contains(out, "(AlreadyExists)") {
				t.Errorf("%s: %s: %v\n%s", filepath.Base(page), line, err, out)
			}
		}
	}
	if len(ran) < 30 {
		t.Errorf("only %d commands were run", len(ran))
	}
}

// leftOut says whether a command begins as one of notRun does, whatever its namespace, reads what another command writes,
// or is only named in a sentence, without what it is about.
func leftOut(call documents.Call) bool {
	words := slices.Clone(call.Words)
	if i := slices.Index(words, "-n"); i >= 0 && i+2 <= len(words) {
		words = slices.Delete(words, i, i+2)
	}
	line := strings.Join(words, " ")
	for begin := range notRun {
		if strings.HasPrefix(line, begin) {
			return true
		}
	}
	if words[0] != "kubectl" {
		return slices.Contains(words, "--watch") // it goes on until it is ended
	}
	writes := slices.Contains(dryRun, words[1])
	return len(words) == 2 || writes && len(words) == 3 || strings.HasSuffix(line, "-f -") && call.Stdin == "" || strings.HasSuffix(line, "replace --force")
}

// try runs a command as its reader does, but that what writes is a dry run, which the API server and its policies answer.
func (a *admin) try(call documents.Call) (string, error) {
	a.t.Helper()
	words := slices.Clone(call.Words)
	if i := slices.Index(words, "--context"); i >= 0 {
		words = slices.Delete(words, i, i+2) // the test has one
	}
	if i := slices.IndexFunc(words, func(w string) bool { return w == ">" || w == "<" }); i >= 0 {
		words = words[:i] // the rest is of the shell
	}
	program := "kubectl"
	if words[0] == "holdfast" {
		program = a.HoldfastProgram(a.t)
	} else {
		words = append(words, "--request-timeout=60s")
		if slices.Contains(words, "pvc") && !slices.Contains(words, "-n") {
			words = append(words, "-n", a.Namespace)
		}
		if slices.ContainsFunc(words, func(w string) bool { return slices.Contains(dryRun, w) }) {
			words = append(words, "--dry-run=server")
		}
	}
	ctx, cancel := context.WithTimeout(a.t.Context(), kube.Patience)
	defer cancel()
	cmd := a.Command(ctx, program, words[1:]...)
	cmd.Dir = "../../../.."
	cmd.Env = append(cmd.Env, "KUBE_EDITOR=true")
	cmd.Stdin = strings.NewReader(call.Stdin)
	out, err := cmd.CombinedOutput()
	a.t.Logf("%s: %v", strings.Join(words, " "), err)
	return string(out), err
}
