package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

func TestDebug_IsVisibleInTheLogsAndRestartsNoNodePod(t *testing.T) {
	hostfs.Long(t)
	a := administer(t)
	nodes := identities(a.pods("node"))
	since := a.get().CreationTimestamp
	a.awaitLevel("INFO", since, "node", "controller") // else nothing has been logged, and the rest says nothing

	since = metav1.NewTime(time.Now().Add(-time.Second)) // the API server knows only whole seconds
	a.change(func(spec *v1beta1.StorageClusterSpec) { spec.Debug = true })
	a.awaitLevel("level=DEBUG debug=true", since, "node", "controller")
	a.untouched(nodes, "node")
	for name, pod := range a.pods("controller") {
		for _, c := range pod.Spec.Containers {
			if c.Name != "holdfast" && !slices.Contains(c.Args, "--v=5") {
				t.Errorf("container %s of pod %s has the arguments %v", c.Name, name, c.Args)
			}
		}
	}

	since = metav1.NewTime(time.Now().Add(-time.Second))
	a.change(func(spec *v1beta1.StorageClusterSpec) { spec.Debug = false })
	a.awaitLevel("level=INFO debug=false", since, "node") // the controllers are new ones, which log no change
	a.untouched(nodes, "node")
}

// awaitLevel waits until the logs of all pods of the components since a time have the words.
func (a *admin) awaitLevel(words string, since metav1.Time, components ...string) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), kube.Patience)
	defer cancel()
	a.Eventually(ctx, "the logs to have "+words, func(ctx context.Context) error {
		var errs []error
		for _, component := range components {
			for name := range a.pods(component) {
				log, err := a.log(ctx, name, since)
				if err == nil && !strings.Contains(log, words) {
					err = fmt.Errorf("the log of pod %s has it not: %s", name, log)
				}
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	})
}

func (a *admin) log(ctx context.Context, pod string, since metav1.Time) (string, error) {
	options := &corev1.PodLogOptions{Container: "holdfast", SinceTime: &since}
	out, err := a.Client.CoreV1().Pods(kube.System).GetLogs(pod, options).DoRaw(ctx)
	return string(out), err
}
