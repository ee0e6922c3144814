package cluster_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-storage/holdfast/driver"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// spans are the names of the records about volume v of which package trace makes spans.
type spans struct {
	mu    sync.Mutex
	names map[string]bool
}

func (s *spans) Enabled(context.Context, slog.Level) bool { return true }
func (s *spans) WithAttrs([]slog.Attr) slog.Handler       { return s }
func (s *spans) WithGroup(string) slog.Handler            { return s }

func (s *spans) Handle(_ context.Context, r slog.Record) error {
	has := map[string]string{"method": r.Message}
	r.Attrs(func(a slog.Attr) bool { has[a.Key] = a.Value.String(); return true })
	if has["duration"] != "" && (has["id"] == "v" || has["volume"] == "v") {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.names[has["method"]] = true
	}
	return nil
}

func TestTrace_ClaimHasASpanForEachStep(t *testing.T) {
	w, s := newWorld(t), &spans{names: map[string]bool{}}
	w.Logger = slog.New(s)
	onDisk(t, w, gib)
	endpoint := "unix://" + t.TempDir() + "/csi.sock"
	d := check.Got(driver.New(driver.Config{Services: driver.ControllerServices, Endpoint: endpoint, Backend: w.Backend, Log: w.Logger}))(t)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() { stop(); check.Report(t, <-ended) })
	conn := check.Got(grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	t.Cleanup(func() { conn.Close() })
	check.Got(csi.NewControllerClient(conn).CreateVolume(t.Context(), &csi.CreateVolumeRequest{
		Name: "v", CapacityRange: &csi.CapacityRange{RequiredBytes: 16 * mib},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}},
	}, grpc.WaitForReady(true)))(t)
	wait.For(t, "each span", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.names, "wait") // unless the agent is faster than the call
		if is := slices.Sorted(maps.Keys(s.names)); !slices.Equal(is, []string{"CreateVolume", "commit", "fill", "place", "reconcile"}) {
			return fmt.Errorf("they are %q", is)
		}
		return nil
	})
}
