package upgrade

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// site is the cluster for one test.
type site struct {
	*kube.Space
	t     *testing.T
	nodes []string
	image v1beta1.Image // that is installed
}

// ofTest is a label of the upgrades and jobs of a test.
const ofTest = "e2e.holdfast.dev/test"

func (s *site) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{GenerateName: name + "-", Labels: map[string]string{ofTest: s.Namespace}}
}

// putBack ends what the test has begun and makes the cluster what it was. What the cluster knows of a test that has
// failed is collected first.
func (s *site) putBack() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(withoutEnd(s.t), 2*kube.Patience)
	defer cancel()
	if s.t.Failed() {
		s.collect(ctx)
	}
	own := metav1.ListOptions{LabelSelector: ofTest + "=" + s.Namespace}
	if err := errors.Join(
		objects.StorageUpgrades().DeleteCollection(ctx, metav1.DeleteOptions{}, own),
		objects.NodeJobs().DeleteCollection(ctx, metav1.DeleteOptions{}, own),
	); err != nil {
		s.t.Errorf("removing the upgrades and jobs of the test: %v", err)
	}
	s.Eventually(ctx, "the upgrades and jobs of the test to be gone", func(ctx context.Context) error { return noneLeft(ctx, own) })
	if err := restore(ctx); err != nil {
		s.t.Errorf("putting StorageCluster %s back: %v", clusterName, err)
	}
	s.Eventually(ctx, "the cluster to be as it was installed", func(ctx context.Context) error { return s.runs(ctx, installed.Images.Holdfast) })
}

func (s *site) collect(ctx context.Context) {
	s.t.Helper()
	dir, err := os.MkdirTemp("", "holdfast-e2e-upgrade-")
	if err != nil {
		s.t.Error(err)
		return
	}
	s.t.Logf("what the cluster knew before it was put back is in %s", dir)
	if err := s.Collect(ctx, dir, s.Namespace); err != nil {
		s.t.Logf("except for: %v", err)
	}
}

func noneLeft(ctx context.Context, own metav1.ListOptions) error {
	upgrades, err := objects.StorageUpgrades().List(ctx, own)
	if err != nil {
		return err
	}
	jobs, err := objects.NodeJobs().List(ctx, own)
	if err != nil {
		return err
	}
	for _, u := range upgrades.Items {
		return fmt.Errorf("upgrade %s is there, in step %s: %v", u.Name, u.Status.Step, u.Status.Conditions)
	}
	for _, j := range jobs.Items {
		return fmt.Errorf("job %s is there: %v", j.Name, j.Status.Conditions)
	}
	return nil
}

// restore writes the spec that was installed, which changes nothing if it is still so.
func restore(ctx context.Context) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		c, err := objects.StorageClusters().Get(ctx, clusterName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		c.Spec = installed
		delete(c.Annotations, v1beta1.PausedByAnnotation)
		_, err = objects.StorageClusters().Update(ctx, c, metav1.UpdateOptions{})
		return err
	})
}

// storageCluster reads it.
func (s *site) storageCluster() *v1beta1.StorageCluster {
	s.t.Helper()
	c := check.Got(objects.StorageClusters().Get(s.t.Context(), clusterName, metav1.GetOptions{}))(s.t)
	return c
}

// awaitImage waits until all of Holdfast runs an image, and the StorageCluster asks for it.
func (s *site) awaitImage(image v1beta1.Image) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), kube.Patience)
	defer cancel()
	if !s.Eventually(ctx, "all of Holdfast to run "+string(image), func(ctx context.Context) error { return s.runs(ctx, image) }) {
		s.t.FailNow()
	}
}

// runs says what does not run an image, or not well.
func (s *site) runs(ctx context.Context, image v1beta1.Image) error {
	return s.runsAsked(ctx, image, image)
}

// runsAsked is runs with another image in the StorageCluster, or with none.
func (s *site) runsAsked(ctx context.Context, asked, image v1beta1.Image) error {
	c, err := objects.StorageClusters().Get(ctx, clusterName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	switch by := c.Annotations[v1beta1.PausedByAnnotation]; {
	case c.Spec.Images.Holdfast != asked:
		return fmt.Errorf("the StorageCluster asks for %q", c.Spec.Images.Holdfast)
	case c.Spec.Paused || by != "":
		return fmt.Errorf("the StorageCluster is paused (%t), by %q", c.Spec.Paused, by)
	case c.Status.Phase != v1beta1.ClusterRunning || int(c.Status.ReadyNodes) != len(s.nodes) || int(c.Status.DesiredNodes) != len(s.nodes) || c.Status.ObservedGeneration != c.Generation:
		return fmt.Errorf("the StorageCluster is %s, %d of %d nodes ready: %v", c.Status.Phase, c.Status.ReadyNodes, len(s.nodes), c.Status.Conditions)
	}
	controller, err := s.Client.AppsV1().Deployments(kube.System).Get(ctx, "holdfast-controller", metav1.GetOptions{})
	if err != nil {
		return err
	}
	return errors.Join(s.podsRun(ctx, "node", len(s.nodes), image), s.podsRun(ctx, "controller", int(*controller.Spec.Replicas), image))
}

// podsRun says which of the pods of a component does not run an image, is not ready, or is one too many.
func (s *site) podsRun(ctx context.Context, component string, count int, image v1beta1.Image) error {
	pods, err := s.podsOf(ctx, component)
	if err != nil {
		return err
	}
	if len(pods) != count {
		return fmt.Errorf("there are %d %s pods, and %d are to be", len(pods), component, count)
	}
	for _, p := range pods {
		if !works(&p) || imageOf(&p) != image {
			return fmt.Errorf("pod %s of %s, with %s, is ending or not ready, or has the wrong image", p.Name, p.Spec.NodeName, imageOf(&p))
		}
	}
	return nil
}

func (s *site) podsOf(ctx context.Context, component string) ([]core.Pod, error) {
	pods, err := s.Client.CoreV1().Pods(kube.System).List(ctx, selector(component))
	if err != nil {
		return nil, err
	}
	return pods.Items, nil
}

func selector(component string) metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=holdfast,app.kubernetes.io/component=" + component}
}

// works says whether a pod is ready and stays.
func works(p *core.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == core.PodReady {
			return c.Status == core.ConditionTrue && p.DeletionTimestamp == nil
		}
	}
	return false
}

func imageOf(p *core.Pod) v1beta1.Image {
	for _, c := range p.Spec.Containers {
		if c.Name == "holdfast" {
			return v1beta1.Image(c.Image)
		}
	}
	return ""
}

// nodePods are the node pods, by node.
func (s *site) nodePods() map[string]types.UID {
	s.t.Helper()
	pods := check.Got(s.podsOf(s.t.Context(), "node"))(s.t)
	found := map[string]types.UID{}
	for _, p := range pods {
		found[p.Spec.NodeName] = p.UID
	}
	return found
}

// binds sees that volumes can be made on all nodes.
func (s *site) binds(name string) {
	s.t.Helper()
	for _, node := range s.nodes {
		s.Claim(name+"-"+node, "32Mi")
		s.Pod(name+"-"+node, kube.Mount(name+"-"+node, "/data"), kube.OnNode(node), kube.Script("echo here >/data/it; sync; sleep infinity"))
	}
	for _, node := range s.nodes {
		s.Ready(name + "-" + node)
		s.DeletePod(name + "-" + node)
	}
}

// withoutEnd is the context of a test for what is done after its end.
func withoutEnd(t *testing.T) context.Context { return context.WithoutCancel(t.Context()) }
