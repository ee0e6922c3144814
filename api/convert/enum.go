package convert

import (
	"strings"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// The API has the values of enums in CamelCase, a backend in lower case. Empty is empty in both.

func toLower[Backend, API ~string](value API) Backend { return Backend(strings.ToLower(string(value))) }

func toCamel[API, Backend ~string](value Backend) API {
	if value == "" {
		return ""
	}
	return API(strings.ToUpper(string(value[:1])) + string(value[1:]))
}

// ToEngine is the backend's word for an engine.
func ToEngine(e v1beta1.Engine) string { return toLower[string](e) }

// FromEngine is the API's word for an engine.
func FromEngine(e string) v1beta1.Engine { return toCamel[v1beta1.Engine](e) }
