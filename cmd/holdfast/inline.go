//go:build linux && !client

package main

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/spf13/pflag"
)

// inlineFlags are the limits of inline ephemeral volumes. Without them none are allowed.
func (h *host) inlineFlags(flags *pflag.FlagSet) {
	h.driver.Inline.Field = "--ephemeral-pools, with --ephemeral-max-size,"
	flags.Func("ephemeral-pools", "the pools that inline ephemeral volumes may be in, `names` with commas between them; a volume that names none is in the first of them that exists here. Empty: no such volumes are allowed", func(value string) error {
		h.driver.Inline.Pools = nil
		for name := range strings.SplitSeq(value, ",") {
			if name == "" {
				return fmt.Errorf("a name is empty")
			}
			h.driver.Inline.Pools = append(h.driver.Inline.Pools, name)
		}
		return nil
	})
	flags.Func("ephemeral-max-size", "the largest inline ephemeral volume, a `size` such as 10Gi", func(value string) error {
		size, err := resource.ParseQuantity(value)
		if err != nil || size.Sign() <= 0 || size.Value() <= 0 {
			return fmt.Errorf("it must be a number of bytes above 0, such as 10Gi")
		}
		h.driver.Inline.MaxSize = size.Value()
		return nil
	})
}
