package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/holdfast-storage/holdfast/backend/local"
)

// version is set when a release is linked.
var version = "development"

var versionCommand = command{
	name:    "version",
	summary: "Print the version of this program",
	prepare: func(flags *flag.FlagSet) func(context.Context, io.Writer) error {
		output := flags.String("output", "text", "`format`: text, or json, which also tells the version of what is written on disk")
		return func(_ context.Context, out io.Writer) error {
			switch *output {
			case "text":
				_, err := fmt.Fprintf(out, "holdfast %s (%s, %s, %s/%s)\n", version, revision(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
				return err
			case "json":
				return json.NewEncoder(out).Encode(self())
			}
			return fmt.Errorf("--output %q: text and json are allowed: %w", *output, errUsage)
		}
	},
}

// programVersion is what a StorageUpgrade reads of an image before it lets it at the pools. Fields are added, never changed.
type programVersion struct {
	Version  string          `json:"version"`
	Commit   string          `json:"commit"`
	Go       string          `json:"go"`
	Platform string          `json:"platform"`
	Metadata metadataVersion `json:"metadata"`
}

// metadataVersion is that of what lies in pools.
type metadataVersion struct {
	Writes int `json:"writes"`
	Reads  int `json:"reads"` // the newest
}

func self() programVersion {
	return programVersion{
		Version: version, Commit: revision(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Metadata: metadataVersion{Writes: local.MetadataVersion, Reads: local.MetadataVersion},
	}
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
