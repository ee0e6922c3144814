package convert

import (
	"strings"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// Enum values are CamelCase in the API and lower case in backends. Empty stays empty.

func toLower[Backend, API ~string](value API) Backend { return Backend(strings.ToLower(string(value))) }

func toCamel[API, Backend ~string](value Backend) API {
	if value == "" {
		return ""
	}
	return API(strings.ToUpper(string(value[:1])) + string(value[1:]))
}

// ToEngine converts the engine of a pool.
func ToEngine(e v1beta1.Engine) string { return toLower[string](e) }

// FromEngine converts the engine of a pool.
func FromEngine(e string) v1beta1.Engine {
	for _, known := range []v1beta1.Engine{v1beta1.EngineRBD, v1beta1.EngineCephFS} { // names of their own
		if e == ToEngine(known) {
			return known
		}
	}
	return toCamel[v1beta1.Engine](e)
}
