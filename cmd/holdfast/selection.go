package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-storage/holdfast/admin"
	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

type selection struct {
	admin.Filter
	sortBy  *choice
	reverse bool
}

// filterable are the filters that a list has beside --node and --pool.
type filterable struct{ claim, volume, health bool }

// choose adds the filters. Where Holdfast runs does not matter to a list, so --namespace is that of claims.
func (s *selection) choose(cmd *cobra.Command, f filterable) {
	flags := cmd.Flags()
	flags.StringVar(&s.Node, "node", "", "only what is on that StorageNode, a `name`, or NAMESPACE/NAME of an NFS server")
	if f.claim {
		flags.StringVarP(&s.Namespace, "namespace", "n", "", "only what was made for claims in that `namespace`; all if empty")
		everywhere(flags)
		flags.StringVar(&s.Claim, "claim", "", "only what was made for that claim, `NAME` or NAMESPACE/NAME")
	}
	if f.volume {
		flags.StringVar(&s.Volume, "volume", "", "only the snapshots of that volume, a `name`")
	}
	if f.health {
		flags.BoolVar(&s.Unhealthy, "unhealthy", false, "only what is not as it should be")
	}
}

// everywhere accepts what kubectl needs to list all namespaces, and which is so here.
func everywhere(flags *pflag.FlagSet) {
	flags.BoolP("all-namespaces", "A", true, "of all namespaces, unless -n names one")
}

// addPool takes a name for a filter. What describes a pool of this host has an equals sign.
func (s *selection) addPool(host func(string) error) func(string) error {
	return func(value string) error {
		if strings.Contains(value, "=") {
			return host(value)
		}
		if value == "" {
			return fmt.Errorf("it must be the name of a pool, or describe one of this host, such as name=fast,path=/srv/fast")
		}
		s.Pools = append(s.Pools, value)
		return nil
	}
}

// checkCluster refuses names that do not exist, so that a mistyped one is no empty list.
func (s *selection) checkCluster(ctx context.Context, kinds holdfast.Interface) error {
	if s.Node == "" && len(s.Pools) == 0 {
		return nil
	}
	nodes, err := admin.Nodes(ctx, kinds)
	if err != nil {
		return notAsked(err)
	}
	var names []string
	for i := range nodes {
		names = append(names, nodes[i].Name)
	}
	if s.Node != "" && !slices.Contains(names, s.NodeName()) {
		return fmt.Errorf("--node %s: there is no such StorageNode%s; kubectl get storagenodes.holdfast.dev lists them: %w", s.Node, didYouMean(nearest(s.Node, names), ""), errUsage)
	}
	pools := poolsOf(nodes)
	for _, p := range s.Pools {
		if !slices.Contains(pools, p) {
			return fmt.Errorf("--pool %s: no node has such a pool%s; the pools are %s: %w", p, didYouMean(nearest(p, pools), ""), strings.Join(pools, ", "), errUsage)
		}
	}
	return nil
}

func poolsOf(nodes []v1beta1.StorageNode) (names []string) {
	for i := range nodes {
		for _, p := range nodes[i].Status.Pools {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
