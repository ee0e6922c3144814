package driver

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// blocked is a backend in whose Create a call stays until release is called.
func blocked(t *testing.T) (b *scripted, entered chan struct{}, release func()) {
	entered, blocking := make(chan struct{}), make(chan struct{})
	release = sync.OnceFunc(func() { close(blocking) })
	t.Cleanup(release)
	b = newScripted()
	b.create = func(context.Context) error {
		close(entered)
		<-blocking
		return nil
	}
	return b, entered, release
}

// creates begins to make a volume.
func (r *rig) creates(name string) (result chan error) {
	result = make(chan error, 1)
	go func() {
		_, err := r.CreateVolume(r.ctx(), createRequest(name))
		result <- err
	}()
	return result
}

func TestStop_LetsRunningCallsEnd(t *testing.T) {
	b, entered, release := blocked(t)
	r := newRig(t, b)
	result := r.creates("slow")
	<-entered
	r.shutdown()
	// The stop has begun once new calls are refused.
	for {
		_, err := r.NodeGetInfo(r.ctx(), &csi.NodeGetInfoRequest{})
		if status.Code(err) == codes.Unavailable {
			break
		}
		check.OK(t, err)
	}
	select {
	case err := <-result:
		t.Fatalf("the running call was cut off: %v", err)
	case <-r.done:
		t.Fatalf("Run returned %v while a call was running", r.err)
	default:
	}
	release()
	if err := <-result; err != nil {
		t.Errorf("the running call failed: %v", err)
	}
	if err := r.wait(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if _, err := os.Lstat(r.driver.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

func TestStop_IsBoundedByItsTimeout(t *testing.T) {
	b, entered, release := blocked(t)
	defer release()
	r := newRig(t, b, func(c *Config) { c.StopTimeout = 10 * time.Millisecond })
	result := r.creates("stuck")
	<-entered
	r.shutdown()
	if err := r.wait(); err == nil || !strings.Contains(err.Error(), "10ms") {
		t.Errorf("Run returned %v, want an error that names the timeout", err)
	}
	expectError(t, <-result, codes.Unavailable)
}

func TestStop_WaitsForNodeOperationsThatOutlivedTheirCalls(t *testing.T) {
	b, entered, blocking := newScripted(), make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(blocking) })
	t.Cleanup(release)
	b.get = func(backend.ID) (*backend.Volume, error) {
		close(entered)
		<-blocking
		return nil, backend.ErrNotFound
	}
	r := newRig(t, b)
	ctx, cancel := context.WithCancel(r.ctx())
	go func() {
		<-entered
		cancel()
	}()
	_, err := r.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: "v", StagingTargetPath: "/nowhere", VolumeCapability: mountCapability("")})
	expectError(t, err, codes.Canceled)
	r.shutdown()
	select {
	case <-r.done:
		t.Fatalf("Run returned %v while a node operation was running", r.err)
	case <-time.After(50 * time.Millisecond): // nothing to wait for: this only gives a wrong return its chance
	}
	release()
	if err := r.wait(); err != nil {
		t.Errorf("Run: %v", err)
	}
}
