package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-storage/holdfast/backend"
)

// The groups of commands in the help.
const (
	forClusters = "clusters"
	forHosts    = "hosts"
	forPods     = "pods"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:     "holdfast COMMAND",
		Short:   "Holdfast serves the disks of a host as CSI volumes: limited, snapshotted, growing",
		Long:    exitCodes,
		Version: version,
		Example: `  holdfast status --context production
  holdfast volumes list -o wide
  holdfast help volumes restore`,
		SilenceErrors: true, SilenceUsage: true,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := c.Help(); err != nil {
				return err
			}
			return fmt.Errorf("no command given: %w", errUsage)
		},
		PersistentPreRunE: refuseUnusedFlags,
	}
	if strings.HasPrefix(filepath.Base(os.Args[0]), "kubectl-") {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl holdfast"}
	}
	root.Flags().Bool("version", false, "print the version of this program")
	root.SetVersionTemplate(versionLine())
	// Before a command they are for the completion alone: cobra hands them to the command, which defines its own.
	installationFlags(root.PersistentFlags())
	root.AddGroup(&cobra.Group{ID: forClusters, Title: "Commands for a cluster:"}, &cobra.Group{ID: forHosts, Title: "Commands for a host:"}, &cobra.Group{ID: forPods, Title: "Processes of a cluster:"})
	all := map[string][]*cobra.Command{
		forClusters: {newStatusCommand(), newTopCommand(), newDoctorCommand(), newVolumesCommand(), newSnapshotsCommand(), newGetCommand(), newDescribeCommand(), newRenderCommand(), newBenchCommand(), newSupportBundleCommand()},
		"":          {newVersionCommand()},
	}
	maps.Copy(all, hostCommands())
	for group, commands := range all {
		for _, c := range commands {
			c.GroupID, c.Hidden = group, group == forPods // which manifests call, and no person
			root.AddCommand(c)
		}
	}
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { fmt.Fprint(c.OutOrStdout(), help(c)) })
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%s%w%s: %w", prefix(c), err, nearestFlag(c, err), errUsage)
	})
	addGenerated(root)
	finish(root)
	return root
}

func addGenerated(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Use, c.Short, c.Long = "help [COMMAND]", "Show the help of a command", ""
			c.Example = "  holdfast help volumes restore"
			c.Args = func(c *cobra.Command, args []string) error {
				found, rest, err := c.Root().Find(args)
				if err != nil || len(rest) == 0 {
					return err
				}
				return checkArgs(found, rest)
			}
		case "completion":
			c.Short, c.Long, c.Args = "Print the script with which a shell completes commands, flags and names", "", nil
			c.Example = "  source <(holdfast completion bash)\n  holdfast completion zsh >\"${fpath[1]}/_holdfast\"\n  holdfast completion fish >~/.config/fish/completions/holdfast.fish"
			c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() } // without it, arguments are not checked
			for _, shell := range c.Commands() {
				shell.Short, shell.Args = "Print the script for "+shell.Name(), nil
				shell.Example = "  holdfast completion " + shell.Name()
			}
		}
	}
}

// finish gives all commands what they have in common.
func finish(c *cobra.Command) {
	if c.Args == nil {
		c.Args = checkArgs
	}
	c.SuggestionsMinimumDistance = 2
	completeCommand(c)
	for _, verb := range c.Commands() {
		finish(verb)
	}
}

// checkArgs allows one argument to a command whose usage line names it.
func checkArgs(c *cobra.Command, args []string) error {
	_, takes, _ := strings.Cut(c.Use, " ")
	switch {
	case c.HasSubCommands() && len(args) > 0:
		return fmt.Errorf("%sunknown command %q%s; the commands are %s: %w", prefix(c), args[0], didYouMean(c.SuggestionsFor(args[0]), ""), verbsOf(c), errUsage)
	case c.HasSubCommands():
		return nil
	case len(args) > 0 && takes == "":
		return fmt.Errorf("%s%q is not a flag: %w", prefix(c), args[0], errUsage)
	case len(args) == 0 && takes != "":
		return fmt.Errorf("%s%s is missing: %w", prefix(c), takes, errUsage)
	case len(args) > 1:
		return fmt.Errorf("%sit takes one %s, and %q is another: %w", prefix(c), takes, args[1], errUsage)
	case takes == "NAME": // of a volume or a snapshot
		if _, err := backend.ParseID(args[0]); err != nil {
			return fmt.Errorf("%s%w: %w", prefix(c), err, errUsage)
		}
	}
	return nil
}

func verbsOf(c *cobra.Command) string {
	var names []string
	for _, verb := range c.Commands() {
		if verb.IsAvailableCommand() {
			names = append(names, verb.Name())
		}
	}
	return strings.Join(names, ", ")
}

// contactNothing are the commands that ignore the flags of the root, as those of kubectl do: an alias that has them is for all
// commands.
var contactNothing = map[string]bool{"help": true, "version": true, "render": true, "completion": true}

// refuseUnusedFlags refuses the flags of the root that a command does not define itself and that would mislead: a user who
// names a cluster does not mean this host.
func refuseUnusedFlags(c *cobra.Command, _ []string) (err error) {
	verb := c
	for verb.HasParent() && verb.Parent() != c.Root() {
		verb = verb.Parent()
	}
	if contactNothing[verb.Name()] {
		return nil
	}
	c.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		switch {
		case !f.Changed:
		case verb.GroupID == forHosts:
			err = fmt.Errorf("%s--%s is for a cluster, and this command is about this host; leave it out: %w", prefix(c), f.Name, errUsage)
		default:
			err = fmt.Errorf("%sthere is no flag --%s here: %w", prefix(c), f.Name, errUsage)
		}
	})
	return err
}

// refuseGiven refuses flags that were given, and says why they would have no effect.
func refuseGiven(flags *pflag.FlagSet, why string, names ...string) error {
	for _, name := range names {
		if flags.Changed(name) {
			return fmt.Errorf("--%s %s: %w", name, why, errUsage)
		}
	}
	return nil
}

// nearestFlag names the flags that an unknown one may be meant as. With one dash, a long name is read as letters.
func nearestFlag(c *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return ""
	}
	name := unknown.GetSpecifiedName()
	if letters := unknown.GetSpecifiedShortnames(); len(letters) > 1 {
		name, _, _ = strings.Cut(letters, "=")
	}
	var flags []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			flags = append(flags, f.Name)
		}
	})
	return didYouMean(nearest(name, flags), "--")
}

func didYouMean(names []string, dashes string) string {
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s%s?)", dashes, strings.Join(names, " or "+dashes))
}

func prefix(c *cobra.Command) string {
	_, path, _ := strings.Cut(strings.TrimPrefix(c.CommandPath(), c.Root().DisplayName()), " ")
	if path == "" {
		return ""
	}
	return path + ": "
}
