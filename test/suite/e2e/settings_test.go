package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// settings are what an administrator may choose for the whole cluster.
type settings struct {
	attach     bool
	maxVolumes int // of each node; 0 is no limit
}

// usual is how test/tool/cluster/install installs Holdfast.
var usual = settings{}

// reinstall gives the cluster other settings until the test has ended, and its volumes with it: a test makes its own
// namespace afterwards. Such a test is not parallel.
func reinstall(t *testing.T, want settings) {
	t.Helper()
	s := begin(t)
	s.NeedImages("that of external-attacher, and to change the settings of the whole cluster")
	t.Cleanup(func() { applySettings(t, s, usual) })
	applySettings(t, s, want)
}

// applySettings changes what differs, waits until nothing runs but what the settings ask for, and the kubelets know. It is
// the only place that knows what the settings are of.
func applySettings(t *testing.T, s *kube.Space, want settings) {
	t.Helper()
	// In the end the test's own context is over.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), kube.Patience)
	defer cancel()
	if err := change(ctx, s, want); err != nil {
		t.Errorf("giving the cluster the settings %+v: %v", want, err)
		return
	}
	ok := s.Eventually(ctx, "the settings to be in force", func(ctx context.Context) error {
		return errors.Join(s.RolledOut(ctx), inForce(ctx, s, want))
	})
	if !ok {
		t.Errorf("the cluster has not the settings %+v", want)
	}
}

// change asks for the settings.
func change(ctx context.Context, s *kube.Space, want settings) error {
	if want.attach {
		if err := loadImage(ctx, s, "csi-attacher"); err != nil {
			return err
		}
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"csi": map[string]any{"attachRequired": want.attach, "maxVolumesPerNode": want.maxVolumes}}})
	if err != nil {
		return err
	}
	_, err = s.Holdfast("storageclusters").Patch(ctx, "holdfast", types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// loadImage brings one of the sidecars, which the usual settings do not need, to all nodes.
func loadImage(ctx context.Context, s *kube.Space, name string) error {
	out, err := exec.CommandContext(ctx, "../../../images/build", "sidecars").Output()
	if err != nil {
		return fmt.Errorf("the images of the sidecars: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == name {
			_, err := s.Do(ctx, "load-image", fields[2])
			return err
		}
	}
	return fmt.Errorf("images/build made no image %s", name)
}

const limitArgument = "--max-volumes-per-node="

func isLimit(argument string) bool { return strings.HasPrefix(argument, limitArgument) }

// inForce says what is not yet as the settings want it.
func inForce(ctx context.Context, s *kube.Space, want settings) error {
	driver, err := s.Client.StorageV1().CSIDrivers().Get(ctx, "csi.holdfast.dev", metav1.GetOptions{})
	if err != nil || *driver.Spec.AttachRequired != want.attach {
		return errors.Join(err, errors.New("the CSIDriver is another"))
	}
	controller, err := s.Client.AppsV1().Deployments(kube.System).Get(ctx, "holdfast-controller", metav1.GetOptions{})
	if err != nil || slices.Contains(controller.Spec.Template.Spec.Containers[0].Args, "--attach") != want.attach {
		return errors.Join(err, errors.New("the controller is another"))
	}
	nodes, err := s.Client.AppsV1().DaemonSets(kube.System).Get(ctx, "holdfast-node", metav1.GetOptions{})
	if err != nil || limitOf(nodes) != fmt.Sprint(want.maxVolumes) {
		return errors.Join(err, errors.New("the node pods are others"))
	}
	all, err := s.Client.StorageV1().CSINodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, n := range all.Items {
		if takes(&n) != want.maxVolumes {
			return fmt.Errorf("node %s says it takes %d volumes", n.Name, takes(&n))
		}
	}
	return nil
}

func limitOf(d *appsv1.DaemonSet) string {
	for _, a := range d.Spec.Template.Spec.Containers[0].Args {
		if isLimit(a) {
			return a[len(limitArgument):]
		}
	}
	return "0"
}

// takes is how many volumes a kubelet says its node takes; 0 is no limit, and -1 that it knows no driver.
func takes(n *storagev1.CSINode) int {
	for _, d := range n.Spec.Drivers {
		if d.Name == "csi.holdfast.dev" {
			if d.Allocatable == nil || d.Allocatable.Count == nil {
				return 0
			}
			return int(*d.Allocatable.Count)
		}
	}
	return -1
}
