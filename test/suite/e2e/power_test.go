package e2e

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

func TestPowerCut_SyncedDataSurvives(t *testing.T) {
	t.Parallel()
	s := begin(t)
	node := secondNode(t)
	aloneWithNodes(t)
	s.Claim("data", "256Mi")
	s.Pod("writer", kube.Mount("data", "/data"), kube.OnNode(node), kube.Script(kube.Appender))
	before := s.Ready("writer")
	written := s.FollowAppender("writer")
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
