//go:build ceph

package ceph

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-storage/holdfast/backend"
	engine "github.com/holdfast-storage/holdfast/backend/ceph"
	"github.com/holdfast-storage/holdfast/backend/ceph/cephfs"
	"github.com/holdfast-storage/holdfast/backend/ceph/rbd"
	"github.com/holdfast-storage/holdfast/driver"
	"github.com/holdfast-storage/holdfast/test/rig/ceph"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/csisanity"
)

// connect connects to the cluster as a user, and closes all that is registered with it when the test ends.
func connect(t *testing.T, w world, c engine.Config) *engine.Cluster {
	t.Helper()
	c.Monitors, c.FSID, c.Key, c.Patience = []string{"v2:" + w.Monitor}, w.FSID, engine.Key(w.Keys[c.User]), time.Minute
	cluster := check.Got(engine.New(c, slog.New(slog.DiscardHandler)))(t)
	closedWith(t, cluster.Close)
	return cluster
}

func closedWith(t *testing.T, closing func(context.Context) error) {
	t.Cleanup(func() {
		check.Report(t, closing(context.Background()))
	})
}

func openRBD(t *testing.T, w world) *rbd.Backend {
	t.Helper()
	b := check.Got(rbd.Open(t.Context(), connect(t, w, engine.Config{User: "manager", Pool: pool}), rbd.Config{TrashRetention: backend.NoTrash}, slog.New(slog.DiscardHandler)))(t)
	closedWith(t, b.Close)
	return b
}

func openCephFS(t *testing.T, w world) *cephfs.Backend {
	t.Helper()
	b := check.Got(cephfs.Open(t.Context(), connect(t, w, engine.Config{User: "holdfast", FileSystem: ceph.FileSystem}), cephfs.Config{TrashRetention: backend.NoTrash}, slog.New(slog.DiscardHandler)))(t)
	closedWith(t, b.Close)
	return b
}

// controllerAddresses are where a node finds the controller of an engine: its calls, and its volumes as JSON. In a cluster
// it finds them in the objects of the API.
type controllerAddresses struct{ Calls, Volumes string }

const controllersFile = "controllers"

// serveControllers serves the controller half of the driver for both engines, outside of the second kernel: nodes have no
// Ceph libraries. Each pool must be empty in the end, and the logs without a secret or a defect.
func serveControllers(t *testing.T, work string) {
	t.Helper()
	w := readWorld(t, work)
	addresses := map[string]controllerAddresses{}
	for name, b := range map[string]backend.Backend{"rbd": openRBD(t, w), "cephfs": openCephFS(t, w)} {
		s := serve(t.Context(), t, w, driver.Config{Services: driver.ControllerServices, Backend: b})
		calls, volumes := listen(t, "tcp", hostAddress+":0"), listen(t, "tcp", hostAddress+":0")
		relay(t, calls, func(string) *grpc.ClientConn { return s.conn })
		server := &http.Server{Handler: volumesOf(b), ReadHeaderTimeout: time.Minute}
		accept(t, volumes, server.Serve, server.Close)
		addresses[name] = controllerAddresses{calls.Addr().String(), volumes.Addr().String()}
		t.Cleanup(func() {
			if left, err := b.List(context.Background()); err != nil || len(left) > 0 {
				t.Errorf("%s: the pool holds %+v, %v", name, left, err)
			}
			s.checkLog(t)
		})
	}
	encoded, err := json.Marshal(addresses)
	if err == nil {
		err = os.WriteFile(filepath.Join(work, controllersFile), encoded, 0o600)
	}
	check.OK(t, err)
}

func controllerOf(t *testing.T, engine string) controllerAddresses {
	t.Helper()
	encoded, err := os.ReadFile(filepath.Join("/run/work", controllersFile))
	addresses := map[string]controllerAddresses{}
	check.OK(t, errors.Join(err, json.Unmarshal(encoded, &addresses)))
	return addresses[engine]
}

// nodeOfController is a node of an engine's controller. Its socket answers for both, as csi-sanity requires.
func nodeOfController(ctx context.Context, t *testing.T, w world, engine string) *served {
	t.Helper()
	at := controllerOf(t, engine)
	node := serve(ctx, t, w, driver.Config{Services: driver.NodeServices, Backend: &distant{volumes: at.Volumes}})
	controller := dial(t, "dns:///"+at.Calls)
	both := &served{socket: filepath.Join(filepath.Dir(node.socket), "both"), log: node.log}
	relay(t, listen(t, "unix", both.socket), func(method string) *grpc.ClientConn {
		if strings.HasPrefix(method, "/csi.v1.Node/") {
			return node.conn
		}
		return controller
	})
	both.use(dial(t, "unix://"+both.socket))
	return both
}

// checkLog fails the test if a secret of csi-sanity, or a defect, is in the log.
func (s *served) checkLog(t *testing.T) {
	t.Helper()
	if bytes.Contains(s.log.Bytes(), []byte(csisanity.Secret)) || bytes.Contains(s.log.Bytes(), []byte("code=Internal")) {
		t.Error("a secret, or a defect, is in the log")
	}
}

func volumesOf(b backend.Backend) http.Handler {
	return http.HandlerFunc(func(answer http.ResponseWriter, asked *http.Request) {
		id := backend.ID(strings.TrimPrefix(asked.URL.Path, "/"))
		v, err := b.Get(asked.Context(), id)
		if watched, is := b.(backend.Watched); is && asked.URL.Query().Has("known") && err == nil {
			v.Name, err = watched.ClientOf(asked.Context(), id, asked.URL.Query()["known"])
		}
		switch {
		case errors.Is(err, backend.ErrNotFound):
			http.Error(answer, err.Error(), http.StatusNotFound)
		case err != nil:
			http.Error(answer, err.Error(), http.StatusServiceUnavailable)
		default:
			if err := json.NewEncoder(answer).Encode(v); err != nil {
				panic(http.ErrAbortHandler) // the node sees that the answer is cut off
			}
		}
	})
}

// distant is the backend of a controller elsewhere, of which a node asks for volumes and nothing else.
type distant struct {
	backend.Backend
	volumes string
}

func (d *distant) Get(ctx context.Context, id backend.ID) (*backend.Volume, error) {
	return d.get(ctx, id, nil)
}

// clientOf asks the controller for what the agent of a pool asks its backend.
func (d *distant) clientOf(ctx context.Context, id backend.ID, known string) (address string, err error) {
	v, err := d.get(ctx, id, url.Values{"known": {known}})
	if err != nil {
		return "", err
	}
	return v.Name, nil
}

func (d *distant) get(ctx context.Context, id backend.ID, query url.Values) (*backend.Volume, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, (&url.URL{Scheme: "http", Host: d.volumes, Path: string(id), RawQuery: query.Encode()}).String(), nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	defer response.Body.Close()
	var v backend.Volume
	switch response.StatusCode {
	case http.StatusOK:
		return &v, json.NewDecoder(response.Body).Decode(&v)
	case http.StatusNotFound:
		return nil, fmt.Errorf("%w: volume %s", backend.ErrNotFound, id)
	}
	said, err := io.ReadAll(response.Body)
	return nil, errors.Join(fmt.Errorf("%w: %s", backend.ErrUnavailable, said), err)
}

func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()
	return check.Got(net.Listen(network, address))(t)
}

func dial(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn := check.Got(grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// relay passes each call that it accepts on to one of other servers, until the test ends.
func relay(t *testing.T, accepts net.Listener, to func(method string) *grpc.ClientConn) {
	server := grpc.NewServer(grpc.ForceServerCodec(undecoded{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		var request, reply []byte
		if err := stream.RecvMsg(&request); err != nil {
			return err
		}
		if err := to(method).Invoke(stream.Context(), method, &request, &reply, grpc.ForceCodec(undecoded{})); err != nil {
			return err
		}
		return stream.SendMsg(&reply)
	}))
	accept(t, accepts, server.Serve, func() error { server.Stop(); return nil })
}

// accept has a server accept connections until the test ends.
func accept(t *testing.T, accepts net.Listener, serve func(net.Listener) error, stop func() error) {
	done := make(chan error, 1)
	go func() { done <- serve(accepts) }()
	t.Cleanup(func() {
		check.Report(t, stop())
		if err := <-done; err != nil && !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// undecoded leaves messages as they are: those of proto.
type undecoded struct{}

func (undecoded) Marshal(v any) ([]byte, error)   { return *v.(*[]byte), nil }
func (undecoded) Unmarshal(b []byte, v any) error { *v.(*[]byte) = bytes.Clone(b); return nil }
func (undecoded) Name() string                    { return "proto" }
