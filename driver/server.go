package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/listener"
)

// Run serves until ctx ends; calls that are running then may end within the stop timeout.
func (d *Driver) Run(ctx context.Context) error {
	socket, err := listen(ctx, d.socket)
	if err != nil {
		return err
	}
	if d.Services != ControllerServices {
		if err := d.holdStaged(ctx); err != nil {
			return errors.Join(err, socket.Close(), socket.Remove())
		}
		defer d.holds.close()
		collecting, stop := context.WithCancel(ctx)
		defer stop()
		go (&node{Driver: d}).collectLeftOver(collecting)
	}
	server := d.server()
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener.Limit(socket, listener.SocketConnections)) }()
	d.Log.Info("serving", "driver", d.Name, "version", d.Version, "node", d.NodeID, "socket", d.socket)
	select {
	case err = <-failed:
		return errors.Join(fmt.Errorf("serving %s: %w", d.socket, err), socket.Remove())
	case <-ctx.Done():
	}
	d.Log.Info("stopping")
	close(d.stopping)
	ctx = context.WithoutCancel(ctx)
	return errors.Join(d.stop(ctx, server), socket.Remove())
}

func (d *Driver) server() *grpc.Server {
	s := listener.GRPC(grpc.ChainUnaryInterceptor(d.calls.intercept, d.onlyWhileLeading))
	csi.RegisterIdentityServer(s, &identity{Driver: d})
	if d.Services != ControllerServices {
		csi.RegisterNodeServer(s, &node{Driver: d})
	}
	if d.Services == NodeServices {
		return s
	}
	c := &controller{Driver: d}
	csi.RegisterControllerServer(s, c)
	if groups, ok := d.Backend.(backend.GroupSnapshotter); ok {
		csi.RegisterGroupControllerServer(s, &groupController{backend: groups, controller: c})
	}
	return s
}

// stop lets running calls and the node operations that outlived theirs come to their end.
func (d *Driver) stop(ctx context.Context, server *grpc.Server) error {
	ctx, cancel := context.WithTimeout(ctx, d.StopTimeout)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		server.GracefulStop()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		server.Stop() // the calls' contexts end; a call that does not heed that is left behind
		return fmt.Errorf("calls were still running after %s and were cut off", d.StopTimeout)
	}
	if err := d.ops.Wait(ctx); err != nil {
		count, oldest := d.ops.InFlight()
		return fmt.Errorf("%d node operations were still running after %s, the oldest for %s", count, d.StopTimeout, oldest.Round(time.Millisecond))
	}
	return nil
}
