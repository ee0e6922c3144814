package e2e

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// trimmer is a script that frees space beside what another one writes, and gives it back to the pool.
const trimmer = `
	while :; do
		head -c 8388608 /dev/urandom >/data/junk
		sync
		rm /data/junk
		fstrim /data && echo trimmed >>/data/trims
	done &
`

func TestPowerCut_SyncedDataSurvivesAlsoWhileFreedSpaceIsGivenBack(t *testing.T) {
	t.Parallel()
	s := begin(t)
	node := secondNode(t)
	aloneWithNodes(t)
	s.AllowPrivileged()
	s.Claim("data", "256Mi")
	s.Pod("writer", kube.Mount("data", "/data"), kube.OnNode(node), kube.AsRoot, kube.Capable("SYS_ADMIN"), kube.Script(trimmer+kube.Appender))
	before := s.Ready("writer")
	written := s.FollowAppender("writer")
	ctx, cancel := context.WithTimeout(t.Context(), kube.Patience)
	defer cancel()
	s.Eventually(ctx, "space to be given back", func(ctx context.Context) error {
		_, err := s.ExecIn(ctx, s.Namespace, "writer", "", "test", "-s", "/data/trims")
		return err
	})
	boot := cutPower(t, s, node)
	written.End()
	cut := time.Now()
	boot()
	booted := time.Now()
	after := kube.AwaitOne(s, s.Client.CoreV1().Pods(s.Namespace), "writer", "to run again", func(p *corev1.Pod) (bool, error) {
		status := p.Status.ContainerStatuses
		return len(status) > 0 && status[0].State.Running != nil && status[0].RestartCount > 0, nil
	})
	if after.UID != before.UID {
		t.Error("it is another pod")
	}
	running := time.Now()
	s.ExpectBlocks("writer", written)
	t.Logf("%d blocks were acknowledged; the node took %.0f s to boot and the pod then %.0f s to run",
		len(written.Blocks), booted.Sub(cut).Seconds(), running.Sub(booted).Seconds())
}
