package upgrade

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// counting appends numbers to a file, each with an fsync, and says each one and the time when it is on the disk. The
// first error ends it.
const counting = `
	n=0
	while :; do
		echo $n >/dev/shm/n
		dd if=/dev/shm/n of=/data/numbers oflag=append conv=notrunc,fsync 2>/dev/shm/said || { cat /dev/shm/said; exit 1; }
		read up idle </proc/uptime
		echo $n $up
		n=$((n + 1))
		sleep 0.05
	done`

// counter is a pod that writes all the time.
type counter struct {
	*site
	pod *core.Pod
}

// count starts a counter on each node.
func (s *site) count() []*counter {
	s.t.Helper()
	var all []*counter
	for _, node := range s.nodes {
		name := "counter-" + node
		s.Claim(name, "64Mi")
		s.Pod(name, kube.Mount(name, "/data"), kube.OnNode(node), kube.Script(counting))
	}
	for _, node := range s.nodes {
		pod := s.Ready("counter-" + node)
		s.FirstLines(pod.Name, 3)
		all = append(all, &counter{site: s, pod: pod})
	}
	return all
}

// expectUndisturbed sees that the counters have written each number, still do, and were never started again.
func expectUndisturbed(t *testing.T, all []*counter) {
	t.Helper()
	for _, c := range all {
		c.expectUndisturbed(t)
	}
}

func (c *counter) expectUndisturbed(t *testing.T) {
	t.Helper()
	now, err := c.Client.CoreV1().Pods(c.Namespace).Get(t.Context(), c.pod.Name, metav1.GetOptions{})
	if err != nil {
		t.Error(err)
		return
	}
	if now.UID != c.pod.UID || now.Status.ContainerStatuses[0].RestartCount > 0 {
		t.Errorf("pod %s was started again", c.pod.Name)
	}
	said := c.Log(c.pod.Name)
	count, longest, err := readNumbers(said)
	if err != nil {
		t.Errorf("pod %s: %v", c.pod.Name, err)
		return
	}
	c.FirstLines(c.pod.Name, count+3) // it goes on
	var written strings.Builder
	for n := range count {
		fmt.Fprintln(&written, n)
	}
	if !strings.HasPrefix(c.Exec(c.pod.Name, "cat", "/data/numbers"), written.String()) {
		t.Errorf("pod %s has not in its file what it wrote there", c.pod.Name)
	}
	t.Logf("pod %s wrote %d numbers, with at most %.2f s between two", c.pod.Name, count, longest)
}

// readNumbers reads what a counter has said: how far it is, and the longest time between two numbers. The last line may
// not be whole.
func readNumbers(said string) (count int, longest float64, err error) {
	said = said[:strings.LastIndexByte(said, '\n')+1]
	before := 0.0
	for line := range strings.Lines(said) {
		number, at, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		up, err := strconv.ParseFloat(at, 64)
		if err != nil || number != strconv.Itoa(count) {
			return count, longest, fmt.Errorf("it said %q when %d was next", line, count)
		}
		if count++; count > 1 {
			longest = max(longest, up-before)
		}
		before = up
	}
	if count == 0 {
		return 0, 0, fmt.Errorf("it said only %q", said)
	}
	return count, longest, nil
}

func TestCounter_MissingNumberOrFailureIsFound(t *testing.T) {
	for said, want := range map[string]string{
		"":                 "only",
		"0 1.00":           "only",
		"0 1.00\n2 1.10\n": "1 was next",
		"0 1.00\n0 1.10\n": "1 was next",
		"1 1.00\n":         "0 was next",
		"0 1.00\ndd: fsync: Input/output error\n": "1 was next",
		"0 1.00\n1\n": "1 was next",
	} {
		if _, _, err := readNumbers(said); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("of %q it is said %v, want %q", said, err, want)
		}
	}
	count, longest, err := readNumbers("0 100.00\n1 100.25\n2 102.25\n3 102.5")
	if count != 3 || longest != 2 || err != nil {
		t.Errorf("counted were %d, with at most %v s between two: %v", count, longest, err)
	}
}
