package main

import (
	"context"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-storage/holdfast/admin"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// completionTime is how long a user at the Tab key waits for an API server that does not answer.
const completionTime = 3 * time.Second

// namer lists the names that an argument may have.
type namer func(context.Context, *admin.Admin) ([]string, error)

var (
	volumeNames      = namesOf(v1beta1.SchemeGroupVersion.WithResource("volumes"))
	snapshotNames    = namesOf(v1beta1.SchemeGroupVersion.WithResource("snapshots"))
	storageNodeNames = namesOf(v1beta1.SchemeGroupVersion.WithResource("storagenodes"))
	namespaceNames   = namesOf(core.SchemeGroupVersion.WithResource("namespaces"))
	classNames       = namesOf(storage.SchemeGroupVersion.WithResource("storageclasses"))
)

func namesOf(resource schema.GroupVersionResource) namer {
	return func(ctx context.Context, a *admin.Admin) (names []string, err error) {
		all, err := a.Dynamic.Resource(resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range all.Items {
			names = append(names, all.Items[i].GetName())
		}
		return names, nil
	}
}

func poolNames(ctx context.Context, a *admin.Admin) ([]string, error) {
	nodes, err := admin.Nodes(ctx, a.Holdfast)
	return poolsOf(nodes), err
}

func trashNames(ctx context.Context, a *admin.Admin) (names []string, err error) {
	all, err := a.Trash(ctx)
	for _, t := range all {
		names = append(names, t.Name)
	}
	return names, err
}

// completeName is for the one argument of a command.
func completeName(list namer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return completeNames(list)(cmd, args, typed)
	}
}

// completeNames asks the cluster that the flags so far name. An error completes nothing: there is no place for it.
func completeNames(list namer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		a, err := installationOf(cmd).admin(admin.Config{Out: io.Discard})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, _ := list(ctx, a)
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func completeContexts(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	config, _ := installationOf(cmd).config().RawConfig()
	return slices.Sorted(maps.Keys(config.Contexts)), cobra.ShellCompDirectiveNoFileComp
}

// installationOf reads the flags of a command line that is being typed: each command has them, if only from the root.
func installationOf(cmd *cobra.Command) *installation {
	return &installation{kubeconfig: cmd.Flag("kubeconfig").Value.String(), context: cmd.Flag("context").Value.String()}
}

// flagCompletions are those of flags that mean the same in all commands.
var flagCompletions = map[string]cobra.CompletionFunc{
	"context":       completeContexts,
	"namespace":     completeNames(namespaceNames),
	"node":          completeNames(storageNodeNames),
	"storage-class": completeNames(classNames),
	"log-format":    cobra.FixedCompletions([]cobra.Completion{"text", "json"}, cobra.ShellCompDirectiveNoFileComp),
	"log-level":     cobra.FixedCompletions([]cobra.Completion{"debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp),
	"access-mode":   cobra.FixedCompletions(accessModes, cobra.ShellCompDirectiveNoFileComp),
}

// completeCommand completes the arguments and flags of a command, with files only where it takes one.
func completeCommand(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		function := flagCompletions[f.Name]
		value, _ := pflag.UnquoteUsage(f)
		switch c, ok := f.Value.(*choice); {
		case ok:
			function = cobra.FixedCompletions(c.allowed, cobra.ShellCompDirectiveNoFileComp)
		case value == "directory":
			function = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
		case value == "file":
			function = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
		case function == nil:
			function = cobra.NoFileCompletions
		}
		_ = cmd.RegisterFlagCompletionFunc(f.Name, function) // unless it has one
	})
}
