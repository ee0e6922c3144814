package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
)

const blockSize = 4096

// Appender is a script that appends random blocks to a file in /data, and prints a block's number and checksum only when it
// is on the disk. It goes on after what it finds, without the block that a power cut may have torn.
const Appender = `
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

// Acknowledged is what an Appender has printed.
type Acknowledged struct {
	Blocks []string
	s      *Space
	lines  <-chan string
	stop   func()
}

// FollowAppender waits until a pod has acknowledged some blocks, and goes on to listen.
func (s *Space) FollowAppender(pod string) *Acknowledged {
	s.t.Helper()
	following, stop := context.WithTimeout(s.t.Context(), 2*Patience) // a busy machine takes long to grow a volume, for one
	s.t.Cleanup(stop)
	a := &Acknowledged{s: s, lines: s.Lines(following, pod), stop: stop}
	for line := range a.lines {
		if a.Blocks = append(a.Blocks, line); len(a.Blocks) == 20 {
			return a
		}
	}
	s.t.Fatalf("the log of pod %s ended after %q", pod, a.Blocks)
	return nil
}

// Another takes what came since, and waits for one more block.
func (a *Acknowledged) Another() {
	a.s.t.Helper()
	for range len(a.lines) + 1 {
		line, more := <-a.lines
		if !more {
			a.s.t.Fatalf("the log ended after %q", a.Blocks)
		}
		a.Blocks = append(a.Blocks, line)
	}
}

// End takes what came since, until the pod's log ended.
func (a *Acknowledged) End() {
	a.stop()
	for line := range a.lines {
		a.Blocks = append(a.Blocks, line)
	}
}

// ExpectBlocks fails the test unless a pod finds all blocks in /data that were acknowledged.
func (s *Space) ExpectBlocks(pod string, a *Acknowledged) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), Patience)
	defer cancel()
	var content string
	read := s.Eventually(ctx, "pod "+pod+" to read its blocks", func(ctx context.Context) (err error) {
		// The API server can cut off the end of what a command prints.
		content, err = s.ExecIn(ctx, s.Namespace, pod, "", "head", "-c", fmt.Sprint(len(a.Blocks)*blockSize), "/data/blocks")
		return err
	})
	if !read {
		return
	}
	for number, line := range a.Blocks {
		expectBlock(s.t, content, number, line)
	}
}

func expectBlock(t testing.TB, content string, number int, line string) {
	t.Helper()
	said, sum, _ := strings.Cut(line, " ")
	if said != fmt.Sprint(number) {
		t.Errorf("block %d is acknowledged as %q", number, line)
		return
	}
	if len(content) < (number+1)*blockSize {
		t.Errorf("block %d was acknowledged, but %d bytes are left of the file", number, len(content))
		return
	}
	got := sha256.Sum256([]byte(content[number*blockSize : (number+1)*blockSize]))
	if hex.EncodeToString(got[:]) != sum {
		t.Errorf("block %d has another content than the one that was acknowledged", number)
	}
}
