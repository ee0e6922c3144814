package storageos

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"
)

// field is a documented field and its conversion.
type field struct {
	path string
	take func(c *conversion, value any)
}

func noCounterpart(path, because string) field {
	return field{path, func(c *conversion, _ any) { c.remarkf(NoMeaning, "%s", because) }}
}

// manual is for fields that require a decision by the user.
func manual(path, what string) field {
	return field{path, func(c *conversion, _ any) { c.remarkf(ByHand, "%s", what) }}
}

// taken is for fields whose value becomes that of a field of a StorageCluster; the remark names it.
func taken[T any](path, remark string, of func(*cluster) *T) field {
	return typed(path, func(c *conversion, value T) {
		*of(c.cluster) = value
		c.remarkf(Taken, "%s", remark)
	})
}

// typed is for fields of one type. A value of another type is a fault.
func typed[T any](path string, take func(c *conversion, value T)) field {
	return field{path, func(c *conversion, value any) {
		var into struct {
			Value T `json:"value"`
		}
		if err := c.read(value, &into.Value, &into); err != nil {
			c.faultf("%v", err)
			return
		}
		take(c, into.Value)
	}}
}

// read reads a value into a field of the struct whole.
func (c *conversion) read(value, into, whole any) error {
	switch into := into.(type) {
	case *bool: // StorageOS also accepted strings
		if *into = value == true || value == "true"; !*into && value != false && value != "false" {
			return fmt.Errorf("%v: it must be true or false", value)
		}
	case *string:
		text, ok := value.(string)
		if *into = text; !ok {
			return fmt.Errorf("%v: it must be a text", value)
		}
	case *int32:
		n, ok := value.(float64)
		if !ok || n != math.Trunc(n) || n < 0 || n > math.MaxInt32 {
			return fmt.Errorf("%v: it must be a whole number", value)
		}
		*into = int32(n)
	case *map[string]string:
		given, ok := value.(map[string]any)
		if !ok {
			return fmt.Errorf("%v: it must be texts by their keys", value)
		}
		*into = c.texts(given)
	default:
		return readKubernetes(value, whole)
	}
	return nil
}

// texts converts numbers and booleans to strings: the sample of StorageOS has such.
func (c *conversion) texts(given map[string]any) map[string]string {
	all := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		switch v := given[key].(type) {
		case string:
			all[key] = v
			continue
		case bool:
			all[key] = strconv.FormatBool(v)
		case float64:
			all[key] = strconv.FormatFloat(v, 'f', -1, 64)
		default:
			c.faultf("%s: %v: it must be a text", key, v)
			continue
		}
		c.remarkf(Taken, "the text %q for %s, which was no text: only texts are possible", all[key], key)
	}
	return all
}

// readKubernetes reads a type of Kubernetes as the field value of a struct. Unknown subfields are an error.
func readKubernetes(value, into any) error {
	data, err := json.Marshal(map[string]any{"value": value})
	if err == nil {
		err = json.Unmarshal(data, into) // refuses a value of another type
	}
	var loose map[string]any
	if err == nil {
		err = json.Unmarshal(data, &loose)
	}
	if err == nil { // refuses an unknown key, or a known one in another case
		err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(loose, into, true)
	}
	if err != nil {
		return fmt.Errorf("it cannot be read as Kubernetes has it: %w", err)
	}
	return nil
}
