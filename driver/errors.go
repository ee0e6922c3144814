package driver

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-storage/holdfast/backend"
)

// sentinels pairs what backends say with what CSI callers understand. ErrBusy comes before the context errors that
// it may carry.
var sentinels = []struct {
	err  error
	code codes.Code
}{
	{backend.ErrBusy, codes.Aborted},
	{backend.ErrNotFound, codes.NotFound},
	{backend.ErrExists, codes.AlreadyExists},
	{backend.ErrInvalid, codes.InvalidArgument},
	{backend.ErrOutOfRange, codes.OutOfRange},
	{backend.ErrExhausted, codes.ResourceExhausted},
	{backend.ErrPrecondition, codes.FailedPrecondition},
	{backend.ErrUnavailable, codes.Unavailable},
	{context.Canceled, codes.Canceled},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
}

// toStatus is the one place where errors become gRPC codes.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	// A panic below leaves its stack in the message: that is for the log, not for the caller.
	message, _, _ := strings.Cut(err.Error(), "\ngoroutine ")
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			return status.Error(s.code, message)
		}
	}
	return status.Error(codes.Internal, message)
}
