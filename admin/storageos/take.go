package storageos

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// field is a documented field and its conversion.
type field struct {
	path string
	take func(c *conversion, value any)
}

// noCounterpart is for fields without a counterpart.
func noCounterpart(path, because string) field {
	return field{path, func(c *conversion, _ any) { c.remarkf(NoMeaning, "%s", because) }}
}

// manual is for fields that require a decision by the user.
func manual(path, what string) field {
	return field{path, func(c *conversion, _ any) { c.remarkf(ByHand, "%s", what) }}
}

// boolField is for boolean fields. StorageOS also accepted strings.
func boolField(path string, take func(c *conversion, on bool)) field {
	return field{path, func(c *conversion, value any) {
		switch value {
		case true, "true":
			take(c, true)
		case false, "false":
			take(c, false)
		default:
			c.faultf("%v: it must be true or false", value)
		}
	}}
}

func stringField(path string, take func(c *conversion, text string)) field {
	return field{path, func(c *conversion, value any) {
		text, ok := value.(string)
		if !ok {
			c.faultf("%v: it must be a text", value)
			return
		}
		take(c, text)
	}}
}

func intField(path string, take func(c *conversion, n int32)) field {
	return field{path, func(c *conversion, value any) {
		f, ok := value.(float64)
		if n, whole := value.(int64); whole {
			f, ok = float64(n), true
		}
		if !ok || f != math.Trunc(f) || f < 0 || f > math.MaxInt32 {
			c.faultf("%v: it must be a whole number", value)
			return
		}
		take(c, int32(f))
	}}
}

// stringMap is for maps of strings. Numbers and booleans are converted to strings: the sample of StorageOS has such.
func stringMap(path string, take func(c *conversion, all map[string]string)) field {
	return field{path, func(c *conversion, value any) {
		given, ok := value.(map[string]any)
		if !ok {
			c.faultf("%v: it must be texts by their keys", value)
			return
		}
		all := map[string]string{}
		for _, key := range slices.Sorted(maps.Keys(given)) {
			switch v := given[key].(type) {
			case string:
				all[key] = v
				continue
			case bool:
				all[key] = strconv.FormatBool(v)
			case int64:
				all[key] = strconv.FormatInt(v, 10)
			case float64:
				all[key] = strconv.FormatFloat(v, 'f', -1, 64)
			default:
				c.faultf("%s: %v: it must be a text", key, v)
				continue
			}
			c.remarkf(Taken, "the text %q for %s, which was no text: only texts are possible", all[key], key)
		}
		take(c, all)
	}}
}

// typedField is for fields whose type is one of Kubernetes. Unknown subfields are an error.
func typedField[T any](path string, take func(c *conversion, value *T)) field {
	return field{path, func(c *conversion, value any) {
		into := new(struct {
			Value T `json:"value"`
		})
		data, err := json.Marshal(map[string]any{"value": value})
		if err == nil {
			err = json.Unmarshal(data, into)
		}
		if err == nil {
			err = checkUnknownFields(data, into)
		}
		if err != nil {
			c.faultf("%s", strings.TrimPrefix(err.Error(), "json: "))
			return
		}
		take(c, &into.Value)
	}}
}

// checkUnknownFields fails for fields that the type does not have.
func checkUnknownFields(data []byte, into any) error {
	var loose map[string]any
	if err := json.Unmarshal(data, &loose); err != nil {
		return err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(loose, into, true); err != nil {
		return fmt.Errorf("it cannot be read as Kubernetes has it: %w", err)
	}
	return nil
}
