package backend

import (
	"fmt"
	"slices"
	"strings"
)

// ParsePool parses a pool that is described by KEY=VALUE,..., and has set take each. Of a key in lists there may be several values,
// with commas between them. keys are for the error that names all.
func ParsePool(s, keys string, set func(key, value string) error, lists ...string) error {
	seen, last := map[string]bool{}, ""
	for field := range strings.SplitSeq(s, ",") {
		key, value, ok := strings.Cut(field, "=")
		if !ok && slices.Contains(lists, last) { // one more of them
			key, value, ok = last, field, true
		}
		switch {
		case !ok || value == "":
			return fmt.Errorf("%w pool %s: %s is not key=value; the keys are: %s", ErrInvalid, Quote(s), Quote(field), keys)
		case seen[key] && !slices.Contains(lists, key):
			return fmt.Errorf("%w pool %s: %s is given twice", ErrInvalid, Quote(s), key)
		}
		seen[key], last = true, key
		if err := set(key, value); err != nil {
			return fmt.Errorf("%w pool %s: %w", ErrInvalid, Quote(s), err)
		}
	}
	return nil
}
