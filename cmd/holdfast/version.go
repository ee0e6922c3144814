package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

// version is set when a release is linked.
var version = "development"

var versionCommand = command{
	name:    "version",
	summary: "Print the version of this program",
	prepare: func(*flag.FlagSet) func(context.Context, io.Writer) error {
		return func(_ context.Context, out io.Writer) error {
			_, err := fmt.Fprintf(out, "holdfast %s (%s, %s, %s/%s)\n", version, revision(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		}
	},
}

// revision is the commit that the program was built from.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown commit"
	}
	commit, modified := "unknown commit", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = "commit " + s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = ", modified"
		}
	}
	return commit + modified
}
