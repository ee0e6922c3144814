package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-storage/holdfast/deploy"
)

// unknownFlags is a variable of the pods of a cluster. In an upgrade and after a rollback a process is started with the
// template of another release, and it must run all the same.
const unknownFlags = "HOLDFAST_UNKNOWN_FLAGS"

// knownFlags leaves out flags that a process of a cluster does not have, and names them, where its pod says so.
func knownFlags(root *cobra.Command, args []string, log io.Writer) []string {
	c, _, err := root.Find(args)
	if err != nil || c.GroupID != forPods || os.Getenv(unknownFlags) != "ignore" {
		return args
	}
	var known []string
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if strings.HasPrefix(arg, "--") && name != "help" && c.Flags().Lookup(name) == nil {
			fmt.Fprintf(log, "holdfast: this release, %s, has no flag --%s for holdfast %s; it is ignored, since %s is set\n", deploy.Version, name, c.Name(), unknownFlags)
			continue
		}
		known = append(known, arg)
	}
	return known
}
