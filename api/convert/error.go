package convert

import (
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
)

// FromError converts an error for a status. The API has the error codes of backends.
func FromError(err error) *v1beta1.Error {
	if err == nil {
		return nil
	}
	return &v1beta1.Error{Code: v1beta1.ErrorCode(backend.CodeOf(err)), Message: backend.MessageOf(err)}
}

// ToError converts the error of a status.
func ToError(e *v1beta1.Error) error {
	if e == nil {
		return nil
	}
	return backend.Code(e.Code).Error(e.Message)
}
