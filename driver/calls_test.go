package driver

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestCalls_PanicBecomesInternalAndIsCounted(t *testing.T) {
	b := newScripted()
	b.list = func() ([]*backend.Volume, error) { panic("the secret is hunter2") }
	b.get = func(backend.ID) (*backend.Volume, error) { panic("the secret is hunter2") }
	r := newRig(t, b)
	_, err := r.ListVolumes(r.ctx(), &csi.ListVolumesRequest{})
	expectError(t, err, codes.Internal, "ListVolumes")
	_, staged := r.NodeStageVolume(r.ctx(), &csi.NodeStageVolumeRequest{VolumeId: "v", StagingTargetPath: "/nowhere", VolumeCapability: mountCapability("")})
	expectError(t, staged, codes.Internal, "stage")
	for _, err := range []error{err, staged} {
		if message := status.Convert(err).Message(); strings.Contains(message, "hunter2") || strings.Contains(message, "goroutine") {
			t.Errorf("the caller got %q", message)
		}
	}
	if n := testutil.ToFloat64(r.driver.calls.metrics.panics); n != 2 {
		t.Errorf("%v panics were counted, want 2", n)
	}
	if lines := r.log.lines("msg=panic", "calls_test.go"); len(lines) != 2 {
		t.Errorf("%d stacks were logged, want 2:\n%s", len(lines), r.log)
	}
	if _, err := r.NodeGetInfo(r.ctx(), &csi.NodeGetInfoRequest{}); err != nil {
		t.Errorf("the driver no longer answers: %v", err)
	}
}

func TestCalls_StackIsHiddenFromTheCaller(t *testing.T) {
	err := toStatus(errors.New("create of v panicked: boom\ngoroutine 17 [running]:\nmain.main()"))
	if got := status.Convert(err); got.Code() != codes.Internal || got.Message() != "create of v panicked: boom" {
		t.Errorf("got %v", err)
	}
}

func TestCalls_EachIsLoggedOnceAndCounted(t *testing.T) {
	r, _ := newMemoryRig(t)
	id := r.create("claim-1").GetVolumeId()
	lines := r.log.lines("msg=call", "method=CreateVolume")
	if len(lines) != 1 {
		t.Fatalf("%d lines for one call:\n%s", len(lines), r.log)
	}
	for _, want := range []string{"level=INFO", "code=OK", "duration=", "volume=" + id, "name=claim-1"} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("%q does not have %s", lines[0], want)
		}
	}
	_, err := r.ControllerGetVolume(r.ctx(), &csi.ControllerGetVolumeRequest{VolumeId: "gone"})
	expectError(t, err, codes.NotFound, "gone")
	if lines := r.log.lines("level=WARN", "method=ControllerGetVolume", "code=NotFound", "volume=gone", "error="); len(lines) != 1 {
		t.Errorf("%d lines for a failed call:\n%s", len(lines), r.log)
	}
	m := r.driver.calls.metrics
	if n := testutil.ToFloat64(m.calls.WithLabelValues("/csi.v1.Controller/CreateVolume", "OK")); n != 1 {
		t.Errorf("%v calls were counted", n)
	}
	if n := testutil.ToFloat64(m.calls.WithLabelValues("/csi.v1.Controller/ControllerGetVolume", "NotFound")); n != 1 {
		t.Errorf("%v failures were counted", n)
	}
	families := check.Got(r.metrics.Gather())(t)
	var latencies uint64
	for _, f := range families {
		if f.GetName() == "holdfast_csi_call_duration_seconds" {
			for _, m := range f.GetMetric() {
				if m.GetLabel()[0].GetValue() == "/csi.v1.Controller/CreateVolume" {
					latencies = m.GetHistogram().GetSampleCount()
				}
			}
		}
	}
	if latencies != 1 {
		t.Errorf("%d latencies of CreateVolume were measured, want 1", latencies)
	}
}

func TestCalls_PollsAreLoggedForDebuggingUnlessTheyFail(t *testing.T) {
	polls := []string{
		"Probe", "GetPluginInfo", "GetPluginCapabilities", "ControllerGetCapabilities", "GroupControllerGetCapabilities", "NodeGetCapabilities",
		"GetCapacity", "ListVolumes", "NodeGetVolumeStats",
	}
	found := 0
	eachMethod(t, func(_ string, m protoreflect.MethodDescriptor) {
		name, want := string(m.Name()), slog.LevelInfo
		if slices.Contains(polls, name) {
			want, found = slog.LevelDebug, found+1
		}
		if got := level(name, codes.OK); got != want {
			t.Errorf("%s is logged at %s, want %s", name, got, want)
		}
		if got := level(name, codes.Unavailable); got != slog.LevelWarn {
			t.Errorf("%s that fails is logged at %s", name, got)
		}
	})
	if found != len(polls) {
		t.Errorf("the protocol has %d of the %d methods %q", found, len(polls), polls)
	}
}

func TestCalls_IDCannotForgeALineOfTheLog(t *testing.T) {
	r, _ := newMemoryRig(t)
	_, err := r.DeleteVolume(r.ctx(), &csi.DeleteVolumeRequest{VolumeId: "x\nlevel=INFO msg=forged"})
	expectError(t, err, codes.InvalidArgument, `x\nlevel`)
	for line := range strings.Lines(r.log.String()) {
		if strings.HasPrefix(line, "level=INFO msg=forged") {
			t.Errorf("forged: %s", line)
		}
	}
}

// marker stands for a secret; logs would show it as it is or in base64.
const marker = "s3cr3t-marker"

// TestSecrets_ReachNeitherTheLogNorAnAnswer calls every method of the protocol with the marker in every field that
// is a secret by the protocol's own mark, and in every context, with arguments that make some calls work and others fail.
func TestSecrets_ReachNeitherTheLogNorAnAnswer(t *testing.T) {
	r, _ := newMemoryRig(t)
	r.create("v")
	r.snapshot("s", "v")
	methods, marked := 0, 0
	eachMethod(t, func(path string, m protoreflect.MethodDescriptor) {
		for _, id := range []string{"v", "s", "not/an/id", ""} {
			req, n := fill(t, m.Input(), id)
			answer := newMessage(t, m.Output())
			err := r.conn.Invoke(r.ctx(), path, req, answer)
			expectNoMarker(t, path, fmt.Sprint(err, answer))
			methods, marked = methods+1, marked+n
		}
	})
	expectNoMarker(t, "the log", r.log.String())
	if got := len(r.log.lines("msg=call")); got < methods {
		t.Errorf("%d calls were made, %d lines logged", methods, got)
	}
	if marked < 4*15 {
		t.Errorf("only %d secrets were sent; the protocol has more fields", marked)
	}
}

// eachMethod goes through the methods of the protocol.
func eachMethod(t *testing.T, do func(path string, m protoreflect.MethodDescriptor)) {
	t.Helper()
	for _, service := range []protoreflect.FullName{"csi.v1.Identity", "csi.v1.Controller", "csi.v1.GroupController", "csi.v1.Node"} {
		d := check.Got(protoregistry.GlobalFiles.FindDescriptorByName(service))(t)
		all := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range all.Len() {
			do(fmt.Sprintf("/%s/%s", service, all.Get(i).Name()), all.Get(i))
		}
	}
}

func expectNoMarker(t *testing.T, where, text string) {
	t.Helper()
	for _, form := range []string{marker, base64.StdEncoding.EncodeToString([]byte(marker))} {
		if strings.Contains(text, form) {
			t.Errorf("%s has the secret: %s", where, text)
		}
	}
}

// fill makes a request in which identifying fields have the value id and secret ones the marker.
func fill(t *testing.T, d protoreflect.MessageDescriptor, id string) (m proto.Message, marked int) {
	m = newMessage(t, d)
	r := m.ProtoReflect()
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		name := string(f.Name())
		switch {
		case proto.GetExtension(f.Options(), csi.E_CsiSecret).(bool), strings.HasSuffix(name, "_context"):
			key := protoreflect.ValueOfString("csi.storage.k8s.io/serviceAccount.tokens").MapKey()
			r.Mutable(f).Map().Set(key, protoreflect.ValueOfString(marker))
			marked++
		case f.Kind() == protoreflect.StringKind && f.Cardinality() == protoreflect.Optional && strings.HasSuffix(name, "_path"):
			r.Set(f, protoreflect.ValueOfString("/nowhere/"+id))
		case name == "starting_token":
		case f.Kind() == protoreflect.StringKind && f.Cardinality() == protoreflect.Optional:
			r.Set(f, protoreflect.ValueOfString(id))
		case name == "volume_capability":
			r.Set(f, protoreflect.ValueOfMessage(mountCapability("").ProtoReflect()))
		case name == "capacity_range":
			r.Set(f, protoreflect.ValueOfMessage((&csi.CapacityRange{RequiredBytes: gib}).ProtoReflect()))
		case name == "volume_capabilities":
			r.Mutable(f).List().Append(protoreflect.ValueOfMessage(mountCapability("").ProtoReflect()))
		case name == "source_volume_ids":
			r.Mutable(f).List().Append(protoreflect.ValueOfString(id))
		}
	}
	return m, marked
}

func newMessage(t *testing.T, d protoreflect.MessageDescriptor) proto.Message {
	m := check.Got(protoregistry.GlobalTypes.FindMessageByName(d.FullName()))(t)
	return m.New().Interface()
}

func TestErrors_AreTranslatedOnceEach(t *testing.T) {
	for want, err := range map[codes.Code]error{
		codes.NotFound:           backend.ErrNotFound,
		codes.AlreadyExists:      backend.ErrExists,
		codes.InvalidArgument:    backend.ErrInvalid,
		codes.OutOfRange:         backend.ErrOutOfRange,
		codes.ResourceExhausted:  backend.ErrExhausted,
		codes.FailedPrecondition: backend.ErrPrecondition,
		codes.Unavailable:        backend.ErrUnavailable,
		codes.Unimplemented:      backend.ErrUnsupported,
		codes.Canceled:           context.Canceled,
		codes.DeadlineExceeded:   context.DeadlineExceeded,
		codes.Internal:           errors.New("disk on fire"),
		// What is busy carries the end of the caller's own context.
		codes.Aborted: fmt.Errorf("%w: stage is running: %w", backend.ErrBusy, context.DeadlineExceeded),
		codes.Unknown: status.Error(codes.Unknown, "a status stays what it is"),
	} {
		wrapped := err
		if want != codes.Unknown {
			wrapped = fmt.Errorf("volume v: %w", err)
		}
		if got := toStatus(wrapped); status.Code(got) != want || !strings.Contains(got.Error(), err.Error()) && want != codes.Unknown {
			t.Errorf("toStatus(%v) = %v, want %s", wrapped, got, want)
		}
	}
	// What no open pool has may be in one that is out of reach: to a caller, not found would be final.
	if got := toStatus(errors.Join(backend.ErrNotFound, backend.ErrUnavailable)); status.Code(got) != codes.Unavailable {
		t.Errorf("what may be in a pool that is out of reach is %v", got)
	}
	for _, code := range backend.Codes() {
		if grpcCodes[code] == codes.OK {
			t.Errorf("backends say %s, which is nothing to a caller", code)
		}
	}
	if toStatus(nil) != nil {
		t.Error("no error became one")
	}
}
