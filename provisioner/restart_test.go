package provisioner

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/realapi"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// TestProvision_ContinuesWhenTheAPIServerReturns restarts it in the midst of claims that come and go.
func TestProvision_ContinuesWhenTheAPIServerReturns(t *testing.T) {
	a := realServer(t)
	s := newServer(t, a.client)
	p := s.start()
	class := a.class(s.config.Name, nil)
	const many = 20
	for i := range many {
		a.claim(fmt.Sprintf("before-%d", i), class, s.config.Name)
	}
	restart := exec.CommandContext(t.Context(), "go", "run", ".", "-name", os.Getenv(realapi.Variable), "restart", "kube-apiserver")
	restart.Dir = "../test/cluster"
	if out, err := restart.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	wait.Until(a.t, "it has the Lease", p.gate.isOpen)
	for i := range many {
		a.claim(fmt.Sprintf("after-%d", i), class, s.config.Name)
	}
	for i := range many {
		a.bound(fmt.Sprintf("before-%d", i))
		a.bound(fmt.Sprintf("after-%d", i))
	}
	for i := range many {
		a.deleteClaim(fmt.Sprintf("before-%d", i))
		a.deleteClaim(fmt.Sprintf("after-%d", i))
	}
	a.nothingLeft(s)
}
