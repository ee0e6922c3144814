package driver

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-storage/holdfast/backend"
)

// grpcCodes are what backends say as CSI callers understand it.
var grpcCodes = map[backend.Code]codes.Code{
	backend.CodeBusy:         codes.Aborted,
	backend.CodeNotFound:     codes.NotFound,
	backend.CodeExists:       codes.AlreadyExists,
	backend.CodeInvalid:      codes.InvalidArgument,
	backend.CodeOutOfRange:   codes.OutOfRange,
	backend.CodeExhausted:    codes.ResourceExhausted,
	backend.CodePrecondition: codes.FailedPrecondition,
	backend.CodeUnavailable:  codes.Unavailable,
}

// toStatus is the one place where errors become gRPC codes. An ErrBusy may carry the error of a context.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	code, known := grpcCodes[backend.FindCode(err)]
	switch {
	case code == codes.NotFound && !backend.IsAbsent(err): // to a caller, not found would be final
		code = codes.Unavailable
	case known:
	case errors.Is(err, backend.ErrUnsupported):
		code = codes.Unimplemented
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	default:
		code = codes.Internal
	}
	return status.Error(code, backend.MessageOf(err))
}

// isFinal says whether the kubelet takes an answer to mean that a volume was not published, and forgets the volume. After
// any other it tries again, or unpublishes the volume.
func isFinal(err error) bool {
	switch status.Code(toStatus(err)) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	}
	return true
}
