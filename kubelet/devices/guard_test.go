package devices

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/holdfast-storage/holdfast/agent/policy"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

// guard is a Guard that a test opens and closes.
type guard struct{ policy.Verdict }

func (g *guard) Refusal() (changed <-chan struct{}, why error) { return g.Now() }

func TestPlugin_LendsNothingThatTheGuardRefusesAndUpdatesTheKubelet(t *testing.T) {
	hostfs.RequireRoot(t)
	r := newRig(t, 1, 3)
	if healthy, _ := r.plugin.health.now(); !healthy {
		t.Fatal("no loop devices can be made here")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream := check.Got(r.lender.ListAndWatch(ctx, &kubelet.Empty{}))(t)
	r.expectHealth(stream, kubelet.Healthy)
	r.guard.Set(errors.New("no policy"))
	r.expectHealth(stream, kubelet.Unhealthy)
	if lent, err := r.allocate("set-0"); err == nil || !strings.Contains(err.Error(), "no policy") {
		t.Errorf("a kubelet without the latest report is lent %v, %v", lent, err)
	}
	r.guard.Set(nil)
	r.expectHealth(stream, kubelet.Healthy)
	if _, err := r.allocate("set-0"); err != nil {
		t.Error(err)
	}
}

// expectHealth expects the next message of ListAndWatch.
func (r *rig) expectHealth(stream grpc.ServerStreamingClient[kubelet.ListAndWatchResponse], health string) {
	r.Helper()
	answer := check.Got(stream.Recv())(r)
	for _, d := range answer.GetDevices() {
		if d.GetHealth() != health {
			r.Errorf("%s is %s, want %s", d.GetID(), d.GetHealth(), health)
		}
	}
}

func TestPlugin_WithoutAGuardLendsNothing(t *testing.T) {
	p, err := New(Config{Directory: t.TempDir()})
	check.OK(t, err)
	_, err = p.Allocate(t.Context(), &kubelet.AllocateRequest{ContainerRequests: []*kubelet.ContainerAllocateRequest{{DevicesIds: []string{"set-0"}}}})
	if !errors.Is(err, ErrNoGuard) {
		t.Errorf("it says %v", err)
	}
}
