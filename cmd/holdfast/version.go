package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set when a release is linked.
var version = "development"

func newVersionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Long:  `As json and yaml with the version of the metadata in pools that it writes, and the newest that it reads.`,
		Example: `  holdfast version
  holdfast version -o json`,
	}
	o := outputFlag(cmd, "text", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out := cmd.OutOrStdout()
		if o.value == "json" {
			return json.NewEncoder(out).Encode(self()) // one line, for the log of a pod
		}
		return o.print(out, self(), func(bool) error {
			_, err := io.WriteString(out, versionLine())
			return err
		})
	}
	return cmd
}

func versionLine() string {
	return fmt.Sprintf("holdfast %s (commit %s, %s, %s/%s)\n", version, revision(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// programVersion is what a StorageUpgrade reads from an image before that may open the pools. Fields are added, never
// changed.
type programVersion struct {
	Version  string          `json:"version"`
	Commit   string          `json:"commit"`
	Go       string          `json:"go"`
	Platform string          `json:"platform"`
	Metadata metadataVersion `json:"metadata"`
}

type metadataVersion struct {
	Writes int `json:"writes"`
	Reads  int `json:"reads"` // the newest
}

func self() programVersion {
	return programVersion{
		Version: version, Commit: revision(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Metadata: metadata(),
	}
}

// revision is the commit that the program was built from, with "-modified" when the work tree had changes.
func revision() string {
	commit, modified := "unknown", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				modified = "-modified"
			}
		}
	}
	return commit + modified
}
