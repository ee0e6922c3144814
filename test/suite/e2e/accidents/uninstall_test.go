package accidents

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

const (
	// partOf selects all that belongs to Holdfast.
	partOf = "app.kubernetes.io/part-of=holdfast"
	// ofController is what the manifest has beside the definitions and the namespace: all that helm uninstall and OLM take away.
	ofController = "deployment,serviceaccount,role,rolebinding,clusterrole,clusterrolebinding"
)

// file is one of those that the cluster was installed with.
func file(name string) string { return filepath.Join(filepath.Dir(cluster.Kubeconfig()), name) }

// install applies what the cluster was installed with, as often as it takes while what was there before is still going, and
// waits until all of it runs.
func (p *precious) install(files ...string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 2*kube.Patience)
	defer cancel()
	// kubectl apply warns of what is still on its way out, and takes it.
	kube.Await(p.Space, p.Client.AppsV1().Deployments(kube.System), kube.Named("holdfast-controller"), "the controller to be gone, or another", func(all []*appsv1.Deployment) (bool, error) {
		return len(all) == 0 || all[0].DeletionTimestamp == nil, nil
	})
	for _, name := range files {
		p.Eventually(ctx, "the manifest "+name+" to be applied", func(context.Context) error {
			_, err := cluster.Kubectl(p.t, "apply", "--server-side", "--force-conflicts", "-f", file(name))
			return err
		})
	}
	p.Eventually(ctx, "Holdfast to run as installed", func(ctx context.Context) error {
		if err := p.RolledOut(ctx); err != nil {
			return err
		}
		c, err := objects.StorageClusters().Get(ctx, clusterName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if c.Status.Phase != v1beta1.ClusterRunning || c.DeletionTimestamp != nil {
			return errors.New("the StorageCluster is " + string(c.Status.Phase))
		}
		return nil
	})
}

func TestKinds_AreNotDeletedWhileThereAreVolumes(t *testing.T) {
	p := keep(t, begin(t))
	p.killing(func(p *precious, kill func()) {
		for _, what := range [][]string{
			{"crd", "volumes.holdfast.dev"},
			{"crd", "storageclusters.holdfast.dev"},
			{"crd", "snapshots.holdfast.dev"},
			{"crd", "storagenodes.holdfast.dev"},
			{"namespace", kube.System},
		} {
			out, err := cluster.Kubectl(p.t, append([]string{"delete", "--wait=false"}, what...)...)
			if err == nil || !strings.Contains(out, "volumes") || !strings.Contains(out, "docs/uninstall.md") {
				p.t.Errorf("%v: %v: %s", what, err, out)
			}
			kill()
		}
	})
}

func TestManifest_DeletedAndAppliedAgainLosesNothing(t *testing.T) {
	p := keep(t, begin(t)).keepShared()
	ways := map[string][]string{"kubectl delete -f": {"delete", "--wait=false", "-f", file("install.yaml")}}
	if hostfs.All() {
		ways["as Argo CD and Flux do"] = []string{"delete", "--cascade=foreground", "-f", file("install.yaml")}
		ways["kubectl replace --force"] = []string{"replace", "--force", "-f", file("install.yaml")}
	}
	for how, args := range ways {
		p.sub(how, func(p *precious) {
			if out, err := cluster.Kubectl(p.t, args...); err == nil || !strings.Contains(out, "docs/uninstall.md") {
				p.t.Errorf("it was not refused: %v: %s", err, out)
			}
			kills["the agent"](p.Space)
			p.install("install.yaml")
		})
	}
	p.sub("as helm uninstall and OLM do", func(p *precious) {
		cluster.MustKubectl(p.t, "-n", kube.System, "delete", ofController, "holdfast-controller")
		kills["the agent"](p.Space)
		p.install("install.yaml")
		// The operator makes of it what the manifest had: nothing is replaced once more.
		sets, err := p.Client.AppsV1().ReplicaSets(kube.System).List(p.t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=controller"})
		if err != nil || len(sets.Items) != 1 {
			p.t.Errorf("an installation has made %d ReplicaSets of the controller, %v", len(sets.Items), err)
		}
	})
}

// noController takes the controller away, which would put right what is changed next. While it has its account still, it
// may make its Deployment again, without the account.
func (p *precious) noController() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), kube.Patience)
	defer cancel()
	p.Eventually(ctx, "the controllers to be gone", func(ctx context.Context) error {
		cluster.MustKubectl(p.t, "-n", kube.System, "delete", "--ignore-not-found", ofController, "holdfast-controller")
		pods, err := p.Client.CoreV1().Pods(kube.System).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=controller"})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("pod %s is there", pods.Items[0].Name)
		}
		return err
	})
}

// Past the policies: the controller, which would repair them, is not there, and the administrator deletes them too.
func TestManifest_DeletedWhereNothingRefusesItAndAppliedAgainLosesNothing(t *testing.T) {
	p := keep(t, begin(t)).keepShared()
	ways := []string{"alive"}
	if hostfs.All() {
		ways = append(ways, "dead")
	}
	for _, agents := range ways {
		p.sub("agents "+agents, func(p *precious) {
			p.noController()
			if agents == "dead" {
				cluster.MustKubectl(p.t, "-n", kube.System, "delete", "daemonset", "--all")
				kube.AwaitNone(p.Space, p.Client.CoreV1().Pods(kube.System), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=node"}, "node pods")
			}
			ns := check.Got(p.Client.CoreV1().Namespaces().Get(p.t.Context(), kube.System, metav1.GetOptions{}))(p.t)
			before := p.uids(p.volumes(idle, used, raw, shared, plain))
			p.deleteManifest()
			p.install("install.yaml")
			p.awaitRecreated(ns.UID)
			p.writtenAgain(before)
		})
	}
}

// deleteManifest deletes all that the manifest has where no policy refuses that.
func (p *precious) deleteManifest() {
	p.t.Helper()
	cluster.MustKubectl(p.t, "delete", "validatingadmissionpolicybinding", "-l", partOf)
	p.Eventually(p.t.Context(), "the API server to forget the policies", func(context.Context) error {
		_, err := cluster.Kubectl(p.t, "delete", "--ignore-not-found", "--wait=false", "-f", file("install.yaml"))
		return err
	})
}

// awaitRecreated says that the namespace of Holdfast is another one than it was: it was really gone.
func (p *precious) awaitRecreated(was types.UID) {
	p.t.Helper()
	if ns, err := p.Client.CoreV1().Namespaces().Get(p.t.Context(), kube.System, metav1.GetOptions{}); err != nil || ns.UID == was {
		p.t.Errorf("the namespace was not deleted, %v", err)
	}
}

func TestStorageCluster_DeletedByForceWaitsForTheLastVolumeAndComesBackWithAll(t *testing.T) {
	p := keep(t, begin(t)).keepShared()
	p.killing(func(p *precious, kill func()) {
		if out, err := cluster.Kubectl(p.t, "delete", "--wait=false", "storagecluster", clusterName, "--cascade=foreground"); err == nil || !strings.Contains(out, "docs/uninstall.md") {
			p.t.Errorf("it was not refused: %v: %s", err, out)
		}
		for _, how := range [][]string{{"--force", "--grace-period=0"}, {"--cascade=orphan"}} {
			cluster.MustKubectl(p.t, append([]string{"delete", "--wait=false", "storagecluster", clusterName}, how...)...)
		}
		kill()
		if message := p.cluster(v1beta1.ClusterTerminating, v1beta1.ProgressingCondition); !strings.Contains(message, "volumes") {
			p.t.Errorf("it says %q", message)
		}
		p.intact(p.t.Name() + ", deleted by force")

		// And even so it is made to go.
		cluster.MustKubectl(p.t, "patch", "storagecluster", clusterName, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		p.install("install.yaml", "storagecluster.yaml")
		if p.client != "" {
			p.AllowServers()
		}
	})
}
