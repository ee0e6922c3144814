package accidents

import (
	"fmt"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

// kills are who is killed in the middle of an accident.
var kills = map[string]func(*kube.Space){
	"no process":     func(*kube.Space) {},
	"the agent":      killAgent,
	"the controller": func(s *kube.Space) { s.Kill(s.Leader("holdfast-controller"), "holdfast") },
}

// killAgent kills the agent of the home node. One that was killed often is replaced before: the kubelet would wait longer
// with its container each time, up to five minutes.
func killAgent(s *kube.Space) {
	pod := s.NodePod(s.Home, "")
	if pod.Status.ContainerStatuses[0].RestartCount > 2 {
		pod = s.ReplaceNodePod(pod)
	}
	s.Kill(pod, "holdfast")
}

// killing runs an accident with no process killed, and where there is time also with the agent and the controller killed.
func (p *precious) killing(accident func(p *precious, kill func())) {
	p.t.Helper()
	for _, who := range []string{"no process", "the agent", "the controller"} {
		if who == "no process" || hostfs.All() {
			p.sub(who+" is killed", func(p *precious) { accident(p, func() { kills[who](p.Space) }) })
		}
	}
}

// sub runs an accident as a test of its own, and looks whether all is intact afterwards.
func (p *precious) sub(name string, accident func(p *precious)) {
	p.t.Helper()
	p.t.Run(name, func(t *testing.T) {
		q := *p
		q.t, q.Space = t, p.In(t)
		accident(&q)
		q.intact(fmt.Sprintf("%s, %s", p.t.Name(), name))
		p.looks = q.looks
	})
}
