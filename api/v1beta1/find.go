package v1beta1

import "slices"

// Find returns the first element of a list, in its place, that is as wanted; nil if there is none.
func Find[T any](all []T, is func(T) bool) *T {
	if i := slices.IndexFunc(all, is); i >= 0 {
		return &all[i]
	}
	return nil
}
