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
func FromEngine(e string) v1beta1.Engine {
	for _, known := range []v1beta1.Engine{v1beta1.EngineRBD, v1beta1.EngineCephFS} { // names of their own
		if e == ToEngine(known) {
			return known
		}
	}
	return toCamel[v1beta1.Engine](e)
}
