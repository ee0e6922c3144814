package accidents

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/holdfast-storage/holdfast/test/suite/e2e/kube"
)

func TestNode_DeletedAndRegisteredAgainHasAllItsVolumes(t *testing.T) {
	p := keep(t, begin(t))
	p.killing(func(p *precious, kill func()) {
		volumes := p.volumes(idle, used, raw)
		kill()
		cluster.MustKubectl(p.t, "delete", "node", p.Home)
		p.Restart("kubelet")
		p.Eventually(p.t.Context(), "the node to be ready again", func(context.Context) error {
			if !slices.Contains(p.Nodes(p.t), p.Home) {
				return errors.New("it is not")
			}
			return nil
		})
		p.Eventually(p.t.Context(), "its pods", p.RolledOut)
		p.phase(volumes, "Ready")
		// The pods of a node that is deleted are deleted with it.
		p.ForgetPod("user")
		p.Pod("user", kube.Mount(used, "/data"))
		p.Ready("user")
	})
}
