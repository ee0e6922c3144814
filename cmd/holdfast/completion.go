package main

import (
	"context"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-storage/holdfast/admin"
)

// completionTime is how long a user at the Tab key waits for an API server that does not answer.
const completionTime = 3 * time.Second

// namer lists the names that an argument may have.
type namer func(context.Context, *admin.Admin) ([]string, error)

func volumeNames(ctx context.Context, a *admin.Admin) ([]string, error) {
	return namesIn(a.Holdfast.HoldfastV1beta1().Volumes().List(ctx, metav1.ListOptions{}))
}

func snapshotNames(ctx context.Context, a *admin.Admin) ([]string, error) {
	return namesIn(a.Holdfast.HoldfastV1beta1().Snapshots().List(ctx, metav1.ListOptions{}))
}

func storageNodeNames(ctx context.Context, a *admin.Admin) ([]string, error) {
	return namesIn(a.Holdfast.HoldfastV1beta1().StorageNodes().List(ctx, metav1.ListOptions{}))
}

func namespaceNames(ctx context.Context, a *admin.Admin) ([]string, error) {
	return namesIn(a.Kubernetes.CoreV1().Namespaces().List(ctx, metav1.ListOptions{}))
}

func classNames(ctx context.Context, a *admin.Admin) ([]string, error) {
	return namesIn(a.Kubernetes.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{}))
}

func trashNames(ctx context.Context, a *admin.Admin) (names []string, err error) {
	all, err := a.Trash(ctx)
	for _, t := range all {
		names = append(names, t.Name)
	}
	return names, err
}

func namesIn(list runtime.Object, err error) (names []string, _ error) {
	if err != nil {
		return nil, err
	}
	return names, meta.EachListItem(list, func(o runtime.Object) error {
		object, err := meta.Accessor(o)
		if err == nil {
			names = append(names, object.GetName())
		}
		return err
	})
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
		i := &installation{kubectl: kubectlOf(cmd)}
		a, err := i.admin(admin.Config{Out: io.Discard})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, _ := list(ctx, a)
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func completeContexts(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	config, _ := kubectlOf(cmd).config().RawConfig()
	return slices.Sorted(maps.Keys(config.Contexts)), cobra.ShellCompDirectiveNoFileComp
}

// kubectlOf reads the flags of a command line that is being typed.
func kubectlOf(cmd *cobra.Command) *kubectl {
	value := func(name string) string {
		if f := cmd.Flag(name); f != nil {
			return f.Value.String()
		}
		return ""
	}
	return &kubectl{kubeconfig: value("kubeconfig"), context: value("context")}
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
	complete := func(f *pflag.Flag) {
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
		_ = cmd.RegisterFlagCompletionFunc(f.Name, function) // it has none yet
	}
	cmd.LocalFlags().VisitAll(complete)
}
