package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// clusterName is that of the one StorageCluster.
const clusterName = "holdfast"

// usual is what the StorageCluster asks for when no test has changed it: what the cluster was installed with.
var usual *v1beta1.StorageClusterSpec

// admin changes the StorageCluster. The end of its test puts it back, after the end of namespaces made later, whose
// volumes may need what was changed.
type admin struct {
	*kube.Space
	t *testing.T
}

func administer(t *testing.T) *admin {
	t.Helper()
	a := &admin{begin(t), t}
	if usual == nil {
		usual = a.installed()
	}
	t.Cleanup(a.restore)
	a.change(asUsual) // a run that was killed may have left it otherwise
	return a
}

func asUsual(spec *v1beta1.StorageClusterSpec) { *spec = *usual.DeepCopy() }

func (a *admin) installed() *v1beta1.StorageClusterSpec {
	a.t.Helper()
	_, cluster := a.manifests()
	objects := check.Got(readManifests(cluster))(a.t)
	for _, o := range objects {
		if o.GetKind() == "StorageCluster" && o.GetName() == clusterName {
			c, err := typed[v1beta1.StorageCluster](o)
			if err != nil {
				a.t.Fatalf("%s: %v", cluster, err)
			}
			return &c.Spec
		}
	}
	a.t.Fatalf("%s has no StorageCluster %s", cluster, clusterName)
	return nil
}

func (a *admin) restore() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.t.Context()), 2*kube.Patience)
	defer cancel()
	a.Eventually(ctx, "the cluster to be as before", func(ctx context.Context) error {
		err := a.write(ctx, asUsual)
		if apierrors.IsNotFound(err) || errors.Is(err, errLeaving) {
			err = a.install(ctx)
		}
		return errors.Join(err, a.checkReconciled(ctx))
	})
}

func read(ctx context.Context, s *kube.Space) (*v1beta1.StorageCluster, error) {
	found, err := s.Holdfast("storageclusters").Get(ctx, clusterName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return typed[v1beta1.StorageCluster](found)
}

func typed[T any](from *unstructured.Unstructured) (*T, error) {
	to := new(T)
	return to, runtime.DefaultUnstructuredConverter.FromUnstructured(from.Object, to)
}

func (a *admin) get() *v1beta1.StorageCluster {
	a.t.Helper()
	c := check.Got(read(a.t.Context(), a.Space))(a.t)
	return c
}

var errLeaving = errors.New("the StorageCluster is being deleted")

// write changes the spec unless it is so already.
func (a *admin) write(ctx context.Context, change func(*v1beta1.StorageClusterSpec)) error {
	found, err := a.Holdfast("storageclusters").Get(ctx, clusterName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if found.GetDeletionTimestamp() != nil {
		return errLeaving
	}
	c, err := typed[v1beta1.StorageCluster](found)
	if err != nil {
		return err
	}
	before := c.Spec.DeepCopy()
	change(&c.Spec)
	if equality.Semantic.DeepEqual(*before, c.Spec) {
		return nil
	}
	found.Object["spec"], err = runtime.DefaultUnstructuredConverter.ToUnstructured(&c.Spec)
	if err != nil {
		return err
	}
	_, err = a.Holdfast("storageclusters").Update(ctx, found, metav1.UpdateOptions{})
	return err
}

// allowHiding says until the end of the test which pools may be hidden although they hold volumes.
func (a *admin) allowHiding(pools string) {
	a.t.Helper()
	set := func(ctx context.Context, value any) error {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1beta1.AllowHidingAnnotation: value}}})
		if err == nil {
			_, err = a.Holdfast("storageclusters").Patch(ctx, clusterName, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		return err
	}
	a.t.Cleanup(func() {
		check.Report(a.t, set(context.WithoutCancel(a.t.Context()), nil))
	})
	check.OK(a.t, set(a.t.Context(), pools))
}

// ask changes the spec and does not wait for what becomes of it.
func (a *admin) ask(change func(*v1beta1.StorageClusterSpec)) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), kube.Patience)
	defer cancel()
	a.Eventually(ctx, "the spec to be taken", func(ctx context.Context) error { return a.write(ctx, change) })
	if a.t.Failed() {
		a.t.FailNow()
	}
}

// change changes the spec and waits until all that runs is as it says.
func (a *admin) change(change func(*v1beta1.StorageClusterSpec)) {
	a.t.Helper()
	a.ask(change)
	a.awaitReconciled()
}

func (a *admin) awaitReconciled() {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), 2*kube.Patience)
	defer cancel()
	if !a.Eventually(ctx, "the cluster to be reconciled", a.checkReconciled) {
		a.t.FailNow()
	}
}

// checkReconciled returns why the cluster is not reconciled yet: by its status, and by its pods, which must agree.
func (a *admin) checkReconciled(ctx context.Context) error {
	c, err := read(ctx, a.Space)
	if err != nil {
		return err
	}
	if err := checkStatus(c); err != nil {
		return err
	}
	pods, err := a.Client.CoreV1().Pods(kube.System).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=holdfast"})
	if err != nil {
		return err
	}
	for _, p := range pods.Items {
		if p.DeletionTimestamp != nil || !isReady(&p) {
			return fmt.Errorf("pod %s is ending or not ready, and the StorageCluster is %s", p.Name, c.Status.Phase)
		}
	}
	return nil
}

func checkStatus(c *v1beta1.StorageCluster) error {
	progressing := meta.FindStatusCondition(c.Status.Conditions, v1beta1.ProgressingCondition)
	if c.Status.ObservedGeneration < c.Generation || c.Status.Phase != v1beta1.ClusterRunning || progressing == nil || progressing.Reason != "UpToDate" ||
		c.Status.ReadyNodes != c.Status.DesiredNodes || !meta.IsStatusConditionTrue(c.Status.Conditions, v1beta1.ReadyCondition) {
		return fmt.Errorf("generation %d, status %s", c.Generation, inWords(c.Status))
	}
	return nil
}

func inWords(of any) string {
	text, err := json.Marshal(of)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func isReady(p *corev1.Pod) bool {
	for _, condition := range p.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// await follows the StorageCluster until done accepts it.
func (a *admin) await(what string, done func(*v1beta1.StorageCluster) bool) *v1beta1.StorageCluster {
	a.t.Helper()
	var c *v1beta1.StorageCluster
	kube.AwaitOne(a.Space, a.Holdfast("storageclusters"), clusterName, what, func(found *unstructured.Unstructured) (bool, error) {
		var err error
		if c, err = typed[v1beta1.StorageCluster](found); err != nil {
			return false, err
		}
		return c.Status.ObservedGeneration >= c.Generation && done(c), nil
	})
	return c
}

// says reports whether a condition has a reason and a message with all the words.
func says(c *v1beta1.StorageCluster, condition, reason string, words ...string) bool {
	found := meta.FindStatusCondition(c.Status.Conditions, condition)
	if found == nil || found.Reason != reason {
		return false
	}
	for _, word := range words {
		if !strings.Contains(found.Message, word) {
			return false
		}
	}
	return true
}

// pods of a component of Holdfast, by name.
func (a *admin) pods(component string) map[string]corev1.Pod {
	a.t.Helper()
	list := check.Got(a.Client.CoreV1().Pods(kube.System).List(a.t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=holdfast,app.kubernetes.io/component=" + component}))(a.t)
	all := map[string]corev1.Pod{}
	for _, p := range list.Items {
		all[p.Name] = p
	}
	return all
}

// directory is where the cluster keeps its files. It is on every node.
func (a *admin) directory() string {
	return filepath.Dir(a.Kubeconfig())
}

// label sets a label of a node until the test has ended, or removes it if the value is empty.
func (a *admin) label(node, key, value string) {
	a.t.Helper()
	set := func(ctx context.Context, value any) error {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{key: value}}})
		if err == nil {
			_, err = a.Client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		return err
	}
	a.t.Cleanup(func() {
		check.Report(a.t, set(context.WithoutCancel(a.t.Context()), nil))
	})
	to := any(value)
	if value == "" {
		to = nil
	}
	check.OK(a.t, set(a.t.Context(), to))
}

// chosen is a selector of the nodes with a label.
func chosen(key, value string) []corev1.NodeSelectorTerm {
	return []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}}}
}
