// Package parameters has the table of all parameters of classes, of the CSI driver and of the provisioner of plain NFS
// volumes. Both check what they are given by it, and so do the operator and the admission policies; docs/parameters.md
// is written from it.
package parameters

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-storage/holdfast/backend"
)

// Reserved begins the keys that belong to Kubernetes. Sidecars read them, and a newer one may know more of them.
const Reserved = "csi.storage.k8s.io/"

// Class is a kind of object that has parameters.
type Class struct {
	Name       string // for messages and documents
	Parameters []Parameter
	// Hints say where keys belong that are often written here by mistake, by their spelling in lower case.
	Hints map[string]string
	// AnyCase reads keys whatever their case.
	AnyCase bool
	// AllowsReserved lets unknown keys that begin with Reserved through.
	AllowsReserved bool
}

// Parameter is one key of a class. An empty value is as if the key were missing.
type Parameter struct {
	Key     string
	Allowed string // the values, for messages and documents
	Default string // for documents
	Meaning string // for documents, in Markdown

	Pattern *regexp.Regexp // which the value matches; nil: any text
	AnyCase bool           // of the value, which is returned in lower case, as volumes and older classes have it
	Max     uint64         // of a value that is a number, which is at least 1; 0: there are no numbers
	Needs   string         // KEY=VALUE that must be given as well
	Never   []string       // KEY=VALUE that may not be given as well
	// check refuses what no pattern can. It gets all that was given.
	check func(value string, read map[string]string) error
}

// Read checks the parameters of an object of the class, and returns those that are not empty and in the table.
func (c *Class) Read(given map[string]string) (map[string]string, error) {
	read, seen := map[string]string{}, map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		p, known := c.find(key)
		value := given[key]
		switch {
		case !known && c.passes(key):
		case !known:
			return nil, c.unknown(key)
		case value != "":
			if !p.allows(value) {
				return nil, fmt.Errorf("parameter %s=%s: it must be %s", key, backend.Quote(value), p.Allowed)
			}
			if read[p.Key] = value; p.AnyCase {
				read[p.Key] = strings.ToLower(value)
			}
		}
		if other := seen[p.Key]; known && other != "" {
			return nil, fmt.Errorf("parameters %s and %s: they are the same key, since case does not matter; leave out one of them", backend.Quote(other), backend.Quote(key))
		}
		seen[p.Key] = key
	}
	for _, p := range c.Parameters {
		if value := read[p.Key]; value != "" {
			if err := p.fits(value, read); err != nil {
				return nil, err
			}
		}
	}
	return read, nil
}

// Keys are those of the table.
func (c *Class) Keys() []string {
	var keys []string
	for _, p := range c.Parameters {
		keys = append(keys, p.Key)
	}
	slices.Sort(keys)
	return keys
}

// AllHints are Hints, and those for keys of this class in another case.
func (c *Class) AllHints() map[string]string {
	hints := map[string]string{}
	maps.Copy(hints, c.Hints)
	for _, p := range c.Parameters {
		if lower := strings.ToLower(p.Key); lower != p.Key {
			hints[lower] = "did you mean " + p.Key + "?"
		}
	}
	return hints
}

// AllowedKeys names the keys that are allowed, for messages.
func (c *Class) AllowedKeys() string {
	keys := c.Keys()
	if c.AllowsReserved {
		keys = append(keys, "those of Kubernetes, which begin with "+Reserved)
	}
	if c.AnyCase {
		return "(case does not matter) " + strings.Join(keys, ", ")
	}
	return "(case matters) " + strings.Join(keys, ", ")
}

func (c *Class) find(key string) (Parameter, bool) {
	lower := strings.ToLower(key) // as lowerAscii of the policies: EqualFold folds other letters, too
	i := slices.IndexFunc(c.Parameters, func(p Parameter) bool {
		return p.Key == key || c.AnyCase && strings.ToLower(p.Key) == lower
	})
	if i < 0 {
		return Parameter{}, false
	}
	return c.Parameters[i], true
}

// passes says whether an unknown key is let through. One that differs from a known one by case only is a mistake.
func (c *Class) passes(key string) bool {
	_, known := c.find(strings.ToLower(key))
	return c.AllowsReserved && strings.HasPrefix(key, Reserved) && !known
}

func (c *Class) unknown(key string) error {
	lower := strings.ToLower(key)
	hint := c.AllHints()[lower]
	if _, known := c.find(lower); known {
		hint = "did you mean " + lower + "?"
	}
	if hint != "" {
		hint = ": " + hint
	}
	return fmt.Errorf("parameter %s: %s does not have it%s; allowed are %s", backend.Quote(key), c.Name, hint, c.AllowedKeys())
}

func (p *Parameter) allows(value string) bool {
	if p.Pattern == nil {
		return true
	}
	if !p.Pattern.MatchString(value) {
		return false
	}
	if p.Max == 0 || !digits.MatchString(value) {
		return true
	}
	n, err := strconv.ParseUint(value, 10, 64)
	return err == nil && n >= 1 && n <= p.Max
}

// fits refuses what the other parameters rule out.
func (p *Parameter) fits(value string, read map[string]string) error {
	if key, needed, _ := strings.Cut(p.Needs, "="); read[key] != needed {
		return fmt.Errorf("parameter %s=%s: it is only for classes with %s: %q; add that, or leave it out", p.Key, backend.Quote(value), key, needed)
	}
	for _, never := range p.Never {
		if key, excluded, _ := strings.Cut(never, "="); read[key] == excluded {
			return fmt.Errorf("parameter %s=%s: it cannot be used with %s: %q; leave out one of them", p.Key, backend.Quote(value), key, excluded)
		}
	}
	if p.check == nil {
		return nil
	}
	if err := p.check(value, read); err != nil {
		return fmt.Errorf("parameter %s=%s: %w", p.Key, backend.Quote(value), err)
	}
	return nil
}

var digits = regexp.MustCompile(`^[0-9]+$`)
