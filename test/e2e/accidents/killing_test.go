package accidents

import (
	"fmt"
	"testing"

	"github.com/holdfast-storage/holdfast/test/e2e/kube"
	"github.com/holdfast-storage/holdfast/test/hostfs"
)

// kills are who is killed in the middle of an accident.
var kills = map[string]func(*kube.Space){
	"nobody":         func(*kube.Space) {},
	"the agent":      func(s *kube.Space) { s.Kill(s.NodePod(s.Home, ""), "holdfast") },
	"the controller": func(s *kube.Space) { s.Kill(s.Leader("holdfast-controller"), "holdfast") },
}

// killing runs an accident with nobody killed, and where there is time also with the agent and the controller killed.
func (p *precious) killing(accident func(p *precious, kill func())) {
	p.t.Helper()
	for _, who := range []string{"nobody", "the agent", "the controller"} {
		if who == "nobody" || hostfs.All() {
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
