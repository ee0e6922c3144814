package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/admin"
	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"
)

// selection is what a list shows, and in which order.
type selection struct {
	admin.Filter
	sortBy  *choice
	reverse bool
}

// filterable are the filters that a list has beside --node and --pool.
type filterable struct{ claim, volume, health bool }

const orderUsage = "by which the list is sorted, the largest and the oldest first"

// define adds the flags of a list.
func (s *selection) define(cmd *cobra.Command, f filterable, orders []string) {
	s.choose(cmd, f)
	s.sortBy = choiceFlag(cmd.Flags(), "sort-by", "", "column", orderUsage, orders...)
	cmd.Flags().BoolVar(&s.reverse, "reverse", false, "sort the other way round")
}

// choose adds the filters. Where Holdfast runs does not matter to a list, so --namespace is that of claims.
func (s *selection) choose(cmd *cobra.Command, f filterable) {
	flags := cmd.Flags()
	flags.StringVar(&s.Node, "node", "", "only what is on that StorageNode, a `name`, or NAMESPACE/NAME of an NFS server")
	if f.claim {
		flags.StringVarP(&s.Namespace, "namespace", "n", "", "only what was made for claims in that `namespace`; all if empty")
		flags.StringVar(&s.Claim, "claim", "", "only what was made for that claim, `NAME` or NAMESPACE/NAME")
	}
	if f.volume {
		flags.StringVar(&s.Volume, "volume", "", "only the snapshots of that volume, a `name`")
	}
	if f.health {
		flags.BoolVar(&s.Unhealthy, "unhealthy", false, "only what is not as it should be")
	}
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
	all, err := kinds.HoldfastV1beta1().StorageNodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return notAsked(fmt.Errorf("the StorageNodes could not be listed (is Holdfast installed here?): %w", err))
	}
	nodes, pools := map[string]bool{}, map[string]bool{}
	for i := range all.Items {
		nodes[all.Items[i].Name] = true
		for _, p := range all.Items[i].Status.Pools {
			pools[p.Name] = true
		}
	}
	if s.Node != "" && !nodes[s.NodeName()] {
		return fmt.Errorf("--node %s: there is no such StorageNode%s; kubectl get storagenodes lists them: %w",
			s.Node, didYouMean(nearest(s.Node, slices.Sorted(maps.Keys(nodes))), ""), errUsage)
	}
	for _, p := range s.Pools {
		if known := slices.Sorted(maps.Keys(pools)); !pools[p] {
			return fmt.Errorf("--pool %s: no node has such a pool%s; the pools are %s: %w", p, didYouMean(nearest(p, known), ""), strings.Join(known, ", "), errUsage)
		}
	}
	return nil
}

func poolNames(ctx context.Context, a *admin.Admin) (names []string, _ error) {
	all, err := a.Holdfast.HoldfastV1beta1().StorageNodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range all.Items {
		for _, p := range all.Items[i].Status.Pools {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
