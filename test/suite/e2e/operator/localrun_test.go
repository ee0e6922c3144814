package operator

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// localRun is make local-run while it runs.
type localRun struct {
	*admin
	command *exec.Cmd
	runs    chan struct{} // closed when the operator runs
	ended   chan error
}

// runLocally runs the operator outside of the cluster, as a developer does, until the test ends.
func (a *admin) runLocally() *localRun {
	a.t.Helper()
	l := &localRun{admin: a, command: exec.Command("make", "-s", "local-run"), runs: make(chan struct{}), ended: make(chan error, 1)}
	l.command.Dir = "../../../.."
	l.command.Env = append(os.Environ(), "KUBECONFIG="+a.Kubeconfig())
	l.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with what make starts
	output, input := io.Pipe()
	l.command.Stdout, l.command.Stderr = input, input
	if err := l.command.Start(); err != nil {
		a.t.Fatal(err)
	}
	go func() {
		begun := false
		for lines := bufio.NewScanner(output); lines.Scan(); {
			fmt.Fprintln(a.t.Output(), lines.Text())
			if !begun && strings.Contains(lines.Text(), "the operator runs") {
				begun = true
				close(l.runs)
			}
		}
	}()
	go func() {
		err := l.command.Wait()
		l.ended <- errors.Join(err, input.Close())
	}()
	a.t.Cleanup(func() { _ = syscall.Kill(-l.command.Process.Pid, syscall.SIGKILL) })
	ctx, cancel := context.WithTimeout(a.t.Context(), 2*kube.Patience)
	defer cancel()
	select {
	case <-l.runs:
	case err := <-l.ended:
		a.t.Fatalf("make local-run ended: %v", err)
	case <-ctx.Done():
		a.t.Fatal("make local-run does not lead")
	}
	return l
}

// stop ends it as Ctrl-C does.
func (l *localRun) stop() {
	l.t.Helper()
	if err := syscall.Kill(-l.command.Process.Pid, syscall.SIGINT); err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), kube.Patience)
	defer cancel()
	select {
	case err := <-l.ended:
		l.t.Logf("it ended: %v", err) // make says that it was interrupted
	case <-ctx.Done():
		l.t.Error("it does not end")
	}
}

// heals deletes the Service by hand and says who wrote the next one.
func (a *admin) heals() {
	a.t.Helper()
	services := a.Client.CoreV1().Services(kube.System)
	was, err := services.Get(a.t.Context(), "holdfast", metav1.GetOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	if err := services.Delete(a.t.Context(), "holdfast", metav1.DeleteOptions{}); err != nil {
		a.t.Fatal(err)
	}
	a.eventually("another Service", func(ctx context.Context) error {
		is, err := services.Get(ctx, "holdfast", metav1.GetOptions{})
		if err == nil && is.UID == was.UID {
			err = errors.New("it is the one that was deleted")
		}
		return err
	})
}

// identities are all owned objects, but for the Service, which is deleted here.
func (a *admin) identities() map[string]types.UID {
	a.t.Helper()
	all := map[string]types.UID{}
	for _, o := range a.owned() {
		if o.GetKind() != "Service" {
			all[o.String()] = o.GetUID()
		}
	}
	return all
}

// aloneHolder is who runs the operator outside of the cluster.
func (a *admin) aloneHolder(ctx context.Context) (string, error) {
	lease, err := a.Client.CoordinationV1().Leases(kube.System).Get(ctx, "holdfast-operator", metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && lease.Spec.HolderIdentity == nil {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return *lease.Spec.HolderIdentity, nil
}

// An older release has left its kinds, and what runs outside of the cluster leads first.
func TestLocalRun_OperatorOutsideOfTheClusterUpgradesOlderKinds(t *testing.T) {
	hostfs.Long(t)
	a := administer(t)
	const kind = "storageclusters.holdfast.dev"
	kinds := a.Dynamic.Resource(definitions)
	const field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/csi/properties/maxVolumesPerNode"
	older, err := kinds.Patch(t.Context(), kind, types.JSONPatchType, fmt.Appendf(nil, `[{"op": "remove", "path": %q}]`, field), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before, controllers := a.identities(), identities(a.pods("controller"))

	l := a.runLocally()
	a.eventually("the field of this release", func(ctx context.Context) error {
		is, err := kinds.Get(ctx, kind, metav1.GetOptions{})
		if err == nil && is.GetGeneration() == older.GetGeneration() {
			err = errors.New("the kind is still the older one")
		}
		return err
	})
	if holder, err := a.aloneHolder(t.Context()); err != nil || holder == "" || strings.HasPrefix(holder, "holdfast-controller") {
		t.Errorf("%q leads: %v", holder, err)
	}
	a.eventually("the field to be kept", func(ctx context.Context) error {
		patch := []byte(`{"spec":{"csi":{"maxVolumesPerNode":70}}}`)
		would, err := a.Holdfast("storageclusters").Patch(ctx, clusterName, types.MergePatchType, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		if limit, _, _ := unstructured.NestedInt64(would.Object, "spec", "csi", "maxVolumesPerNode"); limit != 70 {
			err = fmt.Errorf("it is %d", limit)
		}
		return err
	})
	a.awaitReconciled()
	a.heals()
	l.stop()

	a.eventually("the Lease of the one outside to be free", func(ctx context.Context) error {
		holder, err := a.aloneHolder(ctx)
		if err == nil && holder != "" {
			err = fmt.Errorf("%s holds it", holder)
		}
		return err
	})
	a.heals() // by the one in the cluster
	if after := a.identities(); !maps.Equal(before, after) {
		t.Errorf("there are\n%v\nand there were\n%v", after, before)
	}
	for name, id := range identities(a.pods("controller")) {
		if controllers[name] != id {
			t.Errorf("pod %s was restarted", name)
		}
	}
}
