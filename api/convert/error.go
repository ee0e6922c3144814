package convert

import (
	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
)

// FromError writes an error down. The codes of the API are those of backends.
func FromError(err error) *v1.Error {
	if err == nil {
		return nil
	}
	return &v1.Error{Code: v1.ErrorCode(backend.CodeOf(err)), Message: backend.MessageOf(err)}
}

// ToError is an error as it was written down.
func ToError(e *v1.Error) error {
	if e == nil {
		return nil
	}
	return backend.Code(e.Code).Error(e.Message)
}
