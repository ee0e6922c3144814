//go:build linux && !client

package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-storage/holdfast/transfer"
)

func newCopyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "copy",
		Short: "Copy the content of a volume to another in the same pod, and verify it",
		Long: `Both paths are directories on which volumes are mounted, or both are block devices. What the target has and the source
has not is removed; a run that was stopped is continued by the next. At the end both volumes are read and compared. A target
that has content which no such run has left behind is only compared, and nothing is written to it. The controller starts this
in a pod that has both volumes; the source is mounted read-only, and no process may write to either.

A line of JSON for each report of progress is on standard output. The result file gets {"bytes":N,"files":N,"sha256":"HEX"},
or the error. The exit code is 0, 1 if another run may succeed, 2 if it is called wrongly, 65 if something must be changed
before, or 66 if the target has content that no such run has left behind. A container needs the capabilities CHOWN,
DAC_OVERRIDE, FOWNER, FSETID, MKNOD, SETFCAP and SYS_ADMIN to copy a tree.`,
		Example: `  holdfast copy --from /source --to /target
  holdfast copy --from /dev/source --to /dev/target --every 10s --result /tmp/result`,
	}
	flags := cmd.Flags()
	logging := logFlags(flags)
	var config transfer.Config
	flags.StringVar(&config.From, "from", "", "`path` of the volume to copy")
	flags.StringVar(&config.To, "to", "", "`path` of the volume that becomes equal to it; it must be as large")
	flags.DurationVar(&config.Every, "every", 5*time.Second, "how often progress is reported, a `duration`")
	flags.StringVar(&config.Result, "result", "", "`file` for the result or the error; /dev/termination-log if empty, where that exists")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		for name, value := range map[string]string{"from": config.From, "to": config.To} {
			if value == "" {
				return fmt.Errorf("copy: --%s is missing: give the path of a volume, such as /source: %w", name, errUsage)
			}
		}
		if config.Every <= 0 {
			return fmt.Errorf("copy: --every %v: it must be longer than 0, such as 5s: %w", config.Every, errUsage)
		}
		if config.Log, err = logging.logger(); err != nil {
			return err
		}
		config.Progress = cmd.OutOrStdout()
		return transfer.Run(cmd.Context(), config)
	}
	return cmd
}
