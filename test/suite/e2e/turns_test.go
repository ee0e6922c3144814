package e2e

import (
	"fmt"
	"sync"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// power is held alone while a node is without it, and shared by tests that use more than their home node.
var power = newTurns()

// allNodes returns the nodes that are ready, the home node first. They stay so until the test has ended, or cuts the
// power itself.
func allNodes(t *testing.T) []string {
	t.Helper()
	power.share(t)
	return cluster.Nodes(t)
}

// second skips a test that needs two nodes where there is only one.
func second(t *testing.T, nodes []string) string {
	t.Helper()
	if len(nodes) < 2 {
		hostfs.Skip(t, "nodes", fmt.Sprintf("needs a second node that is ready beside %v", nodes))
	}
	return nodes[1]
}

// third skips a test that needs three nodes where there are fewer. It is one of those that take long: make test has two.
func third(t *testing.T, nodes []string) string {
	t.Helper()
	if len(nodes) < 3 {
		hostfs.Skip(t, "third-node", fmt.Sprintf("needs a third node that is ready beside %v; make e2e has three", nodes))
	}
	return nodes[2]
}

// otherNodes are two beside the home node.
func otherNodes(t *testing.T) (one, another string) {
	t.Helper()
	nodes := allNodes(t)
	return second(t, nodes), third(t, nodes)
}

func secondNode(t *testing.T) string {
	t.Helper()
	return second(t, allNodes(t))
}

// cutPower is CutPower for a test that is alone with the nodes; boot lets others use them again.
func cutPower(t *testing.T, s *kube.Space, node string) (boot func()) {
	t.Helper()
	if !power.isAlone(t) {
		t.Fatal("a test that cuts the power must be alone with the nodes before it puts anything there")
	}
	start := s.CutPower(node)
	return func() {
		t.Helper()
		start()
		power.share(t)
	}
}

// aloneWithNodes waits until no other test uses more than its home node, and keeps it so until this one has ended or
// boots what it cut the power of. It comes before anything is on such a node: the test before may take the node away.
func aloneWithNodes(t *testing.T) {
	t.Helper()
	power.takeAlone(t)
}

// turns is a lock that is shared or held alone. Unlike sync.RWMutex it admits those who share while another waits
// to be alone, so that they run together and not in two groups.
type turns struct {
	mu      sync.Mutex
	changed *sync.Cond
	sharing map[any]bool
	alone   any // who is
}

func newTurns() *turns {
	t := &turns{sharing: map[any]bool{}}
	t.changed = sync.NewCond(&t.mu)
	return t
}

// share waits until no other is alone.
func (t *turns) share(who any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.alone != nil && t.alone != who {
		t.changed.Wait()
	}
	t.alone, t.sharing[who] = nil, true
	t.changed.Broadcast()
}

// takeAlone gives up sharing and waits until no other does. Who is alone already stays so.
func (t *turns) takeAlone(who any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.alone == who {
		return
	}
	delete(t.sharing, who)
	t.changed.Broadcast()
	for t.alone != nil || len(t.sharing) > 0 {
		t.changed.Wait()
	}
	t.alone = who
}

func (t *turns) isAlone(who any) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.alone == who
}

func (t *turns) leave(who any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.sharing, who)
	if t.alone == who {
		t.alone = nil
	}
	t.changed.Broadcast()
}
