package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// blockSize is how much the pod below appends at a time.
const blockSize = 4096

// appender appends random blocks, and says a block's number and checksum only when it is on the disk. It goes on after
// what it finds, without the block that the power cut may have torn.
const appender = `
	cd /data
	touch blocks
	number=$(($(stat -c %s blocks) / 4096))
	truncate -s $((number * 4096)) blocks
	sync
	while :; do
		head -c 4096 /dev/urandom >/dev/shm/block
		sum=$(sha256sum </dev/shm/block)
		dd if=/dev/shm/block of=blocks oflag=append conv=notrunc,fsync 2>/dev/null
		echo $number ${sum%% *}
		number=$((number + 1))
		sleep 0.1
	done`

func TestPowerCut_SyncedDataSurvives(t *testing.T) {
	t.Parallel()
	s := begin(t)
	node := secondNode(t)
	aloneWithNodes(t)
	s.Claim("data", "256Mi")
	s.Pod("writer", kube.Mount("data", "/data"), kube.OnNode(node), kube.Script(appender))
	before := s.Ready("writer")

	following, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	lines := s.Lines(following, "writer")
	var acknowledged []string
	for line := range lines {
		if acknowledged = append(acknowledged, line); len(acknowledged) == 20 {
			break
		}
	}
	if len(acknowledged) < 20 {
		t.Fatalf("the log ended after %q", acknowledged)
	}
	boot := cutPower(t, s, node)
	stop()
	for line := range lines { // what came until the power was gone counts as well
		acknowledged = append(acknowledged, line)
	}
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
	expectBlocks(t, s, "writer", acknowledged)
	t.Logf("%d blocks were acknowledged; the node took %.0f s to boot and the pod then %.0f s to run",
		len(acknowledged), booted.Sub(cut).Seconds(), running.Sub(booted).Seconds())
}

// expectBlocks looks for all blocks that the appender of a pod has acknowledged.
func expectBlocks(t *testing.T, s *kube.Space, pod string, acknowledged []string) {
	t.Helper()
	content := s.Exec(pod, "head", "-c", fmt.Sprint(len(acknowledged)*blockSize), "/data/blocks")
	for number, line := range acknowledged {
		if lost := check(content, number, line); lost != "" {
			t.Error(lost)
		}
	}
}

// check compares one block with what was said of it.
func check(content string, number int, line string) string {
	said, sum, _ := strings.Cut(line, " ")
	if said != fmt.Sprint(number) {
		return fmt.Sprintf("block %d is acknowledged as %q", number, line)
	}
	if len(content) < (number+1)*blockSize {
		return fmt.Sprintf("block %d was acknowledged, but %d bytes are left of the file", number, len(content))
	}
	got := sha256.Sum256([]byte(content[number*blockSize : (number+1)*blockSize]))
	if hex.EncodeToString(got[:]) != sum {
		return fmt.Sprintf("block %d has another content than the one that was acknowledged", number)
	}
	return ""
}
