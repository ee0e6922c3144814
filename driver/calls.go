package driver

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-storage/holdfast/backend"
)

// calls is what happens around every call: a panic becomes an error, errors become gRPC codes, and the call is counted
// and logged. Requests are never logged: their secrets, contexts and mount flags are confidential.
type calls struct {
	log     *slog.Logger
	metrics *metrics
}

func (c *calls) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	method := path.Base(info.FullMethod)
	begun := time.Now()
	resp, err := c.handle(ctx, req, method, handler)
	took := time.Since(begun)
	translated := toStatus(err)
	code := status.Code(translated)
	c.metrics.observe(info.FullMethod, code, took)

	attrs := []slog.Attr{slog.String("method", method), slog.String("code", code.String()), slog.Duration("duration", took)}
	attrs = append(attrs, subject(req, resp)...)
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	c.log.LogAttrs(ctx, level(method, code), "call", attrs...)
	if translated != nil {
		return nil, translated
	}
	return resp, nil
}

func (c *calls) handle(ctx context.Context, req any, method string, handler grpc.UnaryHandler) (resp any, err error) {
	defer c.recoverTo(&err, method)
	return handler(ctx, req)
}

// recoverTo is deferred; it turns a panic into *err.
func (c *calls) recoverTo(err *error, method string) {
	p := recover()
	if p == nil {
		return
	}
	c.metrics.panics.Inc()
	c.log.Error("panic", "method", method, "value", fmt.Sprint(p), "stack", string(debug.Stack()))
	*err = fmt.Errorf("%s failed because of a bug in this program; its log has the stack", method)
}

// polls are methods that sidecars and kubelets call all the time, for each node, class and volume.
var polls = []string{"Probe", "GetPluginInfo", "GetCapacity", "ListVolumes", "NodeGetVolumeStats"}

// level keeps calls that are repeated every few seconds out of the ordinary log.
func level(method string, code codes.Code) slog.Level {
	switch {
	case code == codes.Internal || code == codes.Unknown:
		return slog.LevelError
	case code != codes.OK:
		return slog.LevelWarn
	case slices.Contains(polls, method), strings.HasSuffix(method, "Capabilities") && !strings.HasPrefix(method, "Validate"):
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// subject names what a call was about.
func subject(req, resp any) (attrs []slog.Attr) {
	add := func(key, value string) {
		if _, err := backend.ParseID(value); err != nil && value != "" {
			value = backend.Quote(value)
		}
		if value != "" {
			attrs = append(attrs, slog.String(key, value))
		}
	}
	if r, ok := req.(interface{ GetName() string }); ok {
		add("name", r.GetName())
	}
	if r, ok := req.(interface{ GetVolumeId() string }); ok {
		add("volume", r.GetVolumeId())
	}
	if r, ok := req.(interface{ GetSourceVolumeId() string }); ok {
		add("volume", r.GetSourceVolumeId())
	}
	if r, ok := req.(interface{ GetSnapshotId() string }); ok {
		add("snapshot", r.GetSnapshotId())
	}
	if r, ok := req.(interface{ GetGroupSnapshotId() string }); ok {
		add("group", r.GetGroupSnapshotId())
	}
	switch r := resp.(type) {
	case *csi.CreateVolumeResponse:
		add("volume", r.GetVolume().GetVolumeId())
	case *csi.CreateSnapshotResponse:
		add("snapshot", r.GetSnapshot().GetSnapshotId())
	case *csi.CreateVolumeGroupSnapshotResponse:
		add("group", r.GetGroupSnapshot().GetGroupSnapshotId())
	}
	return attrs
}
