package upgrade

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/sys/unix"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// TestUpgrade_ContinuesThoughTheControllerIsKilledAtEveryStep kills the leader when a step is seen, in an upgrade to the
// release before and, at the steps that had passed by the time it was dead, in one to this release.
func TestUpgrade_ContinuesThoughTheControllerIsKilledAtEveryStep(t *testing.T) {
	hostfs.Long(t)
	s := begin(t)
	earlier := s.earlier()
	counters := s.count()
	nodePods := s.recordNodePods()
	k := &killings{site: s}
	back := s.upgrade("back", v1beta1.StorageUpgradeSpec{Image: earlier})
	missed := k.killAt(back.Name, rollingSteps)
	s.completes(back.Name, rollingSteps, s.image, earlier)
	forth := s.upgrade("forth", v1beta1.StorageUpgradeSpec{Image: s.image})
	missed = k.killAt(forth.Name, missed)
	s.completes(forth.Name, rollingSteps, earlier, s.image)
	if len(missed) > 0 {
		t.Logf("both times the upgrade had left %v by the time the controller was dead", missed)
	}
	s.awaitImage(s.image)
	nodePods().expect(t, s.image, earlier, s.image)
	expectUndisturbed(t, counters)
	s.binds("after")
}

// killings end the controller that leads, by turns with a signal and with its pod: a container that is killed too often
// is kept waiting by the kubelet.
type killings struct {
	*site
	done int
	last time.Time
}

// killAt kills the leader at each of the steps as soon as the upgrade is in it, and returns those that it had left by the
// time the leader was dead: some take a moment, in which it is only found out who leads now.
func (k *killings) killAt(upgrade string, steps []v1beta1.UpgradeStep) (missed []v1beta1.UpgradeStep) {
	k.t.Helper()
	for _, step := range steps {
		kill := k.prepare()
		k.followTo(upgrade, step)
		how := kill()
		k.last = time.Now()
		u := check.Got(objects.StorageUpgrades().Get(k.t.Context(), upgrade, metav1.GetOptions{}))(k.t)
		k.t.Logf("step %s: %s; the upgrade is in step %s", step, how, u.Status.Step)
		if u.Status.Step != step {
			missed = append(missed, step)
		}
	}
	return missed
}

// prepare waits until a controller leads that can be killed, and returns what kills it without delay. If it is gone by
// then, the one that leads now is killed.
func (k *killings) prepare() (kill func() string) {
	k.t.Helper()
	leader := k.leader()
	k.done++
	var pids []int
	if k.done%2 == 1 && leader.Spec.NodeName == k.Home {
		pids = processes(leader)
	}
	return func() string {
		k.t.Helper()
		how, err := "the process of pod "+leader.Name+" was killed", error(nil)
		for _, pid := range pids {
			err = errors.Join(err, unix.Kill(pid, unix.SIGKILL))
		}
		if len(pids) == 0 {
			how = "pod " + leader.Name + " was taken away"
			now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
			err = k.Client.CoreV1().Pods(kube.System).Delete(k.t.Context(), leader.Name, now)
		}
		switch {
		case errors.Is(err, unix.ESRCH), apierrors.IsNotFound(err):
			return k.prepare()()
		case err != nil:
			k.t.Errorf("killing the controller %s: %v", leader.Name, err)
		}
		return how
	}
}

// leader is the pod of the controller that leads, when its container runs and it renews its Lease.
func (k *killings) leader() *core.Pod {
	k.t.Helper()
	const lease = "holdfast-controller"
	var found *core.Pod
	kube.AwaitOne(k.Space, k.Client.CoordinationV1().Leases(kube.System), lease, "to be renewed by a controller that runs", func(l *coordination.Lease) (bool, error) {
		if l.Spec.HolderIdentity == nil || l.Spec.RenewTime == nil || l.Spec.RenewTime.Time.Before(k.last) {
			return false, nil
		}
		pod, err := k.Client.CoreV1().Pods(kube.System).Get(k.t.Context(), *l.Spec.HolderIdentity, metav1.GetOptions{})
		if err != nil {
			return false, nil //nolint:nilerr // it is gone, and another one will hold the Lease
		}
		found = pod
		return running(pod) != "" && pod.DeletionTimestamp == nil, nil
	})
	return found
}

// running is the id of the container of Holdfast, if it runs.
func running(p *core.Pod) string {
	i := slices.IndexFunc(p.Status.ContainerStatuses, func(c core.ContainerStatus) bool { return c.Name == "holdfast" && c.State.Running != nil })
	if i < 0 {
		return ""
	}
	_, id, _ := strings.Cut(p.Status.ContainerStatuses[i].ContainerID, "://")
	return id
}

// processes are those of a pod on this machine, found by their cgroup, which has the id of the container in its name.
func processes(p *core.Pod) (pids []int) {
	groups, _ := filepath.Glob("/proc/[0-9]*/cgroup") // the pattern is good
	for _, file := range groups {
		content, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(content, []byte(running(p))) {
			continue // or it has ended
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
